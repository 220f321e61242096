//! The attention of one new token a sequence to the keys and values kept so far.

use candle_core::Tensor;
use rayon::prelude::*;

use super::AttentionShape;
use crate::error::{Error, Result};
use crate::fused::host::{self, Floats};
use crate::fused::lanes::{exp_in_place, largest, tanh, wide};
use crate::fused::product::{Matrix, Tile};
use crate::fused::scratch;

/// Attends with one query a sequence: `q` is `[batch, heads · head_dim]`; `keys[i]` and `values[i]` hold
/// `[length, kv_heads · head_dim]` of sequence i, the new token's own last. The result is shaped like `q`.
///
/// A sequence's result does not depend on the others in the batch.
pub fn attention_cached(q: &Tensor, keys: &[&[f32]], values: &[&[f32]], shape: &AttentionShape) -> Result<Tensor> {
    shape.check()?;
    let (features, width) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    host::expect(q, "q", &[keys.len(), features])?;
    if keys.len() != values.len() {
        return Err(Error::shape(format!("{} sequences of keys, {} of values", keys.len(), values.len())));
    }
    for (keys, values) in keys.iter().zip(values) {
        if keys.is_empty() || keys.len() != values.len() || !keys.len().is_multiple_of(width) {
            let (keys, values) = (keys.len(), values.len());
            return Err(Error::shape(format!("{keys} numbers of keys and {values} of values are not rows of {width}")));
        }
    }
    let queries = Floats::of(q, "q")?;
    let mut out = vec![0.0; keys.len() * features];
    out.par_chunks_mut(shape.group_features())
        .zip(queries.slice().par_chunks(shape.group_features()))
        .enumerate()
        .with_max_len(1)
        .for_each(|(task, (out, query))| {
            let (sequence, kv_head) = (task / shape.kv_heads, task % shape.kv_heads);
            one(shape, query, keys[sequence], values[sequence], kv_head, out);
        });
    host::tensor(out, q.dims())
}

/// One key-value head of one sequence.
fn one(shape: &AttentionShape, query: &[f32], keys: &[f32], values: &[f32], kv_head: usize, out: &mut [f32]) {
    let (group, dim, stride) = (shape.group(), shape.head_dim, shape.kv_heads * shape.head_dim);
    let length = keys.len() / stride;
    let start = shape.window.map_or(0, |window| length.saturating_sub(window));
    let (offset, length) = (start * stride + kv_head * dim, length - start);
    scratch::with(group * length, |scores| {
        let right = Matrix::strided(&keys[offset..], length, dim, stride).transposed();
        Tile::whole(scores, group, length).multiply(false, shape.factor(), Matrix::packed(query, group, dim), right);
        for scores in scores.chunks_exact_mut(length) {
            wide(
                #[inline(always)]
                || softmax(scores, shape.soft_cap),
            );
        }
        let right = Matrix::strided(&values[offset..], length, dim, stride);
        Tile::whole(out, group, dim).multiply(false, 1.0, Matrix::packed(scores, group, length), right);
    });
}

#[inline(always)]
fn softmax(scores: &mut [f32], soft_cap: Option<f32>) {
    if let Some(cap) = soft_cap {
        scores.iter_mut().for_each(|score| *score = cap * tanh(*score));
    }
    let best = largest(scores);
    let share = 1.0 / exp_in_place(scores, best);
    scores.iter_mut().for_each(|score| *score *= share);
}
