//! A linear layer with a low-rank adapter, `y = x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ` (LoRA, Hu et al. 2021), and its gradients.
//!
//! On the CPU the second product is added to each tile of the first while the tile is in the processor's cache.

use std::borrow::Cow;

use candle_core::Tensor;

use super::backend::{accelerator_of, accelerator_with};
use super::device::expect_type;
use super::dropout::Dropout;
use super::host::{self, Floats, Locked};
use super::linear::{
    FEATURES, add_bias, add_linear, add_linear_input_gradient, add_to, linear, linear_input_gradient, linear_tiles,
    product, tensor_of_tiles, transposed_linear_tiles,
};
use super::product::{Matrix, Tile};
use super::residual;
use super::stored::sides;
use crate::accelerator::{Accelerator, MatrixView};
use crate::error::Result;
use crate::weight::WeightRef;

/// Tokens of one task of a thin product.
const TOKENS: usize = 128;

/// The two thin matrices of an adapter and the factor in front of them.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// The matrix A, `[rank, in]`, f32 or the type of activations.
    pub a: Tensor,
    /// The matrix B, `[out, rank]`, f32 or the type of activations.
    pub b: Tensor,
    /// The factor s: α/r, or α/√r for rsLoRA.
    pub scale: f32,
}

impl LowRank {
    /// Returns s·B, `[out, rank]`, in the type of B.
    fn scaled_b(&self) -> Result<Tensor> {
        Ok((&self.b * f64::from(self.scale))?)
    }
}

/// Computes a linear layer with an adapter (`low`), `x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ`: `x` is `[tokens, in]`, `weight` is `[out,
/// in]` in any stored format, `bias` is `[out]` f32. Returns the output, `[tokens, out]`, and `x·Aᵀ`, `[tokens, rank]`,
/// which the gradient of B needs. Both have the type of `x`. With dropout, both are computed with `drop(x)·Aᵀ` in the
/// place of `x·Aᵀ`; `x·Wᵀ` has no dropout. Returns an error if shapes or devices do not fit each other.
pub fn adapted_linear<'w>(
    x: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    bias: Option<&Tensor>,
    low: &LowRank,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let weight = weight.into();
    if let Some(device) = accelerator_with([(x, "x"), (&low.a, "a"), (&low.b, "b")], weight)? {
        return adapted_linear_on_device(&device, x, weight, bias, low, dropout);
    }
    if let Some(dropout) = dropout {
        let reduced = linear(&dropout.apply(x)?, &low.a, None)?;
        let added = linear(&reduced, &low.scaled_b()?, None)?;
        return Ok((residual::add(&linear(x, weight, bias)?, &added)?, reduced));
    }
    let ((_, inputs), (rank, _)) = (host::matrix_dims(x, "x")?, host::matrix_dims(&low.a, "a")?);
    host::expect_shape(&low.a, "a", &[rank, inputs])?;
    host::expect_shape(&low.b, "b", &[weight.sides().first().copied().unwrap_or(0), rank])?;
    let (a, b) = (&*Floats::activations(&low.a, "a")?, &*Floats::activations(&low.b, "b")?);
    let a = Matrix::packed(a, rank, inputs).transposed();
    let down = thin_product(x, rank, |tile, x| tile.multiply_batch_invariant(false, 1.0, x, a))?;
    let locked = Locked::of(&down, "xa")?;
    let numbers = locked.data("xa")?;
    let result = linear_tiles(x.dtype(), x, weight, bias, |rows, columns, tile| {
        let left = Matrix::new(numbers.skip(rows.start * rank), rows.len(), rank, rank);
        let right = Matrix::packed(&b[columns.start * rank..], columns.len(), rank).transposed();
        tile.multiply_batch_invariant(true, low.scale, left, right);
    })?;
    drop(locked);
    Ok((result, down))
}

/// Computes the gradient of `x·Aᵀ` in [`adapted_linear`], `s·dy·B`, `[tokens, rank]` in the type of `dy`: `dy` is the
/// gradient of the output, `[tokens, out]`. Returns an error if shapes or devices do not fit each other.
///
/// The gradients of the adapter follow from it as [`linear_weight_gradient`](super::linear_weight_gradient): A's is
/// `(s·dy·B)ᵀ·x`, with dropout `(s·dy·B)ᵀ·drop(x)`, and B's is `s·dyᵀ·(x·Aᵀ)`.
pub fn reduced_gradient(dy: &Tensor, low: &LowRank) -> Result<Tensor> {
    let ((_, outputs), (_, rank)) = (host::matrix_dims(dy, "dy")?, host::matrix_dims(&low.b, "b")?);
    host::expect_shape(&low.b, "b", &[outputs, rank])?;
    if let Some(device) = accelerator_of([(dy, "dy"), (&low.b, "b")])? {
        let act = expect_type(dy, "dy")?;
        expect_type(&low.b, "b")?;
        return product(&device, MatrixView::plain(dy), MatrixView::plain(&device.cast(&low.b, act)?), act, low.scale);
    }
    let b = &*Floats::activations(&low.b, "b")?;
    let b = Matrix::packed(b, outputs, rank);
    thin_product(dy, rank, |tile, dy| tile.multiply(false, low.scale, dy, b))
}

