//! The adapted layer as products of the device; the thin ones add to the large one's result.
//!
//! A and B meet activations in their type: f32 ones are rounded to it, as is what lies between them. Their gradients are
//! summed and left in f32.

use candle_core::Tensor;

use super::{AdaptedGradient, LowRank};
use crate::accelerator::{Accelerator, MatrixView};
use crate::error::Result;
use crate::fused::device::expect_type;
use crate::fused::host;
use crate::fused::linear::device::{input_gradient, linear, product, sides, weight_gradient};
use crate::weight::WeightRef;

/// [`adapted_linear`](super::adapted_linear) on a device.
pub(super) fn adapted_linear(
    device: &Accelerator,
    x: &Tensor,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
    low: &LowRank,
) -> Result<(Tensor, Tensor)> {
    let (_, inputs) = host::matrix(x, "x")?;
    let ([outputs, _], (rank, _)) = (sides(weight)?, host::matrix(&low.a, "a")?);
    host::expect(&low.a, "a", &[rank, inputs])?;
    host::expect(&low.b, "b", &[outputs, rank])?;
    let y = linear(device, x, weight, bias)?;
    let down = project(device, x, &low.a)?;
    add_up_projection(device, &y, &down, low)?;
    Ok((y, down))
}

/// `x·Aᵀ` in the type of `x`.
pub(in crate::fused) fn project(device: &Accelerator, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    expect_type(a, "a")?;
    product(device, MatrixView::plain(x), MatrixView::transposed(&device.cast(a, act)?), act, 1.0)
}

/// `y ← y + s·down·Bᵀ`.
pub(in crate::fused) fn add_up_projection(
    device: &Accelerator,
    y: &Tensor,
    down: &Tensor,
    low: &LowRank,
) -> Result<()> {
    expect_type(&low.b, "b")?;
    let b = device.cast(&low.b, y.dtype())?;
    device.multiply(y, MatrixView::plain(down), MatrixView::transposed(&b), low.scale, true)
}

/// [`adapted_linear_backward`](super::adapted_linear_backward) on a device.
pub(super) fn adapted_linear_backward(
    device: &Accelerator,
    dy: &Tensor,
    x: &Tensor,
    xa: &Tensor,
    weight: WeightRef<'_>,
    low: &LowRank,
    want_input: bool,
) -> Result<AdaptedGradient> {
    let thin = unproject(device, dy, low)?;
    let input = want_input.then(|| input_gradient_with_adapter(device, dy, &thin, weight, low)).transpose()?;
    Ok(AdaptedGradient {
        input,
        a: weight_gradient(device, &thin, x, 1.0)?,
        b: weight_gradient(device, dy, xa, low.scale)?,
    })
}

/// `dy·W + thin·A`.
fn input_gradient_with_adapter(
    device: &Accelerator,
    dy: &Tensor,
    thin: &Tensor,
    weight: WeightRef<'_>,
    low: &LowRank,
) -> Result<Tensor> {
    expect_type(&low.a, "a")?;
    let (dx, a) = (input_gradient(device, dy, weight)?, device.cast(&low.a, dy.dtype())?);
    device.multiply(&dx, MatrixView::plain(thin), MatrixView::plain(&a), 1.0, true)?;
    Ok(dx)
}

/// `s·dy·B` in the type of `dy`.
pub(in crate::fused) fn unproject(device: &Accelerator, dy: &Tensor, low: &LowRank) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    expect_type(&low.b, "b")?;
    product(device, MatrixView::plain(dy), MatrixView::plain(&device.cast(&low.b, act)?), act, low.scale)
}
