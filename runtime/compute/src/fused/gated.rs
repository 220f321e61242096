//! The gate of a feed-forward block, `activation(gate) · up` (SwiGLU, GeGLU; Shazeer 2020), and its gradients.

use candle_core::Tensor;

use super::backend::accelerator_of;
use super::chunks::map_chunks;
use super::device::{expect_one_type, over_rows};
use super::host;
use super::simd::{exp, sigmoid, vectorize};
use crate::accelerator::{Accelerator, arguments, kernel};
use crate::error::Result;

/// Numbers of one task.
const TASK_NUMBERS: usize = 1 << 12;
/// √(2/π), the factor in the tanh form of GELU.
const SLOPE: f32 = 0.797_884_6;
/// The cubic coefficient of the tanh form of GELU.
const CUBIC: f32 = 0.044_715;

/// The activation function of a gate. Kernels get the discriminant of this enum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x).
    #[default]
    Silu,
    /// ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
    GeluTanh,
}

/// Computes `activation(gate) · up` elementwise, for tensors of one shape and type, f32 or bf16. Computes in f32 and
/// rounds to the type of `gate`. Returns an error if shapes or devices differ, or types on a device.
pub fn gated(gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    host::expect_shape(up, "up", gate.dims())?;
    if let Some(device) = accelerator_of([(gate, "gate"), (up, "up")])? {
        let (act, [rows, columns]) = (expect_one_type([(gate, "gate"), (up, "up")])?, rows_and_columns(gate));
        let arguments = arguments![gate, up, rows, columns, columns as u64, activation as u32];
        return device.compute(&kernel::GATED, act, over_rows(&device, rows), gate.dims(), &arguments);
    }
    let [y] = map_chunks([(gate, "gate"), (up, "up")], TASK_NUMBERS, |_, [gate, up], [y]| match activation {
        Activation::Silu => vectorize!(write_gated(y, gate, up, silu)),
        Activation::GeluTanh => vectorize!(write_gated(y, gate, up, gelu)),
    })?;
    y
}

/// Returns the gradients (dgate, dup) of [`gated`] with respect to `gate` and `up`, in their shape and the type of
/// `gate`, from `dy`, the gradient of the result: `dgate = dy·up·activation'(gate)`, `dup = dy·activation(gate)`. All
/// three are f32 or bf16. Returns an error if shapes or devices differ, or types on a device.
pub fn gated_backward(dy: &Tensor, gate: &Tensor, up: &Tensor, activation: Activation) -> Result<(Tensor, Tensor)> {
    host::expect_shape(up, "up", gate.dims())?;
    host::expect_shape(dy, "dy", gate.dims())?;
    if let Some(device) = accelerator_of([(gate, "gate"), (up, "up"), (dy, "dy")])? {
        return gradients_on_device(&device, dy, gate, up, activation, None);
    }
    let operands = [(gate, "gate"), (up, "up"), (dy, "dy")];
    let [dgate, dup] = map_chunks(operands, TASK_NUMBERS, |_, [gate, up, dy], [dgate, dup]| match activation {
        Activation::Silu => vectorize!(write_gradients(dgate, dup, dy, gate, up, silu)),
        Activation::GeluTanh => vectorize!(write_gradients(dgate, dup, dy, gate, up, gelu)),
    })?;
    Ok((dgate?, dup?))
}

/// Returns (dgate, dup, result): the gradients as [`gated_backward`] returns them, and the result of [`gated`],
/// computed again. A device reads gate and up once for both. Returns an error if shapes or devices differ, or types on
/// a device.
pub fn gated_backward_with_result(
    dy: &Tensor,
    gate: &Tensor,
    up: &Tensor,
    activation: Activation,
) -> Result<(Tensor, Tensor, Tensor)> {
    host::expect_shape(up, "up", gate.dims())?;
    host::expect_shape(dy, "dy", gate.dims())?;
    let Some(device) = accelerator_of([(gate, "gate"), (up, "up"), (dy, "dy")])? else {
        let (dgate, dup) = gated_backward(dy, gate, up, activation)?;
        return Ok((dgate, dup, gated(gate, up, activation)?));
    };
    let result = device.empty(gate.dims(), gate.dtype())?;
    let (dgate, dup) = gradients_on_device(&device, dy, gate, up, activation, Some(&result))?;
    Ok((dgate, dup, result))
}

/// Queues the kernel of the gradients and returns (dgate, dup). It also writes the result of [`gated`] to `result`, if
/// given. The caller has checked the shapes. Returns an error if the types differ.
fn gradients_on_device(
    device: &Accelerator,
    dy: &Tensor,
    gate: &Tensor,
    up: &Tensor,
    activation: Activation,
    result: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let act = expect_one_type([(gate, "gate"), (up, "up"), (dy, "dy")])?;
    let [rows, columns] = rows_and_columns(gate);
    let (dgate, dup) = (device.empty(gate.dims(), act)?, device.empty(gate.dims(), act)?);
    let (stride, activation) = (columns as u64, activation as u32);
    let arguments = arguments![&dgate, &dup, result, dy, gate, up, rows, columns, stride, activation];
    device.launch(&kernel::GATED_BACKWARD, act, over_rows(device, rows), &arguments)?;
    Ok((dgate, dup))
}

/// Returns rows and columns of a tensor of any rank: the last axis is the columns, at least 1; all others together are
/// the rows.
fn rows_and_columns(tensor: &Tensor) -> [usize; 2] {
    let columns = tensor.dims().last().copied().unwrap_or(1).max(1);
    [tensor.elem_count() / columns, columns]
}

/// Writes `activation(gate) · up` to `y`. `activation` returns a value and its derivative, of which only the value is
/// used.
#[inline(always)]
fn write_gated(y: &mut [f32], gate: &[f32], up: &[f32], activation: impl Fn(f32) -> (f32, f32)) {
    for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
        *y = activation(*gate).0 * up;
    }
}

/// Writes `dy·up·activation'(gate)` to `dgate` and `dy·activation(gate)` to `dup`; `activation` returns a value and its
/// derivative.
#[inline(always)]
fn write_gradients(
    dgate: &mut [f32],
    dup: &mut [f32],
    dy: &[f32],
    gate: &[f32],
    up: &[f32],
    activation: impl Fn(f32) -> (f32, f32),
) {
    for ((((dgate, dup), dy), gate), up) in dgate.iter_mut().zip(dup).zip(dy).zip(gate).zip(up) {
        let (value, slope) = activation(*gate);
        *dgate = dy * up * slope;
        *dup = dy * value;
    }
}

/// Returns x·σ(x) and its derivative, σ(x)·(1 + x·(1 − σ(x))).
#[inline(always)]
fn silu(x: f32) -> (f32, f32) {
    let open = sigmoid(x);
    (x * open, open * x.mul_add(1.0 - open, 1.0))
}

/// Returns the tanh form of GELU and its derivative.
#[inline(always)]
fn gelu(x: f32) -> (f32, f32) {
    let square = x * x;
    let inner = SLOPE * (3.0 * CUBIC).mul_add(square, 1.0);
    let angle = 2.0 * SLOPE * x * CUBIC.mul_add(square, 1.0);
    // ½(1 + tanh z) is the sigmoid of 2z. From the tail on its nearer side both it and 1 − tanh² keep their digits.
    let tail = exp(-angle.abs());
    let near = 1.0 / (1.0 + tail);
    let half = if angle < 0.0 { tail * near } else { near };
    (x * half, (2.0 * x * inner).mul_add(tail * near * near, half))
}

#[cfg(test)]
mod tests;
