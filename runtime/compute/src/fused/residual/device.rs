//! The sum as one launch.

use candle_core::Tensor;

use crate::accelerator::{Accelerator, Argument, kernel};
use crate::error::Result;
use crate::fused::device::{expect_dtype, expect_type};

pub(super) fn add(device: &Accelerator, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let act = expect_type(a, "a")?;
    expect_dtype(b, "b", act)?;
    let (y, numbers) = (device.empty(a.dims(), act)?, a.elem_count());
    let arguments = [(&y).into(), a.into(), b.into(), Argument::Long(numbers as u64)];
    device.launch(&kernel::ADD, act, device.flat(numbers), &arguments)?;
    Ok(y)
}
