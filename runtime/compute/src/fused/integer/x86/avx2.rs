//! 16 lanes in two vectors of 256 bits, with the dot product of pairs of 16-bit integers (`vpmaddwd`). Conversion
//! from f16 (`vcvtph2ps`) is what `pulp` does not wrap.

#![expect(unsafe_code, reason = "an instruction whose presence a type proves")]

use core::arch::x86_64::{__m128i, __m256, __m256i, _mm256_cvtph_ps};

use pulp::NullaryFnOnce;

use super::lanes::{Lanes, ROWS};
use super::numbers::{PART, Planes};

pulp::simd_type!({
    /// Proof that this processor has AVX2, fused multiply-add and conversions from f16.
    pub(super) struct Avx2 {
        pub(super) avx: f!("avx"),
        pub(super) avx2: f!("avx2"),
        pub(super) fma: f!("fma"),
        pub(super) f16c: f!("f16c"),
    }
});

impl Avx2 {
    /// Puts 16 bytes of each of eight rows, from row `start` on, into four words: row `start` + i in lane i of each.
    #[inline(always)]
    fn words_of_eight(self, rows: [&[u8; 16]; ROWS], start: usize) -> [__m256i; 4] {
        let (avx, v) = (self.avx, self.avx2);
        let row = |at: usize| -> __m128i { bytemuck::cast(*rows[start + at]) };
        // Every fourth row beside each other, so that turning 4 × 4 words inside the halves leaves row i in lane i.
        let mut fourths = [avx._mm256_setzero_si256(); 4];
        for (first, fourth) in fourths.iter_mut().enumerate() {
            *fourth = v._mm256_inserti128_si256::<1>(avx._mm256_castsi128_si256(row(first)), row(first + 4));
        }
        let [a, b, c, d] = fourths;
        let (low, high) = (v._mm256_unpacklo_epi32(a, b), v._mm256_unpackhi_epi32(a, b));
        let (low_next, high_next) = (v._mm256_unpacklo_epi32(c, d), v._mm256_unpackhi_epi32(c, d));
        [
            v._mm256_unpacklo_epi64(low, low_next),
            v._mm256_unpackhi_epi64(low, low_next),
            v._mm256_unpacklo_epi64(high, high_next),
            v._mm256_unpackhi_epi64(high, high_next),
        ]
    }

    /// Adds 16 to the bytes of eight lanes whose bits are set, as [`Lanes::add_fifth_bits`] does.
    #[inline(always)]
    fn add_fifth_bits_of_eight(self, words: __m256i, bits: __m256i, nibble: usize) -> __m256i {
        let (avx, v) = (self.avx, self.avx2);
        let places = avx._mm256_set1_epi32([0x0804_0201, 0x8040_2010_u32 as i32][nibble % 2]);
        // Every byte of a lane gets the byte that holds its bit.
        let (a, b, c, d) = (0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c);
        let spread = avx._mm256_setr_epi32(a, b, c, d, a, b, c, d);
        let from = v._mm256_add_epi8(spread, avx._mm256_set1_epi8(nibble as i8 / 2));
        let bits = v._mm256_and_si256(v._mm256_shuffle_epi8(bits, from), places);
        let fifth = v._mm256_and_si256(v._mm256_cmpeq_epi8(bits, places), avx._mm256_set1_epi8(16));
        v._mm256_add_epi8(words, fifth)
    }
}

impl Lanes for Avx2 {
    type Words = [__m256i; 2];
    type Floats = [__m256; 2];

    #[inline(always)]
    fn vectorize<W: NullaryFnOnce>(self, work: W) -> W::Output {
        Avx2::vectorize(self, work)
    }

    #[inline(always)]
    fn splat(self, word: i32) -> [__m256i; 2] {
        [self.avx._mm256_set1_epi32(word); 2]
    }

    #[inline(always)]
    fn splat_float(self, number: f32) -> [__m256; 2] {
        [self.avx._mm256_set1_ps(number); 2]
    }

    #[inline(always)]
    fn words(self, rows: [&[u8; 16]; ROWS]) -> [[__m256i; 2]; 4] {
        let ([a, b, c, d], [e, f, g, h]) = (self.words_of_eight(rows, 0), self.words_of_eight(rows, 8));
        [[a, e], [b, f], [c, g], [d, h]]
    }

    #[inline(always)]
    fn word(self, rows: [[u8; 4]; ROWS]) -> [__m256i; 2] {
        bytemuck::cast(rows)
    }

    #[inline(always)]
    fn halves(self, rows: [[u8; 2]; ROWS]) -> [__m256; 2] {
        let [first, second]: [__m128i; 2] = bytemuck::cast(rows);
        // SAFETY: an `Avx2` exists only on a processor that has the instruction.
        unsafe { [_mm256_cvtph_ps(first), _mm256_cvtph_ps(second)] }
    }

