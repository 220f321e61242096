//! A linear layer with a low-rank adapter, `y = x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ` (LoRA, Hu et al. 2021), and its gradients.
//!
//! The second product is added to each tile of the first while the tile is still near the processor.

use std::borrow::Cow;

use candle_core::{DType, Tensor};

use super::backend::accelerator_with;
use super::device::expect_type;
use super::dropout::Dropout;
use super::host::{self, Floats, Locked};
use super::linear::{
    FEATURES, linear, linear_input_gradient, linear_tiles, linear_weight_gradient, product, sides, tensor_of_tiles,
    transposed_linear_tiles, transposed_product,
};
use super::product::{Matrix, Tile};
use super::residual;
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

/// Gradients of an adapted layer with respect to its input and the matrices of its adapter.
#[derive(Debug)]
pub struct AdaptedGradient {
    /// `[tokens, in]` in the type of `dy`; `None` if it was not asked for.
    pub input: Option<Tensor>,
    /// `[rank, in]` f32.
    pub a: Tensor,
    /// `[out, rank]` f32.
    pub b: Tensor,
}

impl LowRank {
    /// Returns s·B, `[out, rank]`.
    fn scaled_up(&self) -> Result<Tensor> {
        Ok((&self.b * f64::from(self.scale))?)
    }
}

/// Computes a linear layer with an adapter (`low`), `x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ`: `x` is `[tokens, in]`, `weight` is `[out, in]`
/// in any stored format, `bias` is `[out]` f32. Returns the output, `[tokens, out]`, and `x·Aᵀ`, `[tokens, rank]`, which
/// [`adapted_linear_backward`] needs. Both have the type of `x`. With dropout, both are computed with `drop(x)·Aᵀ` in the
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
        return on_device(&device, x, weight, bias, low, dropout);
    }
    if let Some(dropout) = dropout {
        let reduced = linear(&dropout.apply(x)?, &low.a, None)?;
        let added = linear(&reduced, &low.scaled_up()?, None)?;
        return Ok((residual::add(&linear(x, weight, bias)?, &added)?, reduced));
    }
    let ((_, inputs), (rank, _)) = (host::matrix(x, "x")?, host::matrix(&low.a, "a")?);
    host::expect(&low.a, "a", &[rank, inputs])?;
    host::expect(&low.b, "b", &[weight.sides().first().copied().unwrap_or(0), rank])?;
    let (a, b) = (&*Floats::activations(&low.a, "a")?, &*Floats::activations(&low.b, "b")?);
    let a = Matrix::packed(a, rank, inputs).transposed();
    let down = thin_product(x, rank, |tile, x| tile.multiply_batch_invariant(false, 1.0, x, a))?;
    let locked = Locked::of(&down, "xa")?;
    let numbers = locked.data("xa")?;
    let result = linear_tiles(x, weight, bias, |rows, columns, tile| {
        let left = Matrix::new(numbers.from(rows.start * rank), rows.len(), rank, rank);
        let right = Matrix::packed(&b[columns.start * rank..], columns.len(), rank).transposed();
        tile.multiply_batch_invariant(true, low.scale, left, right);
    })?;
    drop(locked);
    Ok((result, down))
}

/// Computes the gradients of [`adapted_linear`]: `dA = s·(dy·B)ᵀ·x`, `dB = s·dyᵀ·(x·Aᵀ)`, and, if `want_input`,
/// `dx = dy·W + s·(dy·B)·A`. `dy` is the gradient of the output, `[tokens, out]`; `xa` is the `x·Aᵀ` that the forward pass
/// returned. `dropout` must be that of the forward pass; it is applied to x in `dA` and to `s·(dy·B)·A` in `dx`.
/// Gradients of A and B are f32, the input's has the type of `dy`. Returns an error if shapes or devices do not fit.
pub fn adapted_linear_backward<'w>(
    dy: &Tensor,
    x: &Tensor,
    xa: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
    dropout: Option<&Dropout>,
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
    if let Some(device) = accelerator_with(operands, weight)? {
        return backward_on_device(&device, dy, x, xa, weight, low, dropout, want_input);
    }
    if let Some(dropout) = dropout {
        let thin = linear_input_gradient(dy, &low.scaled_up()?)?;
        let dropped = |thin| dropout.apply(&linear_input_gradient(thin, &low.a)?);
        let input = || residual::add(&linear_input_gradient(dy, weight)?, &dropped(&thin)?);
        return Ok(AdaptedGradient {
            input: want_input.then(input).transpose()?,
            a: linear_weight_gradient(&thin, &dropout.apply(x)?)?,
            b: (linear_weight_gradient(dy, xa)? * f64::from(low.scale))?,
        });
    }
    let (a, b) = (&*Floats::activations(&low.a, "a")?, &*Floats::activations(&low.b, "b")?);
    let b = Matrix::packed(b, outputs, rank);
    let thin = thin_product(dy, rank, |tile, dy| tile.multiply(false, low.scale, dy, b))?;
    let locked = Locked::of(&thin, "dy·B")?;
    let numbers = locked.data("dy·B")?;
    let input = want_input.then(|| {
        transposed_linear_tiles(dy, weight, |rows, columns, tile| {
            let left = Matrix::new(numbers.from(rows.start * rank), rows.len(), rank, rank);
            tile.multiply(true, 1.0, left, Matrix::strided(&a[columns.start..], rank, columns.len(), inputs));
        })
    });
    Ok(AdaptedGradient {
        input: input.transpose()?,
        a: transposed_product(1.0, (&thin, "dy·B"), (x, "x"))?,
        b: transposed_product(low.scale, (dy, "dy"), (xa, "xa"))?,
    })
}

