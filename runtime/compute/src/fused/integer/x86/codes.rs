//! Reads the codes of 16 rows of a quantized format, one row in each lane of a vector; here the formats with blocks of
//! 32 numbers.
//!
//! A number is `scale · (code − zero) + offset`. Block layouts are those of the GGUF specification, as in
//! [`unpack`](crate::fused::unpack), which has them number by number.

use super::lanes::Lanes;
use super::reading::{Rows, eight_words, halves, high, join, low, word, words};
use crate::fused::unpack::formats::{Nibbles, Q8Zero};

/// The codes of 32 numbers of each of 16 rows, one row in each lane, with their scales and offsets.
pub(super) struct Codes<L: Lanes> {
    /// Word i has the codes 4·i to 4·i + 3 of every row, each an unsigned byte.
    pub(super) words: [L::Words; 8],
    /// The scales of the first and the second half of the numbers, which differ where a layout is [`Layout::SPLIT`].
    pub(super) scale: [L::Floats; 2],
    /// The number added to all of the numbers; 0 unless the layout has an [`Layout::OFFSET`].
    pub(super) offset: L::Floats,
}

impl<L: Lanes> Codes<L> {
    /// Makes codes whose halves share one scale and whose offset is 0.
    #[inline(always)]
    fn plain(lanes: L, words: [L::Words; 8], scale: L::Floats) -> Self {
        Self { words, scale: [scale; 2], offset: lanes.splat_float(0.0) }
    }
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
    type Head<L: Lanes>: Copy;

    /// Reads what all parts of block `at` share, for each of the 16 rows.
    fn head<L: Lanes>(lanes: L, rows: &Rows<'_, SIZE>, at: usize) -> Self::Head<L>;

    /// Reads the codes, scales and offsets of the `PER` parts of a group in block `at`, for each of the 16 rows.
    fn parts<L: Lanes>(
        lanes: L,
        rows: &Rows<'_, SIZE>,
        at: usize,
        head: Self::Head<L>,
        group: usize,
    ) -> [Codes<L>; PER];
}

impl<const SIZE: usize, const HAS_MINIMUM: bool, const HAS_FIFTH_BIT: bool> Layout<SIZE, 1>
    for Nibbles<HAS_MINIMUM, HAS_FIFTH_BIT>
{
    const ZERO: i32 = Self::ZERO;
    const OFFSET: bool = HAS_MINIMUM;
    type Head<L: Lanes> = ();

    /// Reads nothing: a block has only one part.
    #[inline(always)]
    fn head<L: Lanes>(_: L, _: &Rows<'_, SIZE>, _: usize) {}

    /// Reads the 32 unsigned codes of block `at` of each row, with the block's scale. The offset is the block's minimum
    /// if `HAS_MINIMUM`, else 0; the code of zero is not subtracted. A block has no shared head and one group, so the
    /// last two arguments are unused.
    #[inline(always)]
    fn parts<L: Lanes>(lanes: L, rows: &Rows<'_, SIZE>, at: usize, (): (), _: usize) -> [Codes<L>; 1] {
        let bytes = words(lanes, rows, at, SIZE - 16);
        // The lower halves of all bytes are the first 16 codes, the upper halves the others.
        let mut whole = join(low(lanes, bytes), high(lanes, bytes));
        if HAS_FIFTH_BIT {
            let bits = word(lanes, rows, at, Self::BITS);
            for (nibble, codes) in whole.iter_mut().enumerate() {
                *codes = lanes.add_fifth_bits(*codes, bits, nibble);
            }
        }
        let mut codes = Codes::plain(lanes, whole, halves(lanes, rows, at, 0));
        if HAS_MINIMUM {
            codes.offset = halves(lanes, rows, at, 2);
        }
        [codes]
    }
}

impl Layout<34, 1> for Q8Zero {
    const ZERO: i32 = 128;
    type Head<L: Lanes> = ();

    /// Reads nothing: a block has only one part.
    #[inline(always)]
    fn head<L: Lanes>(_: L, _: &Rows<'_, 34>, _: usize) {}

    /// Reads the 32 signed bytes of block `at` of each row as unsigned codes, with 128 for zero, and its scale.
    #[inline(always)]
    fn parts<L: Lanes>(lanes: L, rows: &Rows<'_, 34>, at: usize, (): (), _: usize) -> [Codes<L>; 1] {
        let sign = lanes.splat(0x8080_8080_u32 as i32);
        let mut whole = eight_words(lanes, rows, at, 2);
        for codes in &mut whole {
            *codes = lanes.xor(*codes, sign);
        }
        [Codes::plain(lanes, whole, halves(lanes, rows, at, 0))]
    }
}
