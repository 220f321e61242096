//! 16 lanes in one vector of 512 bits, with the dot product of bytes (`vpdpbusd`), which `pulp` does not wrap.

#![expect(unsafe_code, reason = "an instruction whose presence a type proves")]

use core::arch::x86_64::{__m128i, __m512, __m512i, _mm512_dpbusd_epi32};

use pulp::NullaryFnOnce;

use super::lanes::{Lanes, ROWS};
use super::numbers::{PART, Planes};

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
    fn dot_bytes(self, sums: __m512i, codes: __m512i, numbers: __m512i) -> __m512i {
        // SAFETY: a `Vnni` exists only on a processor that has the instruction.
        unsafe { _mm512_dpbusd_epi32(sums, codes, numbers) }
    }
}

impl Lanes for Vnni {
    type Words = __m512i;
    type Floats = __m512;

    #[inline(always)]
    fn vectorize<W: NullaryFnOnce>(self, work: W) -> W::Output {
        Vnni::vectorize(self, work)
    }

    #[inline(always)]
    fn splat(self, word: i32) -> __m512i {
        self.avx512f._mm512_set1_epi32(word)
    }

    #[inline(always)]
    fn splat_float(self, number: f32) -> __m512 {
        self.avx512f._mm512_set1_ps(number)
    }

    #[inline(always)]
    fn words(self, rows: [&[u8; 16]; ROWS]) -> [__m512i; 4] {
        let f = self.avx512f;
        let row = |at: usize| -> __m128i { bytemuck::cast(*rows[at]) };
        // Every fourth row beside each other, so that turning 4 × 4 words inside the quarters leaves row i in lane i.
        let mut fourths = [f._mm512_setzero_si512(); 4];
        for (first, fourth) in fourths.iter_mut().enumerate() {
            let joined = f._mm512_castsi128_si512(row(first));
            let joined = f._mm512_inserti32x4::<1>(joined, row(first + 4));
            let joined = f._mm512_inserti32x4::<2>(joined, row(first + 8));
            *fourth = f._mm512_inserti32x4::<3>(joined, row(first + 12));
        }
        let [a, b, c, d] = fourths;
        let (low, high) = (f._mm512_unpacklo_epi32(a, b), f._mm512_unpackhi_epi32(a, b));
        let (low_next, high_next) = (f._mm512_unpacklo_epi32(c, d), f._mm512_unpackhi_epi32(c, d));
        [
            f._mm512_unpacklo_epi64(low, low_next),
            f._mm512_unpackhi_epi64(low, low_next),
            f._mm512_unpacklo_epi64(high, high_next),
            f._mm512_unpackhi_epi64(high, high_next),
        ]
    }

    #[inline(always)]
    fn word(self, rows: [[u8; 4]; ROWS]) -> __m512i {
        bytemuck::cast(rows)
    }

    #[inline(always)]
    fn halves(self, rows: [[u8; 2]; ROWS]) -> __m512 {
        self.avx512f._mm512_cvtph_ps(bytemuck::cast(rows))
    }

    #[inline(always)]
    fn lower_half(self, words: __m512i) -> __m512 {
        self.avx512f._mm512_cvtph_ps(self.avx512f._mm512_cvtepi32_epi16(words))
    }

    #[inline(always)]
    fn numbers(self, floats: __m512) -> [f32; ROWS] {
        bytemuck::cast(floats)
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        self.avx512f._mm512_and_si512(a, b)
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        self.avx512f._mm512_or_si512(a, b)
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        self.avx512f._mm512_xor_si512(a, b)
    }

    #[inline(always)]
    fn shift_left(self, words: __m512i, by: usize) -> __m512i {
        self.avx512f._mm512_sllv_epi32(words, self.splat(by as i32))
    }

    #[inline(always)]
    fn shift_right(self, words: __m512i, by: usize) -> __m512i {
        self.avx512f._mm512_srlv_epi32(words, self.splat(by as i32))
    }

    #[inline(always)]
    fn signed_byte(self, words: __m512i, byte: usize) -> __m512 {
        let f = self.avx512f;
        f._mm512_cvtepi32_ps(f._mm512_srai_epi32::<24>(self.shift_left(words, 24 - 8 * byte)))
    }

    #[inline(always)]
    fn add_fifth_bits(self, words: __m512i, bits: __m512i, nibble: usize) -> __m512i {
        let (f, bw) = (self.avx512f, self.avx512bw);
        let places = self.splat([0x0804_0201, 0x8040_2010_u32 as i32][nibble % 2]);
        // Every byte of a lane gets the byte that holds its bit.
        let spread = f._mm512_set4_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0);
        let from = bw._mm512_add_epi8(spread, f._mm512_set1_epi8(nibble as i8 / 2));
        let set = bw._mm512_test_epi8_mask(bw._mm512_shuffle_epi8(bits, from), places);
        bw._mm512_mask_add_epi8(words, set, words, f._mm512_set1_epi8(16))
    }

    #[inline(always)]
    fn to_floats(self, words: __m512i) -> __m512 {
        self.avx512f._mm512_cvtepi32_ps(words)
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        self.avx512f._mm512_mul_ps(a, b)
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.avx512f._mm512_fmadd_ps(a, b, c)
    }

    /// Writes each integer as `256 · high + low` of two signed bytes: a plane of the high bytes, then one of the low.
    #[inline(always)]
    fn planes(integers: &[i32; PART]) -> Planes {
        let (mut high, mut low) = ([0u8; PART], [0u8; PART]);
        for at in 0..PART {
            high[at] = ((integers[at] + 128) >> 8) as u8;
            low[at] = integers[at] as u8;
        }
        Planes([bytemuck::cast(high), bytemuck::cast(low)])
    }

    #[inline(always)]
    fn dot(self, [high, low]: [__m512i; 2], codes: __m512i, word: [i32; 2]) -> [__m512i; 2] {
        [self.dot_bytes(high, codes, self.splat(word[0])), self.dot_bytes(low, codes, self.splat(word[1]))]
    }

    #[inline(always)]
    fn total(self, [high, low]: [__m512i; 2]) -> __m512i {
        self.avx512f._mm512_add_epi32(self.avx512f._mm512_slli_epi32::<8>(high), low)
    }
}
