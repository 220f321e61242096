//! Rows of an embedding by token id, and the gradient of the table.

pub(super) mod device;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::arm::Arm;
use super::host::{self, Floats};
use super::indices::Indices;
use super::lanes::wide;
use super::linear::{FEATURES, tasks};
use super::product::Tile;
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
    match Arm::of_weight(weight)? {
        Arm::Cpu if dtype == DType::F32 => embed_on_cpu(ids, weight, scale),
        Arm::Cpu => Err(Error::dtype(format!("activations of the CPU are f32, {} was asked for", dtype.as_str()))),
        Arm::Device(device) => device::embed(&device, ids, weight, scale, dtype),
    }
}

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
    match Arm::of([(dy, "dy")])? {
        Arm::Cpu => embed_gradient_on_cpu(ids, dy, scale, [rows, hidden]),
        Arm::Device(device) => device::embed_gradient(&device, ids, dy, scale, rows),
    }
}

fn embed_gradient_on_cpu(ids: &[u32], dy: &Tensor, scale: f32, [rows, hidden]: [usize; 2]) -> Result<Tensor> {
    let dy = Floats::of(dy, "dy")?;
    let dy = dy.slice();
    let mut result = vec![0.0; rows * hidden];
    tasks(Tile::whole(&mut result, rows, hidden), rows.max(1), FEATURES).for_each(|(_, columns, mut tile)| {
        for (token, id) in ids.iter().enumerate() {
            let more = &dy[token * hidden..][columns.clone()];
            let row = tile.row(*id as usize);
            wide(
                #[inline(always)]
                || row.iter_mut().zip(more).for_each(|(sum, d)| *sum = d.mul_add(scale, *sum)),
            );
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
