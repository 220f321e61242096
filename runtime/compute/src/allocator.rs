//! A setting of the C allocator: keep freed memory for later allocations.
//!
//! Every training step frees and allocates the same gibibytes again. If the allocator returned them to the system each
//! time, the system would have to zero every page anew: on the tiny model that takes a fifth of a step.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the allocator's settings are a call into the C library")
)]

/// Makes the C allocator keep freed memory for later allocations instead of returning it to the system, for the whole
/// process. Call it once, at the start of a program. Does nothing unless the C library is glibc; other allocators keep
/// pages by themselves.
pub fn keep_freed_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Blocks of this many bytes or more are mapped one by one and unmapped when freed. The most that glibc allows.
        const DIRECT: i32 = 32 << 20;
        /// Free bytes at the end of the heap above which glibc returns them to the system.
        const SHRINK: i32 = 1 << 30;
        /// Bytes that glibc adds to the heap beyond the requested ones whenever it grows.
        const GROW: i32 = 64 << 20;
        for (setting, value) in
            [(libc::M_MMAP_THRESHOLD, DIRECT), (libc::M_TRIM_THRESHOLD, SHRINK), (libc::M_TOP_PAD, GROW)]
        {
            // SAFETY: `mallopt` takes plain numbers and its own lock; a value that it does not take changes nothing.
            unsafe { libc::mallopt(setting, value) };
        }
    }
}
