//! Indices of rows, tokens or positions: checked on the host, and copied to a device once.

use std::ops::Deref;
use std::sync::OnceLock;

use candle_core::{Device, Tensor};

use crate::accelerator::Accelerator;
use crate::error::{Error, Result};

/// Indices of rows, tokens or positions. A pass creates them once and shares them among all of its operations.
#[derive(Debug, Clone, Default)]
pub struct Indices {
    numbers: Vec<u32>,
    /// The copy on the first device that asked.
    copy: OnceLock<[Tensor; 1]>,
}

impl Indices {
    /// Returns the indices as a tensor of a device, `[len]` u32. Keeps the copy for the first device that asks; another
    /// device gets a new copy on each call.
    pub(super) fn on(&self, device: &Device) -> Result<Tensor> {
        let shape = [self.numbers.len()];
        let [copy] = copied_once(&self.copy, device, || match Accelerator::of(device)? {
            None => Ok([Tensor::from_slice(&self.numbers, &shape, device)?]),
            Some(accelerator) => Ok([accelerator.upload(&self.numbers, &shape)?]),
        })?;
        Ok(copy)
    }
}

/// Returns [`Error::Argument`] for the first number that is `count` or more. `what` and `known` are words of the
/// message: `["row", "that are there"]` gives "row 7 is past the 5 that are there".
pub(super) fn check_below(numbers: &[u32], count: usize, [what, known]: [&str; 2]) -> Result<()> {
    match numbers.iter().find(|number| **number as usize >= count) {
        Some(number) => Err(Error::argument(format!("{what} {number} is past the {count} {known}"))),
        None => Ok(()),
    }
}

/// Returns the copies in `cell` if they are on `device`, else the copies that `make` returns for it. Stores these in
/// `cell` if that is still empty: so only the first device's copies are kept, and `make` runs on each call for another
/// device.
pub(super) fn copied_once<const N: usize>(
    cell: &OnceLock<[Tensor; N]>,
    device: &Device,
    make: impl FnOnce() -> Result<[Tensor; N]>,
) -> Result<[Tensor; N]> {
    if let Some(copies) = cell.get().filter(|copies| copies.iter().all(|copy| copy.device().same_device(device))) {
        return Ok(copies.clone());
    }
    let copies = make()?;
    // A second thread that comes here at the same time has equal copies.
    let _ = cell.set(copies.clone());
    Ok(copies)
}

impl From<Vec<u32>> for Indices {
    /// Keeps the numbers on the host; nothing is copied to a device yet.
    fn from(numbers: Vec<u32>) -> Self {
        Self { numbers, copy: OnceLock::new() }
    }
}

impl Deref for Indices {
    type Target = [u32];

    /// The indices on the host, in order.
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
