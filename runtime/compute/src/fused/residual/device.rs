//! The sum as one launch.

use candle_core::Tensor;

use crate::accelerator::{Accelerator, arguments, kernel};
use crate::error::Result;
use crate::fused::device::expect_type;

/// Computes `a + b` on a device, in the type of `a`.
pub(super) fn add(device: &Accelerator, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let act = expect_type(a, "a")?;
    let numbers = a.elem_count();
    device.compute(&kernel::ADD, act, device.flat(numbers), a.dims(), &arguments![a, b, numbers as u64])
}
