//! The dot product of bytes (`vpdpbusd`), which `pulp` does not wrap.

#![expect(unsafe_code, reason = "an instruction whose presence a type proves")]

use core::arch::x86_64::{__m512i, _mm512_dpbusd_epi32};

pulp::simd_type!({
    /// Proof that this processor has AVX-512 with dot products of bytes (VNNI).
    pub(super) struct Vnni {
        pub(super) avx512f: f!("avx512f"),
        pub(super) avx512bw: f!("avx512bw"),
        pub(super) avx512vnni: f!("avx512vnni"),
    }
});

impl Vnni {
    /// Adds to each of the 16 sums the dot product of the four unsigned bytes in its lane of `codes` with the four
    /// signed bytes in its lane of `numbers`.
    #[inline(always)]
    pub(super) fn dot(self, sums: __m512i, codes: __m512i, numbers: __m512i) -> __m512i {
        // SAFETY: a `Vnni` exists only on a processor that has the instruction.
        unsafe { _mm512_dpbusd_epi32(sums, codes, numbers) }
    }
}
