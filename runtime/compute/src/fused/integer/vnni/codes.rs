//! Reads the codes of 16 rows of a quantized format, one row in each lane of a vector; here the formats with blocks of
//! 32 numbers.
//!
//! A number is `scale · (code − zero) + offset`. Block layouts are those of the GGUF specification, as in
//! [`unpack`](crate::fused::unpack), which has them number by number.

use core::arch::x86_64::{__m512, __m512i};

use super::instruction::Vnni;
use super::reading::{Rows, join};
use crate::fused::unpack::formats::{Nibbles, Q8Zero};

/// The codes of 32 numbers of each of 16 rows, one row in each lane, with their scales and offsets.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    /// Vector i has the codes 4·i to 4·i + 3 of every row, each an unsigned byte.
    pub(super) words: [__m512i; 8],
    /// The scales of the first and the second half of the numbers, which differ where a layout is [`Layout::SPLIT`].
    pub(super) scale: [__m512; 2],
    /// The number added to all of the numbers; 0 unless the layout has an [`Layout::OFFSET`].
    pub(super) offset: __m512,
}

/// How a format lays numbers in blocks of `SIZE` bytes; `PER` parts of 32 numbers are read together.
pub(super) trait Layout<const SIZE: usize, const PER: usize> {
    /// The code of the number 0.
    const ZERO: i32;
    /// Whether each half of a part has a scale of its own.
    const SPLIT: bool = false;
    /// Whether numbers have an offset.
    const OFFSET: bool = false;
    /// Groups of `PER` parts in a block.
    const GROUPS: usize = 1;
    /// The scales that all parts of a block share.
    type Head: Copy;

    /// Reads what all parts of block `at` share, for each of the 16 rows.
    fn head(simd: Vnni, rows: &Rows<'_, SIZE>, at: usize) -> Self::Head;

    /// Reads the codes, scales and offsets of the `PER` parts of a group in block `at`, for each of the 16 rows.
    fn parts(simd: Vnni, rows: &Rows<'_, SIZE>, at: usize, head: Self::Head, group: usize) -> [Codes; PER];
}

impl<const SIZE: usize, const HAS_MINIMUM: bool, const HAS_FIFTH_BIT: bool> Layout<SIZE, 1>
    for Nibbles<HAS_MINIMUM, HAS_FIFTH_BIT>
{
    const ZERO: i32 = Self::ZERO;
    const OFFSET: bool = HAS_MINIMUM;
    type Head = ();

    /// Reads nothing: a block has only one part.
    #[inline(always)]
    fn head(_: Vnni, _: &Rows<'_, SIZE>, _: usize) {}

    /// Reads the 32 unsigned codes of block `at` of each row, with the block's scale. The offset is the block's minimum
    /// if `HAS_MINIMUM`, else 0; the code of zero is not subtracted. A block has no shared head and one group, so the
    /// last two arguments are unused.
    #[inline(always)]
    fn parts(simd: Vnni, rows: &Rows<'_, SIZE>, at: usize, (): (), _: usize) -> [Codes; 1] {
        let mut words = simd.nibbles(simd.words(rows, at, SIZE - 16));
        if HAS_FIFTH_BIT {
            words = simd.with_fifth(words, simd.word(rows, at, Self::BITS));
        }
        let mut codes = simd.plain(words, simd.halves(rows, at, 0));
        if HAS_MINIMUM {
            codes.offset = simd.halves(rows, at, 2);
        }
        [codes]
    }
}

impl Layout<34, 1> for Q8Zero {
    const ZERO: i32 = 128;
    type Head = ();

    /// Reads nothing: a block has only one part.
    #[inline(always)]
    fn head(_: Vnni, _: &Rows<'_, 34>, _: usize) {}

    /// Reads the 32 signed bytes of block `at` of each row as unsigned codes, with 128 for zero, and its scale.
    #[inline(always)]
    fn parts(simd: Vnni, rows: &Rows<'_, 34>, at: usize, (): (), _: usize) -> [Codes; 1] {
        let f = simd.avx512f;
        let sign = f._mm512_set1_epi8(i8::MIN);
        let mut words = join(simd.words(rows, at, 2), simd.words(rows, at, 18));
        for words in &mut words {
            *words = f._mm512_xor_si512(*words, sign);
        }
        [simd.plain(words, simd.halves(rows, at, 0))]
    }
}

impl Vnni {
    /// Makes codes whose halves share one scale and whose offset is 0.
    #[inline(always)]
    pub(super) fn plain(self, words: [__m512i; 8], scale: __m512) -> Codes {
        Codes { words, scale: [scale; 2], offset: self.avx512f._mm512_setzero_ps() }
    }
}
