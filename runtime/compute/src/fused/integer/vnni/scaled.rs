//! The formats with blocks of 256 numbers, whose scales are themselves a few bits each.

use core::arch::x86_64::{__m512, __m512i};

use super::codes::{Codes, Layout};
use super::instruction::Vnni;
use super::reading::{Rows, join};
use crate::fused::unpack::formats::{Q6K, ScaledNibbles};

/// The scales of a block of Q4_K or Q5_K: a scale and a minimum in f16 for the block, and twelve bytes with 6-bit
/// scales and minima for each of its eight parts.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    scale: __m512,
    /// The minimum of the block; a part's offset is its 6-bit minimum times this, negated.
    least: __m512,
    packed: [__m512i; 3],
}

impl Scales {
    /// Reads the first 16 bytes of block `at` of each of the 16 rows: the block's scale and minimum, converted to f32,
    /// and the 6-bit scales and minima of its parts, still packed.
    #[inline(always)]
    fn of<const SIZE: usize>(simd: Vnni, rows: &Rows<'_, SIZE>, at: usize) -> Self {
        let [both, first, second, third] = simd.words(rows, at, 0);
        let least = simd.avx512f._mm512_srli_epi32::<16>(both);
        Self { scale: simd.widened(both), least: simd.widened(least), packed: [first, second, third] }
    }

    /// Returns the scale and the offset (the minimum with its sign turned) of a part of 32 numbers, 0 to 7, for every
    /// row.
    #[inline(always)]
    fn part(self, simd: Vnni, part: usize) -> (__m512, __m512) {
        let f = simd.avx512f;
        let byte = f._mm512_set1_epi32(8 * (part as i32 % 4));
        let first = f._mm512_srlv_epi32(self.packed[0], byte);
        let second = f._mm512_srlv_epi32(self.packed[1], byte);
        let third = f._mm512_srlv_epi32(self.packed[2], byte);
        let six = f._mm512_set1_epi32(63);
        let (scale, least) = if part < 4 {
            (f._mm512_and_si512(first, six), f._mm512_and_si512(second, six))
        } else {
            // The lower four bits are in the third word; the upper two are those that part − 4 leaves free in its byte.
            let (four, two) = (f._mm512_set1_epi32(15), f._mm512_set1_epi32(0x30));
            let upper = f._mm512_and_si512(f._mm512_srli_epi32::<2>(first), two);
            let upper_least = f._mm512_and_si512(f._mm512_srli_epi32::<2>(second), two);
            let least = f._mm512_and_si512(f._mm512_srli_epi32::<4>(third), four);
            (f._mm512_or_si512(f._mm512_and_si512(third, four), upper), f._mm512_or_si512(least, upper_least))
        };
        let least = f._mm512_mul_ps(self.least, f._mm512_cvtepi32_ps(least));
        let none = f._mm512_setzero_ps();
        (f._mm512_mul_ps(self.scale, f._mm512_cvtepi32_ps(scale)), f._mm512_sub_ps(none, least))
    }

    /// Joins the code bytes of a part of 32 numbers, 0 to 7, with its scale and offset.
    #[inline(always)]
    fn codes(self, simd: Vnni, words: [__m512i; 8], part: usize) -> Codes {
        let (scale, offset) = self.part(simd, part);
        Codes { words, scale: [scale; 2], offset }
    }
}

impl<const SIZE: usize, const HAS_FIFTH_BIT: bool> Layout<SIZE, 2> for ScaledNibbles<HAS_FIFTH_BIT> {
    const ZERO: i32 = 0;
    const OFFSET: bool = true;
    const GROUPS: usize = 4;
    type Head = Scales;

    /// Reads the scales of block `at` of every row.
    #[inline(always)]
    fn head(simd: Vnni, rows: &Rows<'_, SIZE>, at: usize) -> Scales {
        Scales::of(simd, rows, at)
    }

    /// Reads parts 2·`group` and 2·`group` + 1 of block `at` of every row: 32 numbers each.
    #[inline(always)]
    fn parts(simd: Vnni, rows: &Rows<'_, SIZE>, at: usize, head: Scales, group: usize) -> [Codes; 2] {
        let bytes = SIZE - 128 + 32 * group;
        let both = join(simd.words(rows, at, bytes), simd.words(rows, at, bytes + 16));
        let (mut low, mut high) = (simd.low(both), simd.high(both));
        if HAS_FIFTH_BIT {
            let fifth = join(simd.words(rows, at, 16), simd.words(rows, at, 32));
            low = simd.with_bits(low, fifth, 2 * group as i32, 1);
            high = simd.with_bits(high, fifth, 2 * group as i32 + 1, 1);
        }
        [head.codes(simd, low, 2 * group), head.codes(simd, high, 2 * group + 1)]
    }
}

impl Layout<210, 4> for Q6K {
    const ZERO: i32 = 32;
    const SPLIT: bool = true;
    const GROUPS: usize = 2;
    /// The scale of the block, and sixteen bytes, each the scale of 16 numbers.
    type Head = (__m512, [__m512i; 4]);

    /// Reads the scale of block `at` of every row, and the sixteen signed bytes that scale 16 numbers each.
    #[inline(always)]
    fn head(simd: Vnni, rows: &Rows<'_, 210>, at: usize) -> Self::Head {
        (simd.halves(rows, at, 208), simd.words(rows, at, 192))
    }

    /// Reads half `side` of block `at` of every row, 128 numbers as four parts of 32.
    #[inline(always)]
    fn parts(simd: Vnni, rows: &Rows<'_, 210>, at: usize, head: Self::Head, side: usize) -> [Codes; 4] {
        let (low, high) = (64 * side, 128 + 32 * side);
        let first = join(simd.words(rows, at, low), simd.words(rows, at, low + 16));
        let second = join(simd.words(rows, at, low + 32), simd.words(rows, at, low + 48));
        let upper = join(simd.words(rows, at, high), simd.words(rows, at, high + 16));
        let quarters = [simd.low(first), simd.low(second), simd.high(first), simd.high(second)];
        let mut codes = [simd.plain(first, head.0); 4];
        for quarter in 0..4 {
            let words = simd.with_bits(quarters[quarter], upper, 2 * quarter as i32, 3);
            let scale =
                [scale_of_16(simd, head, 8 * side + 2 * quarter), scale_of_16(simd, head, 8 * side + 2 * quarter + 1)];
            codes[quarter] = Codes { words, scale, ..codes[quarter] };
        }
        codes
    }
}

/// Returns the scale of 16 numbers of Q6_K for every row: the scale of the block times the signed byte with index
/// `byte`, 0 to 15, of the block's sixteen scale bytes.
#[inline(always)]
fn scale_of_16(simd: Vnni, (scale, bytes): (__m512, [__m512i; 4]), byte: usize) -> __m512 {
    let f = simd.avx512f;
    let place = f._mm512_set1_epi32(24 - 8 * (byte as i32 % 4));
    let small = f._mm512_srai_epi32::<24>(f._mm512_sllv_epi32(bytes[byte / 4], place));
    f._mm512_mul_ps(scale, f._mm512_cvtepi32_ps(small))
}
