//! The backend of an operation: slices of the CPU, or launches on the accelerator that its operands are on.
//!
//! An operation is one function that checks its operands and then matches on the backend. CUDA and Metal share an arm of
//! the match, since their kernels have the same names and arguments.

use candle_core::Tensor;

use crate::accelerator::Accelerator;
use crate::device::describe;
use crate::error::{Error, Result};
use crate::weight::WeightRef;

/// Where an operation runs.
pub(super) enum Backend {
    Cpu,
    Device(Accelerator),
}

impl Backend {
    /// The backend of all operands, each given with its name.
    ///
    /// # Errors
    /// [`Error::Argument`] with both devices if two operands are on different ones.
    pub(super) fn of<const N: usize>(operands: [(&Tensor, &str); N]) -> Result<Self> {
        let Some((first, name)) = operands.first() else { return Ok(Self::Cpu) };
        for (operand, other) in &operands {
            if !operand.device().same_device(first.device()) {
                let (here, there) = (describe(first.device()), describe(operand.device()));
                return Err(Error::argument(format!("`{name}` is on `{here}` and `{other}` on `{there}`")));
            }
        }
        Ok(Accelerator::of(first.device())?.map_or(Self::Cpu, Self::Device))
    }

    /// The backend of a weight.
    pub(super) fn of_weight(weight: WeightRef<'_>) -> Result<Self> {
        Ok(Accelerator::of(weight.device())?.map_or(Self::Cpu, Self::Device))
    }

    /// The backend of all operands and of a weight in any format.
    ///
    /// # Errors
    /// [`Error::Argument`] with both devices if they differ.
    pub(super) fn with_weight<const N: usize>(operands: [(&Tensor, &str); N], weight: WeightRef<'_>) -> Result<Self> {
        let (backend, there) = (Self::of(operands)?, weight.device());
        match operands.first() {
            Some((first, name)) if !first.device().same_device(there) => {
                let (here, there) = (describe(first.device()), describe(there));
                Err(Error::argument(format!("`{name}` is on `{here}` and the weight on `{there}`")))
            }
            _ => Ok(backend),
        }
    }
}
