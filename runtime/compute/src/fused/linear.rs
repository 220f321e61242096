//! The linear layer `y = x·Wᵀ + b` and its three gradients.
//!
//! A result is cut into fixed tiles, one task each; frozen weights of 16 bits are widened inside a task, block by
//! block. What adapters add to a layer is in `low_rank.rs`.

pub(super) mod device;

use std::ops::Range;

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::Backend;
use super::host::{self, Floats};
use super::product::{Matrix, Tile};
use super::simd::vectorize;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::weight::WeightRef;

/// Tokens of one tile.
pub(super) const TOKENS: usize = 512;
/// Features of one tile.
pub(super) const FEATURES: usize = 256;

/// `y = x·Wᵀ + b`: `x` is `[tokens, in]`, `weight` is `[out, in]` in any stored format, `bias` is `[out]` f32; the
/// result is `[tokens, out]` in the type of `x`. Sums are in f32.
pub fn linear<'w>(x: &Tensor, weight: impl Into<WeightRef<'w>>, bias: Option<&Tensor>) -> Result<Tensor> {
    let weight = weight.into();
    match Backend::with_weight([(x, "x")], weight)? {
        Backend::Cpu => linear_tiles(x, weight, bias, |_, _, _| {}),
        Backend::Device(device) => device::linear(&device, x, weight, bias),
    }
}

/// `dx = dy·W`: `dy` is `[tokens, out]`, the result `[tokens, in]` in its type.
pub fn linear_input_gradient<'w>(dy: &Tensor, weight: impl Into<WeightRef<'w>>) -> Result<Tensor> {
    let weight = weight.into();
    match Backend::with_weight([(dy, "dy")], weight)? {
        Backend::Cpu => transposed_linear_tiles(dy, weight, |_, _, _| {}),
        Backend::Device(device) => device::input_gradient(&device, dy, weight),
    }
}

/// `dW = dyᵀ·x`: `dy` is `[tokens, out]`, `x` is `[tokens, in]`, the result `[out, in]` f32.
pub fn linear_weight_gradient(dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let ((tokens, outputs), (_, inputs)) = (host::matrix(dy, "dy")?, host::matrix(x, "x")?);
    host::expect(x, "x", &[tokens, inputs])?;
    if let Backend::Device(device) = Backend::of([(dy, "dy"), (x, "x")])? {
        return device::weight_gradient(&device, dy, x, 1.0);
    }
    let (dy, x) = (Floats::of(dy, "dy")?, Floats::of(x, "x")?);
    let mut result = vec![0.0; outputs * inputs];
    transposed_product(
        Tile::from_slice(&mut result, outputs, inputs),
        1.0,
        (dy.slice(), outputs),
        (x.slice(), inputs),
        tokens,
    );
    host::tensor(result, &[outputs, inputs])
}

/// `db = Σ dy` over the tokens: `[tokens, out]` to `[out]` f32, in the order of the tokens.
pub fn bias_gradient(dy: &Tensor) -> Result<Tensor> {
    let (_, outputs) = host::matrix(dy, "dy")?;
    if let Backend::Device(device) = Backend::of([(dy, "dy")])? {
        return device::bias_gradient(&device, dy);
    }
    let dy = Floats::of(dy, "dy")?;
    let mut result = vec![0.0; outputs];
    if outputs > 0 {
        vectorize!({
            dy.slice().chunks_exact(outputs).for_each(|row| result.iter_mut().zip(row).for_each(|(sum, d)| *sum += d))
        });
    }
    host::tensor(result, &[outputs])
}

