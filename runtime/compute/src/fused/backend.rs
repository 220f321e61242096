//! Finds the accelerator that an operation runs on.
//!
//! An operation is one function that checks its operands and then works on slices of the CPU, or launches kernels on
//! the accelerator that its operands are on. CUDA and Metal share that way: their kernels have the same names and
//! arguments.

use candle_core::Tensor;

use crate::accelerator::Accelerator;
use crate::device::describe;
use crate::error::{Error, Result};
use crate::weight::WeightRef;

/// Returns the accelerator that all operands are on; `None` if they are on the CPU or there are no operands. Each
/// operand comes with its name for errors.
///
/// # Errors
/// [`Error::Argument`], which names both devices, if two operands are on different ones. [`Error::Unavailable`] for a
/// device that was not opened by [`parse`](crate::device::parse).
pub(super) fn accelerator_of<const N: usize>(operands: [(&Tensor, &str); N]) -> Result<Option<Accelerator>> {
    let Some((first, name)) = operands.first() else { return Ok(None) };
    for (operand, other) in &operands {
        if !operand.device().same_device(first.device()) {
            let (here, there) = (describe(first.device()), describe(operand.device()));
            return Err(Error::argument(format!("`{name}` is on `{here}` and `{other}` on `{there}`")));
        }
    }
    Accelerator::of(first.device())
}

/// Returns the accelerator that all operands and a weight in any format are on; `None` if they are on the CPU. Each
/// operand comes with its name for errors. Without operands, the weight alone decides.
///
/// # Errors
/// [`Error::Argument`], which names both devices, if two operands, or the first operand and the weight, are on
/// different ones. [`Error::Unavailable`] for a device that was not opened by [`parse`](crate::device::parse).
pub(super) fn accelerator_with<const N: usize>(
    operands: [(&Tensor, &str); N],
    weight: WeightRef<'_>,
) -> Result<Option<Accelerator>> {
    accelerator_of(operands)?;
    let there = weight.device();
    match operands.first() {
        Some((first, name)) if !first.device().same_device(there) => {
            let (here, there) = (describe(first.device()), describe(there));
            Err(Error::argument(format!("`{name}` is on `{here}` and the weight on `{there}`")))
        }
        _ => Accelerator::of(there),
    }
}
