//! The sums of 16 rows of a quantized weight with some tokens.

use std::array::{from_mut, from_ref};
use std::marker::PhantomData;
use std::ops::Range;

use pulp::NullaryFnOnce;

use super::codes::{Codes, Layout};
use super::lanes::{Lanes, ROWS};
use super::numbers::{Measure, Numbers, PART, Planes, TOKENS};
use super::reading::Rows;
use crate::fused::prefetch::{LINE, nth_chunk, prefetch};

/// Tokens whose sums grow side by side, so that one need not wait for the other.
const PAIR: usize = 2;
/// 16 rows of at most so many bytes are prefetched whole while the 16 before them are read.
const SHORT: usize = 24 * 1024;
/// How many bytes of a long row are prefetched before they are read.
const AHEAD: usize = 512;

/// 16 rows of weights in layout `F`, and the tokens that they are multiplied with.
pub(super) struct RowPanel<'a, L, F, const SIZE: usize, const PER: usize> {
    pub(super) lanes: L,
    pub(super) rows: Rows<'a, SIZE>,
    /// The bytes of the weight from the first of the rows on; empty if the rows are in the cache already.
    pub(super) bytes: &'a [u8],
    pub(super) numbers: &'a Numbers,
    /// `found[token][row]`.
    pub(super) found: &'a mut [[f32; ROWS]; TOKENS],
    pub(super) layout: PhantomData<F>,
}

impl<L: Lanes, F: Layout<SIZE, PER>, const SIZE: usize, const PER: usize> NullaryFnOnce
    for RowPanel<'_, L, F, SIZE, PER>
{
    type Output = ();

    /// Writes to `found` the dot products of 16 rows of a quantized weight with every token, whose numbers were rounded
    /// to integers; prefetches what is read later. Goes through the parts of 32 numbers in order: sums integers
    /// exactly within a part (or half of one, if each half has its own scale), then adds the scaled result in f32. So
    /// the bits of a sum do not depend on which tokens are beside it, nor on the kind of processor.
    #[inline(always)]
    fn call(self) {
        let Self { lanes, rows, bytes, numbers, found, .. } = self;
        let blocks = rows[0].len();
        let mut sums = [lanes.splat_float(0.0); TOKENS];
        let sums = &mut sums[..numbers.tokens];
        for at in 0..blocks {
            let head = F::head(lanes, &rows, at);
            for group in 0..F::GROUPS {
                let parts = F::parts(lanes, &rows, at, head, group);
                for (part, codes) in parts.iter().enumerate() {
                    let (step, parts) = ((at * F::GROUPS + group) * PER + part, F::GROUPS * PER);
                    prefetch_later::<SIZE>(bytes, blocks, step, parts);
                    let start = step * numbers.tokens;
                    let range = start..start + numbers.tokens;
                    let (planes, measures) = (&numbers.planes[range.clone()], &numbers.measures[range]);
                    accumulate_tokens::<L, F, SIZE, PER>(lanes, codes, planes, measures, sums);
                }
            }
        }
        for (found, sum) in found.iter_mut().zip(sums) {
            *found = lanes.numbers(*sum);
        }
    }
}

/// Prefetches some of the bytes that are read later, at part `step` of 16 rows of `blocks` blocks with `parts` parts
/// each. A processor can have only a few loads in flight and waits to start more, so each part prefetches a little.
/// `bytes` is the weight from the first of these rows on.
///
/// Of short rows, prefetches the next 16 rows, in the order of their bytes. 16 long rows would leave the innermost cache
/// before they are read, so of these it prefetches the bytes [`AHEAD`] of the present ones in each row.
#[inline(always)]
fn prefetch_later<const SIZE: usize>(bytes: &[u8], blocks: usize, step: usize, parts: usize) {
    let row = blocks * SIZE;
    let panel = ROWS * row;
    if panel <= SHORT {
        let end = bytes.len().min(2 * panel);
        return prefetch(nth_chunk(&bytes[end.min(panel)..end], step, blocks * parts));
    }
    let (block, part) = (step / parts, step % parts);
    // Blocks of less than a line are asked for together.
    if block % (LINE / SIZE).max(1) == 0 {
        let later = block * SIZE + AHEAD;
        let from = if later < row { later } else { panel + later - row };
        for lane in part * ROWS / parts..(part + 1) * ROWS / parts {
            let from = (from + lane * row).min(bytes.len());
            prefetch(&bytes[from..(from + SIZE).min(bytes.len())]);
        }
    }
}