/// `x·Wᵀ + b`, and then `more` for each tile while it is still near: it gets the tokens, the features, the tile.
pub(super) fn linear_tiles<'w>(
    x: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    bias: Option<&Tensor>,
    more: impl Fn(Range<usize>, Range<usize>, &mut Tile<'_>) + Sync,
) -> Result<Tensor> {
    let (tokens, inputs) = host::matrix(x, "x")?;
    let (x, stored) = (Floats::of(x, "x")?, Stored::of(weight, "weight")?);
    let (x, weight) = (x.slice(), stored.view());
    expect_inner_dim(inputs, weight.columns, [weight.rows, weight.columns])?;
    if let Some(bias) = bias {
        host::expect(bias, "bias", &[weight.rows])?;
    }
    let bias = bias.map(|bias| Floats::of(bias, "bias")).transpose()?;
    let mut result = vec![0.0; tokens * weight.rows];
    par_tiles(Tile::from_slice(&mut result, tokens, weight.rows), TOKENS, FEATURES).for_each(
        |(rows, columns, mut tile)| {
            let x = &x[rows.start * inputs..rows.end * inputs];
            weight.for_each_column_block(columns.clone(), 0..weight.columns, |piece, block| {
                let left = Matrix::strided(&x[piece.start..], tile.rows(), piece.len(), inputs);
                tile.multiply_batch_invariant(piece.start > 0, 1.0, left, block.transposed());
            });
            if let Some(bias) = &bias {
                let bias = &bias.slice()[columns.clone()];
                vectorize!((0..tile.rows()).for_each(|row| add_assign(tile.row(row), bias)));
            }
            more(rows, columns, &mut tile);
        },
    );
    host::tensor(result, &[tokens, stored.view().rows])
}

/// `dy·W`, and then `more` for each tile.
pub(super) fn transposed_linear_tiles<'w>(
    dy: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    more: impl Fn(Range<usize>, Range<usize>, &mut Tile<'_>) + Sync,
) -> Result<Tensor> {
    let (tokens, outputs) = host::matrix(dy, "dy")?;
    let (dy, stored) = (Floats::of(dy, "dy")?, Stored::of(weight, "weight")?);
    let (dy, weight) = (dy.slice(), stored.view());
    expect_inner_dim(outputs, weight.rows, [weight.rows, weight.columns])?;
    let mut result = vec![0.0; tokens * weight.columns];
    par_tiles(Tile::from_slice(&mut result, tokens, weight.columns), TOKENS, FEATURES).for_each(
        |(rows, columns, mut tile)| {
            weight.for_each_row_block(0..outputs, columns.clone(), |piece, block| {
                let left = Matrix::strided(&dy[rows.start * outputs + piece.start..], rows.len(), piece.len(), outputs);
                tile.multiply(piece.start > 0, 1.0, left, block);
            });
            more(rows, columns, &mut tile);
        },
    );
    host::tensor(result, &[tokens, weight.columns])
}

/// `factor · leftᵀ·right`, where both have `tokens` rows: the shape of every weight gradient.
pub(super) fn transposed_product(
    result: Tile<'_>,
    factor: f32,
    left: (&[f32], usize),
    right: (&[f32], usize),
    tokens: usize,
) {
    par_tiles(result, FEATURES, FEATURES).for_each(|(rows, columns, mut tile)| {
        if tokens == 0 {
            return;
        }
        let left = Matrix::strided(&left.0[rows.start..], tokens, rows.len(), left.1).transposed();
        let right = Matrix::strided(&right.0[columns.start..], tokens, columns.len(), right.1);
        tile.multiply(false, factor, left, right);
    });
}

/// The tiles of a result as tasks that threads may take one by one.
pub(super) fn par_tiles(
    result: Tile<'_>,
    rows: usize,
    columns: usize,
) -> impl IndexedParallelIterator<Item = (Range<usize>, Range<usize>, Tile<'_>)> {
    result.grid(rows, columns).into_par_iter().with_max_len(1)
}

/// Refuses two matrices whose inner sides differ.
pub(super) fn expect_inner_dim(given: usize, wanted: usize, weight: [usize; 2]) -> Result<()> {
    if given == wanted {
        return Ok(());
    }
    Err(Error::shape(format!("{given} numbers a token do not meet a weight of shape {weight:?}")))
}

/// `to += from`.
#[inline(always)]
pub(super) fn add_assign(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

#[cfg(test)]
mod tests;
