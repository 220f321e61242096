//! The formats with blocks of 256 numbers, whose scales are themselves a few bits each.

use super::codes::{Codes, Layout};
use super::lanes::Lanes;
use super::reading::{Rows, eight_words, halves, high, low, with_bits, words};
use crate::fused::unpack::formats::{Q6K, ScaledNibbles};

/// The scales of a block of Q4_K or Q5_K: a scale and a minimum in f16 for the block, and twelve bytes with 6-bit
/// scales and minima for each of its eight parts.
#[derive(Clone, Copy)]
pub(super) struct Scales<L: Lanes> {
    scale: L::Floats,
    /// The minimum of the block with its sign turned; a part's offset is its 6-bit minimum times this.
    offset: L::Floats,
    packed: [L::Words; 3],
}

impl<L: Lanes> Scales<L> {
    /// Reads the first 16 bytes of block `at` of each of the 16 rows: the block's scale and minimum, converted to f32,
    /// and the 6-bit scales and minima of its parts, still packed.
    #[inline(always)]
    fn of<const SIZE: usize>(lanes: L, rows: &Rows<'_, SIZE>, at: usize) -> Self {
        let [both, first, second, third] = words(lanes, rows, at, 0);
        let least = lanes.lower_half(lanes.shift_right(both, 16));
        let offset = lanes.mul(least, lanes.splat_float(-1.0));
        Self { scale: lanes.lower_half(both), offset, packed: [first, second, third] }
    }

    /// Returns the scale and the offset of a part of 32 numbers, 0 to 7, for every row.
    #[inline(always)]
    fn part(self, lanes: L, part: usize) -> (L::Floats, L::Floats) {
        let byte = 8 * (part % 4);
        let [mut first, mut second, mut third] = self.packed;
        for packed in [&mut first, &mut second, &mut third] {
            *packed = lanes.shift_right(*packed, byte);
        }
        let (scale, least) = if part < 4 {
            let six = lanes.splat(63);
            (lanes.and(first, six), lanes.and(second, six))
        } else {
            // The lower four bits are in the third word; the upper two are those that part − 4 leaves free in its byte.
            let (four, two) = (lanes.splat(15), lanes.splat(0x30));
            let upper = lanes.and(lanes.shift_right(first, 2), two);
            let upper_least = lanes.and(lanes.shift_right(second, 2), two);
            let least = lanes.and(lanes.shift_right(third, 4), four);
            (lanes.or(lanes.and(third, four), upper), lanes.or(least, upper_least))
        };
        (lanes.mul(self.scale, lanes.to_floats(scale)), lanes.mul(self.offset, lanes.to_floats(least)))
    }

    /// Joins the code bytes of a part of 32 numbers, 0 to 7, with its scale and offset.
    #[inline(always)]
    fn codes(self, lanes: L, words: [L::Words; 8], part: usize) -> Codes<L> {
        let (scale, offset) = self.part(lanes, part);
        Codes { words, scale: [scale; 2], offset }
    }
}

impl<const SIZE: usize, const HAS_FIFTH_BIT: bool> Layout<SIZE, 2> for ScaledNibbles<HAS_FIFTH_BIT> {
    const ZERO: i32 = 0;
    const OFFSET: bool = true;
    const GROUPS: usize = 4;
    type Head<L: Lanes> = Scales<L>;

    /// Reads the scales of block `at` of every row.
    #[inline(always)]
    fn head<L: Lanes>(lanes: L, rows: &Rows<'_, SIZE>, at: usize) -> Scales<L> {
        Scales::of(lanes, rows, at)
    }

    /// Reads parts 2·`group` and 2·`group` + 1 of block `at` of every row: 32 numbers each.
    #[inline(always)]
    fn parts<L: Lanes>(lanes: L, rows: &Rows<'_, SIZE>, at: usize, head: Scales<L>, group: usize) -> [Codes<L>; 2] {
        let bytes = SIZE - 128 + 32 * group;
        let both = eight_words(lanes, rows, at, bytes);
        let (mut first, mut second) = (low(lanes, both), high(lanes, both));
        if HAS_FIFTH_BIT {
            let fifth = eight_words(lanes, rows, at, 16);
            first = with_bits(lanes, first, fifth, 2 * group, 1);
            second = with_bits(lanes, second, fifth, 2 * group + 1, 1);
        }
        [head.codes(lanes, first, 2 * group), head.codes(lanes, second, 2 * group + 1)]
    }
}

impl Layout<210, 4> for Q6K {
    const ZERO: i32 = 32;
    const SPLIT: bool = true;
    const GROUPS: usize = 2;
    /// The scale of the block, and sixteen bytes, each the scale of 16 numbers.
    type Head<L: Lanes> = (L::Floats, [L::Words; 4]);

    /// Reads the scale of block `at` of every row, and the sixteen signed bytes that scale 16 numbers each.
    #[inline(always)]
    fn head<L: Lanes>(lanes: L, rows: &Rows<'_, 210>, at: usize) -> Self::Head<L> {
        (halves(lanes, rows, at, 208), words(lanes, rows, at, 192))
    }

    /// Reads half `side` of block `at` of every row, 128 numbers as four parts of 32.
    #[inline(always)]
    fn parts<L: Lanes>(lanes: L, rows: &Rows<'_, 210>, at: usize, head: Self::Head<L>, side: usize) -> [Codes<L>; 4] {
        let first = eight_words(lanes, rows, at, 64 * side);
        let second = eight_words(lanes, rows, at, 64 * side + 32);
        let upper = eight_words(lanes, rows, at, 128 + 32 * side);
        [
            quarter(lanes, low(lanes, first), upper, head, (side, 0)),
            quarter(lanes, low(lanes, second), upper, head, (side, 1)),
            quarter(lanes, high(lanes, first), upper, head, (side, 2)),
            quarter(lanes, high(lanes, second), upper, head, (side, 3)),
        ]
    }
}

/// Joins 32 codes of a quarter, with index 0 to 3, of half `side` of a block of Q6_K: `words` has their lower four bits,
/// `upper` the upper two of all quarters. The scale of 16 numbers is that of the block times one of its sixteen signed
/// bytes.
#[inline(always)]
fn quarter<L: Lanes>(
    lanes: L,
    words: [L::Words; 8],
    upper: [L::Words; 8],
    (scale, scales): (L::Floats, [L::Words; 4]),
    (side, quarter): (usize, usize),
) -> Codes<L> {
    let word = scales[2 * side + quarter / 2];
    let (first, second) = (2 * (quarter % 2), 2 * (quarter % 2) + 1);
    let scale = [lanes.mul(scale, lanes.signed_byte(word, first)), lanes.mul(scale, lanes.signed_byte(word, second))];
    Codes { words: with_bits(lanes, words, upper, 2 * quarter, 3), scale, offset: lanes.splat_float(0.0) }
}
