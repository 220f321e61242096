//! Rows of an embedding by token id, and the gradient of the table.

pub(super) mod device;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::backend::Backend;
use super::host::{self, Floats};
use super::indices::Indices;
use super::linear::{FEATURES, par_tiles};
use super::product::Tile;
use super::simd::vectorize;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::weight::WeightRef;

/// Tokens of one task.
const TOKENS: usize = 64;

/// `scale · weight[id]` for every id: `weight` is `[vocabulary, hidden]` in any stored format; the result
/// `[tokens, hidden]` in the type of activations, f32 on the CPU.
pub fn embed<'w>(ids: &Indices, weight: impl Into<WeightRef<'w>>, scale: f32, dtype: DType) -> Result<Tensor> {
    let weight = weight.into();
    inside(ids, weight.sides().first().copied().unwrap_or(0))?;
    match Backend::of_weight(weight)? {
        Backend::Cpu if dtype == DType::F32 => embed_on_cpu(ids, weight, scale),
        Backend::Cpu => Err(Error::dtype(format!("activations of the CPU are f32, {} was asked for", dtype.as_str()))),
        Backend::Device(device) => device::embed(&device, ids, weight, scale, dtype),
    }
}

/// [`embed`] on the CPU. The caller has checked the ids.
fn embed_on_cpu(ids: &[u32], weight: WeightRef<'_>, scale: f32) -> Result<Tensor> {
    let stored = Stored::of(weight, "weight")?;
    let weight = stored.view();
    let mut result = vec![0.0; ids.len() * weight.columns];
    if !result.is_empty() {
        result.par_chunks_mut(TOKENS * weight.columns).zip(ids.par_chunks(TOKENS)).for_each(|(rows, ids)| {
            for (row, id) in rows.chunks_exact_mut(weight.columns).zip(ids) {
                weight.copy_row(*id as usize, row);
                row.iter_mut().for_each(|number| *number *= scale);
            }
        });
    }
    host::tensor(result, &[ids.len(), weight.columns])
}

/// The gradient of the table, `[rows, hidden]` f32: row `id` is `scale · Σ dy` over the tokens with that id, in order.
pub fn embed_gradient(ids: &Indices, dy: &Tensor, scale: f32, rows: usize) -> Result<Tensor> {
    let (_, hidden) = host::matrix(dy, "dy")?;
    host::expect(dy, "dy", &[ids.len(), hidden])?;
    inside(ids, rows)?;
    match Backend::of([(dy, "dy")])? {
        Backend::Cpu => embed_gradient_on_cpu(ids, dy, scale, [rows, hidden]),
        Backend::Device(device) => device::embed_gradient(&device, ids, dy, scale, rows),
    }
}

/// [`embed_gradient`] on the CPU, a task for each block of columns, so that sums run in the order of the tokens.
fn embed_gradient_on_cpu(ids: &[u32], dy: &Tensor, scale: f32, [rows, hidden]: [usize; 2]) -> Result<Tensor> {
    let dy = Floats::of(dy, "dy")?;
    let dy = dy.slice();
    let mut result = vec![0.0; rows * hidden];
    par_tiles(Tile::from_slice(&mut result, rows, hidden), rows.max(1), FEATURES).for_each(|(_, columns, mut tile)| {
        for (token, id) in ids.iter().enumerate() {
            let more = &dy[token * hidden..][columns.clone()];
            let row = tile.row(*id as usize);
            vectorize!(row.iter_mut().zip(more).for_each(|(sum, d)| *sum = d.mul_add(scale, *sum)));
        }
    });
    host::tensor(result, &[rows, hidden])
}

/// Refuses an id past the table.
pub(super) fn inside(ids: &[u32], rows: usize) -> Result<()> {
    match ids.iter().find(|id| **id as usize >= rows) {
        Some(id) => Err(Error::argument(format!("token {id} is past the {rows} of the vocabulary"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
