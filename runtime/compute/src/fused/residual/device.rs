//! The sum as one launch.

use candle_core::Tensor;

use crate::accelerator::{Accelerator, arguments, kernel};
use crate::error::Result;
use crate::fused::device::{expect_dtype, expect_type};

/// [`add`](super::add) on a device.
pub(super) fn add(device: &Accelerator, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let act = expect_type(a, "a")?;
    expect_dtype(b, "b", act)?;
    let (y, numbers) = (device.empty(a.dims(), act)?, a.elem_count());
    let arguments = arguments![&y, a, b, numbers as u64];
    device.launch(&kernel::ADD, act, device.flat(numbers), &arguments)?;
    Ok(y)
}