/// Adds the products of one part of 16 rows with every token to the tokens' sums, [`PAIR`] tokens at a time.
#[inline(always)]
fn accumulate_tokens<L: Lanes, F: Layout<SIZE, PER>, const SIZE: usize, const PER: usize>(
    lanes: L,
    codes: &Codes<L>,
    planes: &[Planes],
    measures: &[Measure],
    sums: &mut [L::Floats],
) {
    let (pairs, single) = planes.as_chunks::<PAIR>();
    let (pair_measures, single_measure) = measures.as_chunks::<PAIR>();
    let (pair_sums, single_sum) = sums.as_chunks_mut::<PAIR>();
    for ((planes, measures), sums) in pairs.iter().zip(pair_measures).zip(pair_sums) {
        accumulate_group::<L, F, SIZE, PER, PAIR>(lanes, codes, planes, measures, sums);
    }
    for ((planes, measure), sum) in single.iter().zip(single_measure).zip(single_sum) {
        accumulate_group::<L, F, SIZE, PER, 1>(lanes, codes, from_ref(planes), from_ref(measure), from_mut(sum));
    }
}

/// Adds the products of one part (32 numbers) of 16 rows with `T` tokens to the tokens' sums: sums code · integer
/// exactly, subtracts the code of zero times the sum of the integers, multiplies by both scales in f32, and adds the
/// format's offset times the token's sum, if the format has offsets.
#[inline(always)]
fn accumulate_group<L: Lanes, F: Layout<SIZE, PER>, const SIZE: usize, const PER: usize, const T: usize>(
    lanes: L,
    codes: &Codes<L>,
    planes: &[Planes; T],
    measures: &[Measure; T],
    sums: &mut [L::Floats; T],
) {
    let (words, mut starts) = (PART / 4, [0; T]);
    let (halves, words) = if F::SPLIT { (2, words / 2) } else { (1, words) };
    for half in 0..halves {
        for at in 0..T {
            let Measure { sum, first, .. } = measures[at];
            let of_half = [first, sum - first];
            starts[at] = -F::ZERO * if F::SPLIT { of_half[half] } else { sum };
        }
        let whole = integer_dots::<L, T>(lanes, codes, planes, half * words..(half + 1) * words, starts);
        for at in 0..T {
            let scale = lanes.mul(codes.scale[half], lanes.splat_float(measures[at].scale));
            sums[at] = lanes.mul_add(lanes.to_floats(whole[at]), scale, sums[at]);
        }
    }
    if F::OFFSET {
        for at in 0..T {
            let sum = lanes.splat_float(measures[at].sum as f32 * measures[at].scale);
            sums[at] = lanes.mul_add(codes.offset, sum, sums[at]);
        }
    }
}

/// Returns for each of `T` tokens and 16 rows the token's number in `starts` plus Σ code · integer over the words
/// `words` of a part (four codes each), exactly.
#[inline(always)]
fn integer_dots<L: Lanes, const T: usize>(
    lanes: L,
    codes: &Codes<L>,
    planes: &[Planes; T],
    words: Range<usize>,
    starts: [i32; T],
) -> [L::Words; T] {
    let mut sums = [[lanes.splat(0); 2]; T];
    for at in 0..T {
        sums[at][1] = lanes.splat(starts[at]);
    }
    for word in words {
        for at in 0..T {
            let [first, second] = &planes[at].0;
            sums[at] = lanes.dot(sums[at], codes.words[word], [first[word], second[word]]);
        }
    }
    let mut totals = [lanes.splat(0); T];
    for at in 0..T {
        totals[at] = lanes.total(sums[at]);
    }
    totals
}
