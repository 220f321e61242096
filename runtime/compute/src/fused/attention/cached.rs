//! Attention of one new token per sequence to the cached keys and values of its sequence, on the CPU.

use std::slice::Chunks;

use candle_core::Tensor;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::AttentionShape;
use crate::error::{Error, Result};
use crate::fused::host::{self, Floats};
use crate::fused::scratch;
use crate::fused::simd::{dispatch, exp_in_place, largest, tanh, vectorize};

/// Attends with one query per sequence to its cached keys and values: `q` is `[batch, heads · head_dim]`; `cached[i]`
/// are the keys and the values of sequence i, `[length, kv_heads · head_dim]` each, with the new token's last. The
/// result is shaped like `q`. The caller has checked `shape` and the shape of `q`.
///
/// A sequence's result does not depend on the others in the batch.
///
/// # Errors
/// [`Error::Shape`] if a sequence has no keys, or they are not whole rows of `kv_heads · head_dim` numbers. An error if
/// `q` is not a contiguous f32 or bf16 tensor of the CPU. The length of the values is not checked.
pub(in crate::fused) fn attention_cached(
    q: &Tensor,
    cached: &[(&[f32], &[f32])],
    shape: &AttentionShape,
) -> Result<Tensor> {
    let (features, width) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    if let Some((keys, _)) = cached.iter().find(|(keys, _)| keys.is_empty() || !keys.len().is_multiple_of(width)) {
        return Err(Error::shape(format!("{} numbers of keys are not rows of {width}", keys.len())));
    }
    let queries = Floats::activations(q, "q")?;
    let mut out = vec![0.0; cached.len() * features];
    out.par_chunks_mut(shape.group_features())
        .zip(queries.par_chunks(shape.group_features()))
        .enumerate()
        .with_max_len(1)
        .for_each(|(task, (out, query))| {
            attend_one_sequence(shape, query, cached[task / shape.kv_heads], task % shape.kv_heads, out);
        });
    host::tensor_in(q.dtype(), out, q.dims())
}

/// Computes attention of one sequence's newest token for the query heads that share `kv_head`, and overwrites `out`.
/// `query` and `out` are `[group, head_dim]`, keys and values `[length, kv_heads · head_dim]`. With a window, the token
/// attends to the last `window` tokens only.
fn attend_one_sequence(
    shape: &AttentionShape,
    query: &[f32],
    (keys, values): (&[f32], &[f32]),
    kv_head: usize,
    out: &mut [f32],
) {
    let (group, dim, stride) = (shape.group(), shape.head_dim, shape.kv_heads * shape.head_dim);
    let length = keys.len() / stride;
    let start = shape.window.map_or(0, |window| length.saturating_sub(window));
    let (offset, length) = (start * stride + kv_head * dim, length - start);
    scratch::with(group * length, |scores| {
        let rows = Rows { numbers: &keys[offset..], dim, stride };
        dispatch(KeyScores { rows, query, factor: shape.factor(), scores, length });
        for scores in scores.chunks_exact_mut(length) {
            vectorize!(softmax(scores, shape.soft_cap));
        }
        dispatch(ValueMixture { rows: Rows { numbers: &values[offset..], ..rows }, scores, length, out });
    });
}

/// The cached keys or values of one head: `dim` numbers for each token, `stride` numbers after those of the one before.
#[derive(Clone, Copy)]
struct Rows<'a> {
    numbers: &'a [f32],
    dim: usize,
    stride: usize,
}

/// Computes `scores[head][token] = factor · query[head]·key[token]`. Reads each key once, for all query heads.
struct KeyScores<'a> {
    rows: Rows<'a>,
    query: &'a [f32],
    factor: f32,
    scores: &'a mut [f32],
    length: usize,
}

impl WithSimd for KeyScores<'_> {
    type Output = ();

    /// Writes `factor · query·key` to `scores`, `[query heads, length]`, for every query head and cached token.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows: Rows { numbers, dim, stride }, query, factor, scores, length } = self;
        for (token, key) in numbers.chunks(stride).take(length).enumerate() {
            let (key, key_rest) = S::as_simd_f32s(&key[..dim]);
            let key_rest = simd.partial_load_f32s(key_rest);
            for (query, scores) in query.chunks_exact(dim).zip(scores.chunks_exact_mut(length)) {
                let (query, rest) = S::as_simd_f32s(query);
                let mut sum = simd.mul_f32s(simd.partial_load_f32s(rest), key_rest);
                for (query, key) in query.iter().zip(key) {
                    sum = simd.mul_add_f32s(*query, *key, sum);
                }
                scores[token] = factor * simd.reduce_sum_f32s(sum);
            }
        }
    }
}

/// Computes `out[head] = Σ scores[head][token] · value[token]`, summed in the order of the tokens.
struct ValueMixture<'a> {
    rows: Rows<'a>,
    scores: &'a [f32],
    length: usize,
    out: &'a mut [f32],
}

impl WithSimd for ValueMixture<'_> {
    type Output = ();

    /// Overwrites `out`, `[query heads, dim]`, with each head's sum of the cached values weighted by its `scores`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        /// Vectors of a row whose sums stay in registers.
        const SIDE: usize = 4;
        let Self { rows: Rows { numbers, dim, stride }, scores, length, out } = self;
        for (scores, out) in scores.chunks_exact(length).zip(out.chunks_exact_mut(dim)) {
            let (vectors, rest) = S::as_mut_simd_f32s(out);
            let (whole, single) = vectors.as_chunks_mut::<SIDE>();
            let mut start = 0;
            for out in whole {
                *out = mix_vectors::<S, SIDE>(simd, scores, numbers.chunks(stride), start);
                start += SIDE * S::F32_LANES;
            }
            for out in single {
                [*out] = mix_vectors::<S, 1>(simd, scores, numbers.chunks(stride), start);
                start += S::F32_LANES;
            }
            for out in rest {
                let terms = scores.iter().zip(numbers.chunks(stride));
                *out = terms.fold(0.0, |sum, (score, value)| score.mul_add(value[start], sum));
                start += 1;
            }
        }
    }
}

/// Returns Σ `score · value` over the cached tokens for `N` adjacent SIMD vectors of features. `values` yields a row
/// for each token, and `start` is the index of the first of these features in a row.
#[inline(always)]
fn mix_vectors<S: Simd, const N: usize>(
    simd: S,
    scores: &[f32],
    values: Chunks<'_, f32>,
    start: usize,
) -> [S::f32s; N] {
    let mut sums = [simd.splat_f32s(0.0); N];
    for (score, value) in scores.iter().zip(values) {
        let score = simd.splat_f32s(*score);
        let (value, _) = S::as_simd_f32s(&value[start..start + N * S::F32_LANES]);
        for at in 0..N {
            sums[at] = simd.mul_add_f32s(score, value[at], sums[at]);
        }
    }
    sums
}

/// Converts a row of scores in place to softmax weights, which sum to 1, after the soft cap, if any. With a cap,
/// `scores` are given divided by the cap.
#[inline(always)]
fn softmax(scores: &mut [f32], soft_cap: Option<f32>) {
    if let Some(cap) = soft_cap {
        scores.iter_mut().for_each(|score| *score = cap * tanh(*score));
    }
    let best = largest(scores);
    let share = 1.0 / exp_in_place(scores, best);
    scores.iter_mut().for_each(|score| *score *= share);
}
