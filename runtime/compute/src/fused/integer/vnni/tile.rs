//! The sums of 16 rows of a quantized weight with some tokens.

use core::arch::x86_64::{__m512, __m512i};
use std::array::{from_mut, from_ref};
use std::ops::Range;

use pulp::NullaryFnOnce;

use super::codes::{Codes, Layout};
use super::instruction::Vnni;
use super::numbers::{Measure, Numbers, PART, Plane, TOKENS};
use super::reading::{ROWS, Rows};
use crate::fused::prefetch::{nth_chunk, prefetch};

/// Tokens whose sums grow side by side, so that one need not wait for the other.
const PAIR: usize = 2;

/// 16 rows of weights and the tokens that they are multiplied with.
pub(super) struct RowPanel<'a, L, const SIZE: usize, const PER: usize> {
    pub(super) simd: Vnni,
    pub(super) rows: Rows<'a, SIZE>,
    /// Bytes that will be read next.
    pub(super) next: &'a [u8],
    pub(super) numbers: &'a Numbers,
    /// `found[token][row]`.
    pub(super) found: &'a mut [[f32; ROWS]; TOKENS],
    pub(super) layout: std::marker::PhantomData<L>,
}

impl<L: Layout<SIZE, PER>, const SIZE: usize, const PER: usize> NullaryFnOnce for RowPanel<'_, L, SIZE, PER> {
    type Output = ();

    /// Writes to `found` the dot products of 16 rows of a quantized weight with every token, whose numbers were rounded
    /// to integers; reads `next` ahead into the cache. Goes through the parts of 32 numbers in order: sums integers
    /// exactly within a part (or half of one, if each half has its own scale), then adds the scaled result in f32. So
    /// the bits of a sum do not depend on which tokens are beside it.
    #[inline(always)]
    fn call(self) {
        let Self { simd, rows, next, numbers, found, .. } = self;
        let blocks = rows[0].len();
        let mut sums = [simd.avx512f._mm512_setzero_ps(); TOKENS];
        let sums = &mut sums[..numbers.tokens];
        for at in 0..blocks {
            prefetch(nth_chunk(next, at, blocks));
            let head = L::head(simd, &rows, at);
            for group in 0..L::GROUPS {
                let parts = L::parts(simd, &rows, at, head, group);
                for (part, codes) in parts.iter().enumerate() {
                    let start = ((at * L::GROUPS + group) * PER + part) * numbers.tokens;
                    let range = start..start + numbers.tokens;
                    let (planes, measures) = (&numbers.planes[range.clone()], &numbers.measures[range]);
                    accumulate_tokens::<L, SIZE, PER>(simd, codes, planes, measures, sums);
                }
            }
        }
        for (found, sum) in found.iter_mut().zip(sums) {
            *found = bytemuck::cast(*sum);
        }
    }
}

/// Adds the products of one part of 16 rows with every token to the tokens' sums, [`PAIR`] tokens at a time.
#[inline(always)]
fn accumulate_tokens<L: Layout<SIZE, PER>, const SIZE: usize, const PER: usize>(
    simd: Vnni,
    codes: &Codes,
    planes: &[Plane],
    measures: &[Measure],
    sums: &mut [__m512],
) {
    let (pairs, single) = planes.as_chunks::<PAIR>();
    let (pair_measures, single_measure) = measures.as_chunks::<PAIR>();
    let (pair_sums, single_sum) = sums.as_chunks_mut::<PAIR>();
    for ((planes, measures), sums) in pairs.iter().zip(pair_measures).zip(pair_sums) {
        accumulate_group::<L, SIZE, PER, PAIR>(simd, codes, planes, measures, sums);
    }
    for ((plane, measure), sum) in single.iter().zip(single_measure).zip(single_sum) {
        accumulate_group::<L, SIZE, PER, 1>(simd, codes, from_ref(plane), from_ref(measure), from_mut(sum));
    }
}

/// Adds the products of one part (32 numbers) of 16 rows with `T` tokens to the tokens' sums: sums code · integer
/// exactly, subtracts the code of zero times the sum of the integers, multiplies by both scales in f32, and adds the
/// format's offset times the token's sum, if the format has offsets.
#[inline(always)]
fn accumulate_group<L: Layout<SIZE, PER>, const SIZE: usize, const PER: usize, const T: usize>(
    simd: Vnni,
    codes: &Codes,
    planes: &[Plane; T],
    measures: &[Measure; T],
    sums: &mut [__m512; T],
) {
    let f = simd.avx512f;
    let (words, mut starts) = (PART / 4, [0; T]);
    let (halves, words) = if L::SPLIT { (2, words / 2) } else { (1, words) };
    for half in 0..halves {
        for at in 0..T {
            let Measure { sum, first, .. } = measures[at];
            let of_half = [first, sum - first];
            starts[at] = -L::ZERO * if L::SPLIT { of_half[half] } else { sum };
        }
        let whole = integer_dots::<T>(simd, codes, planes, half * words..(half + 1) * words, starts);
        for at in 0..T {
            let scale = f._mm512_mul_ps(codes.scale[half], f._mm512_set1_ps(measures[at].scale));
            sums[at] = f._mm512_fmadd_ps(f._mm512_cvtepi32_ps(whole[at]), scale, sums[at]);
        }
    }
    if L::OFFSET {
        for at in 0..T {
            let sum = f._mm512_set1_ps(measures[at].sum as f32 * measures[at].scale);
            sums[at] = f._mm512_fmadd_ps(codes.offset, sum, sums[at]);
        }
    }
}

/// Returns for each of `T` tokens and 16 rows the token's number in `starts` plus Σ code · integer over the words
/// `words` of a part (four codes each), exactly.
#[inline(always)]
fn integer_dots<const T: usize>(
    simd: Vnni,
    codes: &Codes,
    planes: &[Plane; T],
    words: Range<usize>,
    starts: [i32; T],
) -> [__m512i; T] {
    let f = simd.avx512f;
    let mut high = [f._mm512_setzero_si512(); T];
    let mut low = high;
    for at in 0..T {
        low[at] = f._mm512_set1_epi32(starts[at]);
    }
    for word in words {
        for at in 0..T {
            high[at] = simd.dot(high[at], codes.words[word], f._mm512_set1_epi32(planes[at].high[word]));
            low[at] = simd.dot(low[at], codes.words[word], f._mm512_set1_epi32(planes[at].low[word]));
        }
    }
    for at in 0..T {
        low[at] = f._mm512_add_epi32(f._mm512_slli_epi32::<8>(high[at]), low[at]);
    }
    low
}
