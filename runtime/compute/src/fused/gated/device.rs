//! The gate as one launch, rows side by side.

use candle_core::Tensor;

use super::Activation;
use crate::accelerator::{Accelerator, arguments, kernel};
use crate::error::Result;
use crate::fused::device::{expect_type, over_rows};

/// Computes `activation(gate) · up` on a device, in one launch.
pub(super) fn gated(device: &Accelerator, gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    let act = expect_type(gate, "gate")?;
    let (rows, columns) = sides(gate);
    let arguments = arguments![gate, up, rows, columns, columns as u64, number(activation)];
    device.compute(&kernel::GATED, act, over_rows(device, rows), gate.dims(), &arguments)
}

/// Computes the gradients of `activation(gate) · up` by `gate` and by `up`, in this order, on a device.
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

/// Returns rows and columns of a tensor of any rank: the last axis is the columns, all others together the rows.
fn sides(tensor: &Tensor) -> (usize, usize) {
    let columns = tensor.dims().last().copied().unwrap_or(1).max(1);
    (tensor.elem_count() / columns, columns)
}

/// Returns the code of an activation in the kernels: 0 for SiLU, 1 for the tanh form of GELU.
fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
    }
}
