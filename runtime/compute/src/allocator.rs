//! Tells the system's allocator to keep the pages of what was freed.
//!
//! A step frees and allocates the same gibibytes again and again; an allocator that hands them back to the system
//! each time has it clear every page anew. On the tiny model that is a fifth of a step.

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
        /// Blocks beyond this come from the system directly and go back to it; the most that glibc allows.
        const DIRECT: i32 = 32 << 20;
        /// Bytes free at the end of the heap before it shrinks.
        const SHRINK: i32 = 1 << 30;
        /// Bytes by which the heap grows more than it must.
        const GROW: i32 = 64 << 20;
        for (setting, value) in
            [(libc::M_MMAP_THRESHOLD, DIRECT), (libc::M_TRIM_THRESHOLD, SHRINK), (libc::M_TOP_PAD, GROW)]
        {
            // SAFETY: `mallopt` takes plain numbers and its own lock; a value that it does not take changes nothing.
            unsafe { libc::mallopt(setting, value) };
        }
    }
}
