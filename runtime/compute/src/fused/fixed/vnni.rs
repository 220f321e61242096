//! The two instructions that nobody wraps: dot products of bytes, and fetching ahead.

#![expect(unsafe_code, reason = "intrinsics of the processor whose presence a type proves")]

use core::arch::x86_64::{__m512i, _MM_HINT_T0, _mm_prefetch, _mm512_dpbusd_epi32};

/// Bytes of a line of the cache.
const LINE: usize = 64;

pulp::simd_type!({
    /// Proof that this processor has AVX-512 with dot products of bytes (VNNI).
    pub(super) struct Vnni {
        pub(super) avx512f: f!("avx512f"),
        pub(super) avx512bw: f!("avx512bw"),
        pub(super) avx512vnni: f!("avx512vnni"),
    }
});

impl Vnni {
    /// Adds to each of 16 sums the products of four bytes without sign and four with one.
    #[inline(always)]
    pub(super) fn dot(self, sums: __m512i, codes: __m512i, numbers: __m512i) -> __m512i {
        // SAFETY: a `Vnni` exists only on a processor that has the instruction.
        unsafe { _mm512_dpbusd_epi32(sums, codes, numbers) }
    }

    /// Asks for bytes that will be read soon. Their lines come while this goes on.
    #[inline(always)]
    pub(super) fn fetch(self, bytes: &[u8]) {
        for line in bytes.chunks(LINE) {
            // SAFETY: a hint reads nothing that the program could see and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
        }
    }
}