/// Computes a product of few columns, `[tokens, rank]` in the type of `left`, in tasks of [`TOKENS`] tokens. `multiply`
/// gets the tile to fill and the rows of `left`, `[tokens, depth]`, that belong to the tile.
fn thin_product(left: &Tensor, rank: usize, multiply: impl Fn(&mut Tile<'_>, Matrix<'_>) + Sync) -> Result<Tensor> {
    let ((tokens, depth), dtype, locked) = (host::matrix(left, "x")?, left.dtype(), Locked::of(left, "x")?);
    let left = locked.data("x")?;
    tensor_of_tiles(dtype, [tokens, rank], [TOKENS, FEATURES.max(rank)], |rows, _, tile| {
        multiply(tile, Matrix::new(left.from(rows.start * depth), rows.len(), depth, depth));
    })
}

/// Computes `x·Wᵀ + b + s·(drop(x)·Aᵀ)·Bᵀ` on a device, without dropout if that is `None`. Returns the output and
/// `drop(x)·Aᵀ`, both in the type of `x`. A and B of f32 are rounded to that type; their gradients stay in f32.
fn on_device(
    device: &Accelerator,
    x: &Tensor,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
    low: &LowRank,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let (_, inputs) = host::matrix(x, "x")?;
    let ([outputs, _], (rank, _)) = (sides(weight)?, host::matrix(&low.a, "a")?);
    host::expect(&low.a, "a", &[rank, inputs])?;
    host::expect(&low.b, "b", &[outputs, rank])?;
    let y = linear(x, weight, bias)?;
    let act = expect_type(x, "x")?;
    expect_type(&low.a, "a")?;
    let (x, a) = (drop_values(x, dropout)?, device.cast(&low.a, act)?);
    let down = product(device, MatrixView::plain(&x), MatrixView::transposed(&a), act, 1.0)?;
    expect_type(&low.b, "b")?;
    let b = device.cast(&low.b, act)?;
    device.multiply(&y, MatrixView::plain(&down), MatrixView::transposed(&b), low.scale, true)?;
    Ok((y, down))
}

/// Returns `x` after dropout, or `x` itself, borrowed, if there is no dropout.
fn drop_values<'a>(x: &'a Tensor, dropout: Option<&Dropout>) -> Result<Cow<'a, Tensor>> {
    dropout.map_or(Ok(Cow::Borrowed(x)), |dropout| Ok(Cow::Owned(dropout.apply(x)?)))
}

/// Computes the gradients of the adapted layer with respect to A, B and, if `want_input`, x on a device. `xa` and `dropout`
/// are those of the forward pass. The caller has checked the shapes.
#[expect(clippy::too_many_arguments, reason = "the terms of one formula")]
fn backward_on_device(
    device: &Accelerator,
    dy: &Tensor,
    x: &Tensor,
    xa: &Tensor,
    weight: WeightRef<'_>,
    low: &LowRank,
    dropout: Option<&Dropout>,
    want_input: bool,
) -> Result<AdaptedGradient> {
    let thin = unproject(device, dy, low)?;
    let input = || {
        expect_type(&low.a, "a")?;
        let (dx, a) = (linear_input_gradient(dy, weight)?, device.cast(&low.a, dy.dtype())?);
        let (thin, a) = (MatrixView::plain(&thin), MatrixView::plain(&a));
        match dropout {
            None => device.multiply(&dx, thin, a, 1.0, true).map(|()| dx),
            Some(dropout) => residual::add(&dx, &dropout.apply(&product(device, thin, a, dy.dtype(), 1.0)?)?),
        }
    };
    let (input, x) = (want_input.then(input).transpose()?, drop_values(x, dropout)?);
    Ok(AdaptedGradient {
        input,
        a: linear_weight_gradient(&thin, &x)?,
        b: product(device, MatrixView::transposed(dy), MatrixView::plain(xa), DType::F32, low.scale)?,
    })
}

/// Computes `s·dy·B` on a device, `[tokens, rank]` in the type of `dy`.
fn unproject(device: &Accelerator, dy: &Tensor, low: &LowRank) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    expect_type(&low.b, "b")?;
    product(device, MatrixView::plain(dy), MatrixView::plain(&device.cast(&low.b, act)?), act, low.scale)
}

#[cfg(test)]
mod tests;
