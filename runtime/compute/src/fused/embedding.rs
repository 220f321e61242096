//! Rows of an embedding by token id, and the gradient of the table.

use candle_core::Tensor;
use rayon::prelude::*;

use super::host::{self, Floats};
use super::lanes::wide;
use super::linear::{FEATURES, tasks};
use super::product::Tile;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::weight::WeightRef;

/// Tokens of one task.
const TOKENS: usize = 64;

/// `scale · weight[id]` for every id: `weight` is `[vocabulary, hidden]` in any stored format; the result
/// `[tokens, hidden]` f32.
pub fn embed<'w>(ids: &[u32], weight: impl Into<WeightRef<'w>>, scale: f32) -> Result<Tensor> {
    let stored = Stored::of(weight, "weight")?;
    let weight = stored.view();
    inside(ids, weight.rows)?;
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

/// The gradient of the table, `[rows, hidden]`: row `id` is `scale · Σ dy` over the tokens with that id, in order.
pub fn embed_gradient(ids: &[u32], dy: &Tensor, scale: f32, rows: usize) -> Result<Tensor> {
    let (_, hidden) = host::matrix(dy, "dy")?;
    host::expect(dy, "dy", &[ids.len(), hidden])?;
    inside(ids, rows)?;
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