/// Computes the gradient of [`adapted_linear`] with respect to its input, `dy·W + drop(reduced·A)`, `[tokens, in]` in
/// the type of `dy`: `dy` is the gradient of the output, `[tokens, out]`, and `reduced` is what [`reduced_gradient`]
/// returned for it. `dropout` must be that of the forward pass. Adds the result to `total`, if given, which is
/// overwritten on a device: no other tensor may share its memory. Returns an error if shapes or devices do not fit each
/// other.
pub fn adapted_input_gradient<'w>(
    dy: &Tensor,
    reduced: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
    dropout: Option<&Dropout>,
    total: Option<Tensor>,
) -> Result<Tensor> {
    let ((tokens, outputs), (rank, inputs)) = (host::matrix_dims(dy, "dy")?, host::matrix_dims(&low.a, "a")?);
    let weight = weight.into();
    host::expect_dims(&weight.sides(), "weight", &[outputs, inputs])?;
    host::expect_shape(reduced, "reduced", &[tokens, rank])?;
    if let Some(device) = accelerator_with([(dy, "dy"), (reduced, "reduced"), (&low.a, "a")], weight)? {
        return input_gradient_on_device(&device, dy, reduced, weight, low, dropout, total);
    }
    let found = match dropout {
        Some(dropout) => {
            let dropped = dropout.apply(&linear_input_gradient(reduced, &low.a)?)?;
            residual::add(&linear_input_gradient(dy, weight)?, &dropped)?
        }
        None => {
            let a = &*Floats::activations(&low.a, "a")?;
            let locked = Locked::of(reduced, "reduced")?;
            let numbers = locked.data("reduced")?;
            transposed_linear_tiles(dy.dtype(), dy, weight, |rows, columns, tile| {
                let left = Matrix::new(numbers.skip(rows.start * rank), rows.len(), rank, rank);
                tile.multiply(true, 1.0, left, Matrix::strided(&a[columns.start..], rank, columns.len(), inputs));
            })?
        }
    };
    add_to(total, found)
}

/// Computes a product of few columns, `[tokens, rank]` in the type of `left`, in tasks of [`TOKENS`] tokens. `multiply`
/// gets the tile to fill and the rows of `left`, `[tokens, depth]`, that belong to the tile.
fn thin_product(left: &Tensor, rank: usize, multiply: impl Fn(&mut Tile<'_>, Matrix<'_>) + Sync) -> Result<Tensor> {
    let ((tokens, depth), dtype, locked) = (host::matrix_dims(left, "x")?, left.dtype(), Locked::of(left, "x")?);
    let left = locked.data("x")?;
    tensor_of_tiles(dtype, [tokens, rank], [TOKENS, FEATURES.max(rank)], |rows, _, tile| {
        multiply(tile, Matrix::new(left.skip(rows.start * depth), rows.len(), depth, depth));
    })
}

/// Computes `x·Wᵀ + b + s·(drop(x)·Aᵀ)·Bᵀ` on a device, without dropout if that is `None`. Returns the output and
/// `drop(x)·Aᵀ`, both in the type of `x`. A and B of f32 are rounded to that type; their gradients stay in f32. Fails
/// if shapes do not fit each other, or x, A or B is not f32 or bf16.
fn adapted_linear_on_device(
    device: &Accelerator,
    x: &Tensor,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
    low: &LowRank,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let (_, inputs) = host::matrix_dims(x, "x")?;
    let ([outputs, _], (rank, _)) = (sides(weight, "weight")?, host::matrix_dims(&low.a, "a")?);
    host::expect_shape(&low.a, "a", &[rank, inputs])?;
    host::expect_shape(&low.b, "b", &[outputs, rank])?;
    let act = expect_type(x, "x")?;
    expect_type(&low.a, "a")?;
    expect_type(&low.b, "b")?;
    let (dropped, a, b) = (drop_values(x, dropout)?, device.cast(&low.a, act)?, device.cast(&low.b, act)?);
    let down = product(device, MatrixView::plain(&dropped), MatrixView::transposed(&a), act, 1.0)?;
    // The thin product comes first: the large one adds to it while it computes, where a thin one would read and write
    // the whole output once more.
    let up = product(device, MatrixView::plain(&down), MatrixView::transposed(&b), act, low.scale)?;
    let y = add_linear(device, up, x, weight)?;
    bias.map_or(Ok(()), |bias| add_bias(device, &y, bias))?;
    Ok((y, down))
}

/// Computes `dy·W + drop(reduced·A)`, plus `total` if given, on a device; without dropout if `dropout` is `None`.
/// Writes into the memory of `total`, which no other tensor may share. The caller has checked the shapes.
fn input_gradient_on_device(
    device: &Accelerator,
    dy: &Tensor,
    reduced: &Tensor,
    weight: WeightRef<'_>,
    low: &LowRank,
    dropout: Option<&Dropout>,
    total: Option<Tensor>,
) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    expect_type(&low.a, "a")?;
    let a = device.cast(&low.a, act)?;
    let (reduced, a) = (MatrixView::plain(reduced), MatrixView::plain(&a));
    let total = match (dropout, total) {
        (None, None) => product(device, reduced, a, act, 1.0)?,
        (None, Some(total)) => {
            device.multiply(&total, reduced, a, 1.0, true)?;
            total
        }
        (Some(dropout), total) => add_to(total, dropout.apply(&product(device, reduced, a, act, 1.0)?)?)?,
    };
    add_linear_input_gradient(Some(total), dy, weight)
}

/// Returns `x` after dropout, or `x` itself, borrowed, if there is no dropout.
fn drop_values<'a>(x: &'a Tensor, dropout: Option<&Dropout>) -> Result<Cow<'a, Tensor>> {
    dropout.map_or(Ok(Cow::Borrowed(x)), |dropout| Ok(Cow::Owned(dropout.apply(x)?)))
}

#[cfg(test)]
mod tests;