    #[inline(always)]
    fn lower_half(self, words: [__m256i; 2]) -> [__m256; 2] {
        let [first, second] = self.and(words, self.splat(0xffff));
        // Packs the quarters of both vectors in turns, so the middle two change places.
        let packed = self.avx2._mm256_packus_epi32(first, second);
        self.halves(bytemuck::cast(self.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(packed)))
    }

    #[inline(always)]
    fn numbers(self, floats: [__m256; 2]) -> [f32; ROWS] {
        bytemuck::cast(floats)
    }

    #[inline(always)]
    fn and(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        [self.avx2._mm256_and_si256(a[0], b[0]), self.avx2._mm256_and_si256(a[1], b[1])]
    }

    #[inline(always)]
    fn or(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        [self.avx2._mm256_or_si256(a[0], b[0]), self.avx2._mm256_or_si256(a[1], b[1])]
    }

    #[inline(always)]
    fn xor(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        [self.avx2._mm256_xor_si256(a[0], b[0]), self.avx2._mm256_xor_si256(a[1], b[1])]
    }

    #[inline(always)]
    fn shift_left(self, words: [__m256i; 2], by: usize) -> [__m256i; 2] {
        let [by, _] = self.splat(by as i32);
        [self.avx2._mm256_sllv_epi32(words[0], by), self.avx2._mm256_sllv_epi32(words[1], by)]
    }

    #[inline(always)]
    fn shift_right(self, words: [__m256i; 2], by: usize) -> [__m256i; 2] {
        let [by, _] = self.splat(by as i32);
        [self.avx2._mm256_srlv_epi32(words[0], by), self.avx2._mm256_srlv_epi32(words[1], by)]
    }

    #[inline(always)]
    fn signed_byte(self, words: [__m256i; 2], byte: usize) -> [__m256; 2] {
        let [first, second] = self.shift_left(words, 24 - 8 * byte);
        self.to_floats([self.avx2._mm256_srai_epi32::<24>(first), self.avx2._mm256_srai_epi32::<24>(second)])
    }

    #[inline(always)]
    fn add_fifth_bits(self, words: [__m256i; 2], bits: [__m256i; 2], nibble: usize) -> [__m256i; 2] {
        [
            self.add_fifth_bits_of_eight(words[0], bits[0], nibble),
            self.add_fifth_bits_of_eight(words[1], bits[1], nibble),
        ]
    }

    #[inline(always)]
    fn to_floats(self, words: [__m256i; 2]) -> [__m256; 2] {
        [self.avx._mm256_cvtepi32_ps(words[0]), self.avx._mm256_cvtepi32_ps(words[1])]
    }

    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        [self.avx._mm256_mul_ps(a[0], b[0]), self.avx._mm256_mul_ps(a[1], b[1])]
    }

    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        [self.fma._mm256_fmadd_ps(a[0], b[0], c[0]), self.fma._mm256_fmadd_ps(a[1], b[1], c[1])]
    }

    /// Pairs every integer with the second after it, 16 bits each: a plane of the pairs whose index is even, then one
    /// of those whose index is odd.
    #[inline(always)]
    fn planes(integers: &[i32; PART]) -> Planes {
        let mut planes = [[0; PART / 4]; 2];
        for (word, four) in integers.as_chunks::<4>().0.iter().enumerate() {
            planes[0][word] = four[0] & 0xffff | four[2] << 16;
            planes[1][word] = four[1] & 0xffff | four[3] << 16;
        }
        Planes(planes)
    }

    #[inline(always)]
    fn dot(self, [even, odd]: [[__m256i; 2]; 2], codes: [__m256i; 2], word: [i32; 2]) -> [[__m256i; 2]; 2] {
        let v = self.avx2;
        let (bytes, [first, _], [second, _]) = (self.splat(0x00ff_00ff), self.splat(word[0]), self.splat(word[1]));
        let of_even = self.and(codes, bytes);
        let of_odd = [v._mm256_srli_epi16::<8>(codes[0]), v._mm256_srli_epi16::<8>(codes[1])];
        [
            [
                v._mm256_add_epi32(even[0], v._mm256_madd_epi16(of_even[0], first)),
                v._mm256_add_epi32(even[1], v._mm256_madd_epi16(of_even[1], first)),
            ],
            [
                v._mm256_add_epi32(odd[0], v._mm256_madd_epi16(of_odd[0], second)),
                v._mm256_add_epi32(odd[1], v._mm256_madd_epi16(of_odd[1], second)),
            ],
        ]
    }

    #[inline(always)]
    fn total(self, [even, odd]: [[__m256i; 2]; 2]) -> [__m256i; 2] {
        [self.avx2._mm256_add_epi32(even[0], odd[0]), self.avx2._mm256_add_epi32(even[1], odd[1])]
    }
}
