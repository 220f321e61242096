//! A linear layer with a low-rank adapter, `y = x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ` (LoRA, Hu et al. 2021), and its gradients.
//!
//! The second product is added to each tile of the first while the tile is still near the processor.

pub(super) mod device;

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::Backend;
use super::host::{self, Floats};
use super::linear::{FEATURES, linear_tiles, par_tiles, transposed_linear_tiles, transposed_product};
use super::product::{Matrix, Tile};
use crate::error::Result;
use crate::weight::WeightRef;

/// Tokens of one task of a thin product.
const TOKENS: usize = 128;

/// The two thin matrices of an adapter and the factor in front of them.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// `[rank, in]` f32; an accelerator takes the type of activations as well.
    pub a: Tensor,
    /// `[out, rank]` f32; likewise.
    pub b: Tensor,
    /// The factor s: α/r, or α/√r for rsLoRA.
    pub scale: f32,
}

/// Gradients of an adapted layer.
#[derive(Debug)]
pub struct AdaptedGradient {
    /// `[tokens, in]`, if it was asked for.
    pub input: Option<Tensor>,
    /// `[rank, in]`.
    pub a: Tensor,
    /// `[out, rank]`.
    pub b: Tensor,
}

/// `x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ`; returns it, `[tokens, out]`, and `x·Aᵀ`, `[tokens, rank]`, which the gradients need. Both
/// have the type of `x`.
pub fn adapted_linear<'w>(
    x: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    bias: Option<&Tensor>,
    low: &LowRank,
) -> Result<(Tensor, Tensor)> {
    let weight = weight.into();
    if let Backend::Device(device) = Backend::with_weight([(x, "x"), (&low.a, "a"), (&low.b, "b")], weight)? {
        return device::adapted_linear(&device, x, weight, bias, low);
    }
    let down = project(x, &low.a)?;
    let (_, rank) = host::matrix(&down, "xa")?;
    host::expect(&low.b, "b", &[weight.sides().first().copied().unwrap_or(0), rank])?;
    let result = {
        let (thin, b) = (Floats::of(&down, "xa")?, Floats::of(&low.b, "b")?);
        let (thin, b) = (thin.slice(), b.slice());
        linear_tiles(x, weight, bias, |rows, columns, tile| {
            let left = Matrix::packed(&thin[rows.start * rank..], rows.len(), rank);
            let right = Matrix::packed(&b[columns.start * rank..], columns.len(), rank).transposed();
            tile.multiply_batch_invariant(true, low.scale, left, right);
        })?
    };
    Ok((result, down))
}

/// The gradients of [`adapted_linear`]: `dx = dy·W + s·(dy·B)·A` when wanted, `dA = s·(dy·B)ᵀ·x`, `dB = s·dyᵀ·(x·Aᵀ)`.
/// `xa` is what the forward pass returned. Gradients of A and B are f32, the input's has the type of `dy`.
pub fn adapted_linear_backward<'w>(
    dy: &Tensor,
    x: &Tensor,
    xa: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
    want_input: bool,
) -> Result<AdaptedGradient> {
    let ((tokens, outputs), (_, inputs), (_, rank)) =
        (host::matrix(dy, "dy")?, host::matrix(x, "x")?, host::matrix(xa, "xa")?);
    let weight = weight.into();
    host::expect_dims(&weight.sides(), "weight", &[outputs, inputs])?;
    host::expect(x, "x", &[tokens, inputs])?;
    host::expect(xa, "xa", &[tokens, rank])?;
    host::expect(&low.a, "a", &[rank, inputs])?;
    host::expect(&low.b, "b", &[outputs, rank])?;
    let operands = [(dy, "dy"), (x, "x"), (xa, "xa"), (&low.a, "a"), (&low.b, "b")];
    if let Backend::Device(device) = Backend::with_weight(operands, weight)? {
        return device::adapted_linear_backward(&device, dy, x, xa, weight, low, want_input);
    }
    let thin = unproject(dy, &low.b, low.scale)?;
    let input = want_input.then(|| {
        let a = Floats::of(&low.a, "a")?;
        let a = a.slice();
        transposed_linear_tiles(dy, weight, |rows, columns, tile| {
            let left = Matrix::packed(&thin[rows.start * rank..], rows.len(), rank);
            tile.multiply(true, 1.0, left, Matrix::strided(&a[columns.start..], rank, columns.len(), inputs));
        })
    });
    let (dy, x, xa) = (Floats::of(dy, "dy")?, Floats::of(x, "x")?, Floats::of(xa, "xa")?);
    let (mut da, mut db) = (vec![0.0; rank * inputs], vec![0.0; outputs * rank]);
    transposed_product(Tile::from_slice(&mut da, rank, inputs), 1.0, (&thin, rank), (x.slice(), inputs), tokens);
    transposed_product(
        Tile::from_slice(&mut db, outputs, rank),
        low.scale,
        (dy.slice(), outputs),
        (xa.slice(), rank),
        tokens,
    );
    Ok(AdaptedGradient {
        input: input.transpose()?,
        a: host::tensor(da, &[rank, inputs])?,
        b: host::tensor(db, &[outputs, rank])?,
    })
}

/// `x·Aᵀ`, `[tokens, rank]`: the way down of an adapter.
fn project(x: &Tensor, a: &Tensor) -> Result<Tensor> {
    let ((tokens, inputs), (rank, _)) = (host::matrix(x, "x")?, host::matrix(a, "a")?);
    host::expect(a, "a", &[rank, inputs])?;
    let (x, a) = (Floats::of(x, "x")?, Floats::of(a, "a")?);
    let (x, a) = (x.slice(), Matrix::packed(a.slice(), rank, inputs).transposed());
    let mut result = vec![0.0; tokens * rank];
    par_tiles(Tile::from_slice(&mut result, tokens, rank), TOKENS, FEATURES.max(rank)).for_each(
        |(rows, _, mut tile)| {
            tile.multiply_batch_invariant(false, 1.0, Matrix::packed(&x[rows.start * inputs..], rows.len(), inputs), a);
        },
    );
    host::tensor(result, &[tokens, rank])
}

/// `s·dy·B`, `[tokens, rank]`: the way back down.
fn unproject(dy: &Tensor, b: &Tensor, scale: f32) -> Result<Vec<f32>> {
    let ((tokens, outputs), (_, rank)) = (host::matrix(dy, "dy")?, host::matrix(b, "b")?);
    let (dy, b) = (Floats::of(dy, "dy")?, Floats::of(b, "b")?);
    let (dy, b) = (dy.slice(), Matrix::packed(b.slice(), outputs, rank));
    let mut result = vec![0.0; tokens * rank];
    par_tiles(Tile::from_slice(&mut result, tokens, rank), TOKENS, FEATURES.max(rank)).for_each(
        |(rows, _, mut tile)| {
            tile.multiply(false, scale, Matrix::packed(&dy[rows.start * outputs..], rows.len(), outputs), b);
        },
    );
    Ok(result)
}

#[cfg(test)]
mod tests;
