//! Dot products of a few rows with a few tokens, all in registers at once.

use pulp::{Simd, WithSimd};

use super::prefetch::{nth_chunk, prefetch};

/// The most rows of weights whose sums are in registers at once.
pub(super) const ROWS: usize = 6;
/// The most tokens whose sums are in registers at once.
pub(super) const TOKENS: usize = 4;

/// Computes the dot products of a few rows of weights, `rows`, with a few tokens, `tokens`: both have `depth` f32
/// numbers a row. Writes them to `found[token][row]`.
pub(super) struct DotTile<'a> {
    pub(super) rows: &'a [f32],
    pub(super) tokens: &'a [f32],
    pub(super) depth: usize,
    /// The number of rows, at most [`ROWS`], and of tokens, at most [`TOKENS`].
    pub(super) count: (usize, usize),
    /// Bytes that are read after this tile. They are prefetched bit by bit between the products, because a processor
    /// has few loads on the way at a time and would wait for them.
    pub(super) next: &'a [u8],
    pub(super) found: &'a mut [[f32; ROWS]; TOKENS],
}

impl WithSimd for DotTile<'_> {
    type Output = ();

    /// Writes the dot product of every row with every token to `found[token][row]`: all [`ROWS`] rows at once, or fewer
    /// one by one. Prefetches `next` meanwhile.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, tokens, depth, count, next, found } = self;
        match count {
            (ROWS, TOKENS) => dot_tile::<S, ROWS, TOKENS>(simd, rows, tokens, depth, 0, next, found),
            (ROWS, 3) => dot_tile::<S, ROWS, 3>(simd, rows, tokens, depth, 0, next, found),
            (ROWS, 2) => dot_tile::<S, ROWS, 2>(simd, rows, tokens, depth, 0, next, found),
            (ROWS, 1) => dot_tile::<S, ROWS, 1>(simd, rows, tokens, depth, 0, next, found),
            (some, count) => {
                for row in 0..some {
                    let weights = &rows[row * depth..];
                    match count {
                        TOKENS => dot_tile::<S, 1, TOKENS>(simd, weights, tokens, depth, row, next, found),
                        3 => dot_tile::<S, 1, 3>(simd, weights, tokens, depth, row, next, found),
                        2 => dot_tile::<S, 1, 2>(simd, weights, tokens, depth, row, next, found),
                        _ => dot_tile::<S, 1, 1>(simd, weights, tokens, depth, row, next, found),
                    }
                }
            }
        }
    }
}

/// Writes the dot products of `R` rows with `T` tokens, `depth` numbers each, to `found[token][first + row]`. A sum
/// runs over whole vectors in order, then over the remainder, then over the vector's lanes: its bits are the same for
/// every `R` and `T`. Prefetches `next` meanwhile.
#[inline(always)]
fn dot_tile<S: Simd, const R: usize, const T: usize>(
    simd: S,
    rows: &[f32],
    tokens: &[f32],
    depth: usize,
    first: usize,
    next: &[u8],
    found: &mut [[f32; ROWS]; TOKENS],
) {
    let whole = depth / S::F32_LANES;
    let none: (&[S::f32s], &[f32]) = (&[], &[]);
    let (mut weights, mut numbers) = ([none; R], [none; T]);
    for row in 0..R {
        let (vectors, rest) = S::as_simd_f32s(&rows[row * depth..][..depth]);
        weights[row] = (&vectors[..whole], rest);
    }
    for token in 0..T {
        let (vectors, rest) = S::as_simd_f32s(&tokens[token * depth..][..depth]);
        numbers[token] = (&vectors[..whole], rest);
    }
    let mut sums = [[simd.splat_f32s(0.0); T]; R];
    for at in 0..whole {
        prefetch(nth_chunk(next, at, whole));
        let mut x = [simd.splat_f32s(0.0); T];
        for token in 0..T {
            x[token] = numbers[token].0[at];
        }
        for row in 0..R {
            let weight = weights[row].0[at];
            for token in 0..T {
                sums[row][token] = simd.mul_add_f32s(weight, x[token], sums[row][token]);
            }
        }
    }
    for row in 0..R {
        let weight = simd.partial_load_f32s(weights[row].1);
        for token in 0..T {
            let rest = simd.partial_load_f32s(numbers[token].1);
            found[token][first + row] = simd.reduce_sum_f32s(simd.mul_add_f32s(weight, rest, sums[row][token]));
        }
    }
}
