//! Asking for bytes before they are read: a hint to the processor, which takes a raw pointer.

/// Bytes of a line of the cache.
pub(super) const LINE: usize = 64;

/// Hints the processor to load bytes into its innermost cache, since they will be read soon. Returns at once. Does
/// nothing except on x86-64.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the hint takes a raw pointer"))]
pub(super) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint reads nothing that the program could see and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}

/// Cuts `bytes` into `parts` pieces of equal size, rounded up, and returns the piece with index `part`. The last pieces
/// may be shorter or empty. With 0 `parts`, piece 0 is all of `bytes`. Used to spread a prefetch over the steps of a
/// loop.
#[inline(always)]
pub(super) fn nth_chunk(bytes: &[u8], part: usize, parts: usize) -> &[u8] {
    let size = bytes.len().div_ceil(parts.max(1));
    &bytes[(part * size).min(bytes.len())..((part + 1) * size).min(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        for parts in [1, 3, 7, 99, 100, 101, 300] {
            let found: Vec<u8> = (0..parts).flat_map(|part| nth_chunk(&bytes, part, parts).to_vec()).collect();
            assert_eq!(found, bytes, "{parts}");
        }
        assert!(nth_chunk(&[], 0, 0).is_empty());
    }
}
