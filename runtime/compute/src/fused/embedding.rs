//! Rows of an embedding by token id, and the gradient of the table.

pub(super) mod device;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::backend::{accelerator_of, accelerator_with};
use super::host::{self, Floats};
use super::indices::{Indices, check_below};
use super::linear::{FEATURES, par_tiles};
use super::product::Tile;
use super::simd::vectorize;
use super::stored::Stored;
use crate::error::Result;
use crate::weight::WeightRef;

/// Tokens of one task.
const TOKENS: usize = 64;
/// What token ids count, for the error.
pub(super) const TOKEN: [&str; 2] = ["token", "of the vocabulary"];

/// Looks up embeddings: row i of the result is `scale · weight[ids[i]]`. `weight` is `[vocabulary, hidden]` in any
/// stored format; the result is `[tokens, hidden]` in the type of activations, `dtype`, which must be f32 on the CPU.
/// Returns an error for an id past the vocabulary.
pub fn embed<'w>(ids: &Indices, weight: impl Into<WeightRef<'w>>, scale: f32, dtype: DType) -> Result<Tensor> {
    let weight = weight.into();
    check_below(ids, weight.sides().first().copied().unwrap_or(0), TOKEN)?;
    if let Some(device) = accelerator_with([], weight)? {
        return device::embed(&device, ids, weight, scale, dtype);
    }
    host::expect_f32_activations(dtype)?;
    let stored = Stored::of(weight, "weight")?;
    let weight = stored.view();
    let mut result = vec![0.0; ids.len() * weight.columns];
    let width = weight.columns.max(1);
    result.par_chunks_mut(TOKENS * width).zip(ids.par_chunks(TOKENS)).for_each(|(rows, ids)| {
        for (row, id) in rows.chunks_exact_mut(width).zip(ids) {
            weight.copy_row(*id as usize, row);
            row.iter_mut().for_each(|number| *number *= scale);
        }
    });
    host::tensor(result, &[ids.len(), weight.columns])
}

/// Computes the gradient of the embedding table, `[rows, hidden]` f32: row `id` is `scale · Σ dy` over the tokens with
/// that id, in order.
pub fn embed_gradient(ids: &Indices, dy: &Tensor, scale: f32, rows: usize) -> Result<Tensor> {
    let (_, hidden) = host::matrix(dy, "dy")?;
    host::expect(dy, "dy", &[ids.len(), hidden])?;
    check_below(ids, rows, TOKEN)?;
    if let Some(device) = accelerator_of([(dy, "dy")])? {
        return device::embed_gradient(&device, ids, dy, scale, rows);
    }
    let dy = &*Floats::of(dy, "dy")?;
    let mut result = vec![0.0; rows * hidden];
    // A task has some columns of all rows, so that sums run in the order of the tokens.
    par_tiles(Tile::from_slice(&mut result, rows, hidden), rows.max(1), FEATURES).for_each(|(_, columns, mut tile)| {
        for (token, id) in ids.iter().enumerate() {
            let more = &dy[token * hidden..][columns.clone()];
            let row = tile.row(*id as usize);
            vectorize!(row.iter_mut().zip(more).for_each(|(sum, d)| *sum = d.mul_add(scale, *sum)));
        }
    });
    host::tensor(result, &[rows, hidden])
}

#[cfg(test)]
mod tests;
