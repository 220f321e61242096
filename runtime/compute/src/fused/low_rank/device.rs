//! The adapted layer as products of the device; the thin ones add to the large one's result.
//!
//! A and B meet activations in their type: f32 ones are rounded to it, as is what lies between them. Their gradients
//! are summed and left in f32.

use std::borrow::Cow;

use candle_core::Tensor;

use super::{AdaptedGradient, LowRank};
use crate::accelerator::{Accelerator, MatrixView};
use crate::error::Result;
use crate::fused::device::expect_type;
use crate::fused::dropout::Dropout;
use crate::fused::host;
use crate::fused::linear::device::{input_gradient, linear, product, sides, weight_gradient};
use crate::fused::residual;
use crate::weight::WeightRef;

/// Computes `x·Wᵀ + b + s·(drop(x)·Aᵀ)·Bᵀ` on a device, without dropout if that is `None`. Returns the output and
/// `drop(x)·Aᵀ`, both in the type of `x`.
pub(in crate::fused) fn adapted_linear(
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
    let y = linear(device, x, weight, bias)?;
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

/// Computes the gradients of the adapted layer by A, by B and, if `want_input`, by x on a device. `xa` and `dropout`
/// are those of the forward pass.
#[expect(clippy::too_many_arguments, reason = "the terms of one formula")]
pub(in crate::fused) fn adapted_linear_backward(
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
        let (dx, a) = (input_gradient(device, dy, weight)?, device.cast(&low.a, dy.dtype())?);
        let (thin, a) = (MatrixView::plain(&thin), MatrixView::plain(&a));
        match dropout {
            None => device.multiply(&dx, thin, a, 1.0, true).map(|()| dx),
            Some(dropout) => residual::add(&dx, &dropout.apply(&product(device, thin, a, dy.dtype(), 1.0)?)?),
        }
    };
    let (input, x) = (want_input.then(input).transpose()?, drop_values(x, dropout)?);
    Ok(AdaptedGradient {
        input,
        a: weight_gradient(device, &thin, &x, 1.0)?,
        b: weight_gradient(device, dy, xa, low.scale)?,
    })
}

/// Computes `s·dy·B`, `[tokens, rank]` in the type of `dy`.
fn unproject(device: &Accelerator, dy: &Tensor, low: &LowRank) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    expect_type(&low.b, "b")?;
    product(device, MatrixView::plain(dy), MatrixView::plain(&device.cast(&low.b, act)?), act, low.scale)
}
