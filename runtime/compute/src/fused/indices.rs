//! Numbers of rows, tokens or positions: checked where the host has them, and copied to a device once.

use std::ops::Deref;
use std::sync::OnceLock;

use candle_core::{Device, Tensor};

use crate::accelerator::Accelerator;
use crate::error::Result;

/// Indices of rows, tokens or positions. A pass makes them once and gives them to all of its operations.
#[derive(Debug, Clone, Default)]
pub struct Indices {
    numbers: Vec<u32>,
    /// The copy on the first device that asked.
    placed: OnceLock<Tensor>,
}

impl Indices {
    /// The indices as a tensor of a device, `[len]` u32. Keeps the copy for the first device that asks; another device gets
    /// a new copy on each call.
    pub(super) fn on(&self, device: &Device) -> Result<Tensor> {
        if let Some(placed) = self.placed.get()
            && placed.device().same_device(device)
        {
            return Ok(placed.clone());
        }
        let shape = [self.numbers.len()];
        let made = match Accelerator::of(device)? {
            None => Tensor::from_slice(&self.numbers, &shape, device)?,
            Some(accelerator) => accelerator.upload(&self.numbers, &shape)?,
        };
        // A second thread that comes here at the same time has an equal copy.
        let _ = self.placed.set(made.clone());
        Ok(made)
    }
}

impl From<Vec<u32>> for Indices {
    fn from(numbers: Vec<u32>) -> Self {
        Self { numbers, placed: OnceLock::new() }
    }
}

impl Deref for Indices {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_copied_once_for_a_device() {
        let indices = Indices::from(vec![3, 1, 2]);
        let (first, second) = (indices.on(&Device::Cpu).unwrap(), indices.on(&Device::Cpu).unwrap());
        assert_eq!(first.to_vec1::<u32>().unwrap(), indices[..]);
        assert_eq!(first.id(), second.id());
    }
}
