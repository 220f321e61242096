//! The mask made where the numbers are, out of the key of its stream, and the layer around it.

use candle_core::Tensor;

use super::Dropout;
use crate::accelerator::{Accelerator, Grid, MatrixView, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::expect_type;
use crate::fused::linear::device::{input_gradient, linear, product, weight_gradient};
use crate::fused::low_rank::device::{add_up_projection, project, unproject};
use crate::fused::low_rank::{AdaptedGradient, LowRank};
use crate::fused::residual;
use crate::weight::WeightRef;

const THREADS: u32 = 256;
/// Numbers of one block: each thread has a block of the stream.
const NUMBERS: usize = 16 * THREADS as usize;

/// Applies the mask that the key of a stream makes; kept values are multiplied with `widened`.
pub(super) fn apply(device: &Accelerator, values: &Tensor, key: [u32; 8], rate: f32, widened: f32) -> Result<Tensor> {
    let act = expect_type(values, "values")?;
    let (y, key, numbers) = (device.empty(values.dims(), act)?, device.upload(&key, &[8])?, values.elem_count());
    let arguments = arguments![&y, values, &key, 0u64, numbers as u64, rate, widened];
    device.launch(&kernel::DROPOUT, act, Grid::of(extent(numbers.div_ceil(NUMBERS))?, THREADS), &arguments)?;
    Ok(y)
}

/// [`dropout_linear`](super::dropout_linear) on a device.
pub(super) fn dropout_linear(
    device: &Accelerator,
    x: &Tensor,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
    low: &LowRank,
    dropout: &Dropout,
) -> Result<(Tensor, Tensor)> {
    let y = linear(device, x, weight, bias)?;
    let reduced = project(device, &dropout.apply(x)?, &low.a)?;
    add_up_projection(device, &y, &reduced, low)?;
    Ok((y, reduced))
}

/// [`dropout_linear_backward`](super::dropout_linear_backward) on a device.
#[expect(clippy::too_many_arguments, reason = "the terms of one formula")]
pub(super) fn dropout_linear_backward(
    device: &Accelerator,
    dy: &Tensor,
    x: &Tensor,
    reduced: &Tensor,
    weight: WeightRef<'_>,
    low: &LowRank,
    dropout: &Dropout,
    want_input: bool,
) -> Result<AdaptedGradient> {
    let thin = unproject(device, dy, low)?;
    let through = || {
        let a = device.cast(&low.a, dy.dtype())?;
        let through = product(device, MatrixView::plain(&thin), MatrixView::plain(&a), dy.dtype(), 1.0)?;
        residual::add(&input_gradient(device, dy, weight)?, &dropout.apply(&through)?)
    };
    Ok(AdaptedGradient {
        input: want_input.then(through).transpose()?,
        a: weight_gradient(device, &thin, &dropout.apply(x)?, 1.0)?,
        b: weight_gradient(device, dy, reduced, low.scale)?,
    })
}
