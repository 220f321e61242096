//! The gate as one launch, rows side by side.

use candle_core::Tensor;

use super::Activation;
use crate::accelerator::{Accelerator, arguments, kernel};
use crate::error::Result;
use crate::fused::device::{expect_type, over_rows};

/// [`gated`](super::gated) on a device.
pub(super) fn gated(device: &Accelerator, gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    let act = expect_type(gate, "gate")?;
    let (rows, columns) = sides(gate);
    let arguments = arguments![gate, up, rows, columns, columns as u64, number(activation)];
    device.compute(&kernel::GATED, act, over_rows(device, rows), gate.dims(), &arguments)
}

/// [`gated_backward`](super::gated_backward) on a device.
pub(super) fn gated_backward(
    device: &Accelerator,
    dy: &Tensor,
    gate: &Tensor,
    up: &Tensor,
    activation: Activation,
) -> Result<(Tensor, Tensor)> {
    let act = expect_type(gate, "gate")?;
    let (rows, columns) = sides(gate);
    let (dgate, dup) = (device.empty(gate.dims(), act)?, device.empty(gate.dims(), act)?);
    let arguments = arguments![&dgate, &dup, dy, gate, up, rows, columns, columns as u64, number(activation)];
    device.launch(&kernel::GATED_BACKWARD, act, over_rows(device, rows), &arguments)?;
    Ok((dgate, dup))
}

/// A tensor of any shape as rows.
fn sides(tensor: &Tensor) -> (usize, usize) {
    let columns = tensor.dims().last().copied().unwrap_or(1).max(1);
    (tensor.elem_count() / columns, columns)
}

/// The number by which the kernel knows an activation.
fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
    }
}
