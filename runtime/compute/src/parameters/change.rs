//! Copies and changes of trained values for a method that updates them itself. Tensors that come and go are on the CPU;
//! on an accelerator each change copies the values to the CPU and back.

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use super::{Parameters, TASK_NUMBERS, update_numbers, update_pairs};
use crate::error::{Error, Result};
use crate::fused::Floats;
use crate::random::Stream;

impl Parameters {
    /// Copies the value of the slot number `index`, or of all slots for `None`, to the CPU: f32, in the slot's shape or
    /// `[len]`. On an accelerator this waits.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot; also when the device fails.
    pub fn copy_value(&self, index: Option<usize>) -> Result<Tensor> {
        self.copied(&self.values, index)
    }

    /// Copies the gradient of the slot number `index`, or of all slots for `None`, to the CPU: f32, in the slot's shape
    /// or `[len]`. On an accelerator this waits.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot; also when the device fails.
    pub fn copy_gradient(&self, index: Option<usize>) -> Result<Tensor> {
        self.copied(&self.gradients, index)
    }

    /// Replaces the value of the slot number `index`, or of all slots for `None`, by `value`: f32 on the CPU, in the
    /// slot's shape or `[len]`. Gradients stay as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot, [`Error::Shape`] for another shape; also when the device fails.
    pub fn assign(&self, index: Option<usize>, value: &Tensor) -> Result<()> {
        let Some(index) = index else { return self.assign_all(value) };
        self.set(index, value)
    }

    /// Subtracts `change` from the value of the slot number `index`, or of all slots for `None`. `change` is f32 on the
    /// CPU, in the slot's shape or `[len]`. Gradients stay as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot, [`Error::Shape`] for another shape; also when the device fails.
    pub fn subtract(&self, index: Option<usize>, change: &Tensor) -> Result<()> {
        let value = self.on_cpu(index)?;
        if value.dims() != change.dims() {
            return Err(wrong_shape(value.dims(), change.dims()));
        }
        if self.accelerator.is_some() {
            return self.assign(index, &(value - change)?);
        }
        update_pairs(&value, &to_plain_f32(change)?, |value, change| *value -= change)
    }

    /// Adds `scale` · z to all values, where the z are independent standard normal numbers of the random stream with
    /// this seed and name, one for each value in the order of the slots. The result does not depend on the number of
    /// threads. On an accelerator, copies the values to the CPU and back.
    ///
    /// # Errors
    /// When the device fails.
    pub fn add_noise(&self, seed: u64, name: &str, scale: f32) -> Result<()> {
        let values = self.on_cpu(None)?;
        update_numbers(&values, |numbers: &mut [f32]| {
            numbers.par_chunks_mut(TASK_NUMBERS).enumerate().for_each(|(task, numbers)| {
                // A normal number takes two words of the stream.
                let mut stream = Stream::at(seed, name, 2 * (task * TASK_NUMBERS) as u64);
                numbers.iter_mut().for_each(|number| *number += scale * stream.normal());
            });
        })?;
        if self.accelerator.is_some() { self.assign_all(&values) } else { Ok(()) }
    }

    /// Returns the value of the slot number `index`, or of all slots for `None`, on the CPU: a view if the buffers are
    /// there, else a copy.
    pub(super) fn on_cpu(&self, index: Option<usize>) -> Result<Tensor> {
        match (&self.accelerator, index) {
            (None, None) => Ok(self.values.clone()),
            (None, Some(index)) => self.value(index),
            (Some(_), _) => self.copied(&self.values, index),
        }
    }

    /// Copies the slot number `index` of the flat buffer `flat`, or all slots for `None`, to the CPU.
    pub(super) fn copied(&self, flat: &Tensor, index: Option<usize>) -> Result<Tensor> {
        let part = index.map_or_else(|| Ok(flat.clone()), |index| self.view(flat, index))?;
        match &self.accelerator {
            None => Ok(part.copy()?),
            Some(accelerator) if index.is_none() => self.layout.gather(accelerator, flat),
            Some(accelerator) => Ok(Tensor::from_vec(accelerator.download::<f32>(&part)?, part.dims(), &Device::Cpu)?),
        }
    }

    /// Replaces all values by `values`, `[len]`, f32 on the CPU. Fails with [`Error::Shape`] for another shape. If an
    /// accelerator fails, the values of some slots may be replaced already.
    fn assign_all(&self, values: &Tensor) -> Result<()> {
        if values.dims() != [self.len()] {
            return Err(wrong_shape(&[self.len()], values.dims()));
        }
        if self.accelerator.is_none() {
            return update_pairs(&self.values, &to_plain_f32(values)?, |to, from| *to = from);
        }
        for (index, slot) in self.layout.slots.iter().enumerate() {
            let value = values.narrow(0, slot.offset, slot.count())?.reshape(slot.shape.as_slice())?;
            self.set(index, &value)?;
        }
        Ok(())
    }
}

/// Whether every number of a contiguous f32 tensor of the CPU is finite.
///
/// # Errors
/// [`Error::Dtype`] or [`Error::Shape`] for any other tensor.
pub fn all_finite(tensor: &Tensor) -> Result<bool> {
    let numbers = Floats::of(tensor, "the tensor")?;
    Ok(numbers.par_chunks(TASK_NUMBERS).all(|numbers| numbers.iter().all(|number| number.is_finite())))
}

/// Returns a tensor as contiguous f32, detached from the autograd graph. Shares the storage of a contiguous f32 tensor.
fn to_plain_f32(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.detach().to_dtype(DType::F32)?.contiguous()?)
}

/// Creates the [`Error::Shape`] for a tensor of shape `given` where the parameter has shape `wanted`.
fn wrong_shape(wanted: &[usize], given: &[usize]) -> Error {
    Error::shape(format!("the parameter has shape {wanted:?}, given was {given:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let list = vec![("a".to_owned(), vec![2, 3]), ("b".to_owned(), vec![4])];
        Parameters::new(list, &Device::Cpu).unwrap()
    }

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_change_of_one_slot_leaves_the_others() {
        let parameters = parameters();
        parameters.subtract(Some(1), &Tensor::new(&[1_f32, 2., 3., 4.], &Device::Cpu).unwrap()).unwrap();
        let all = numbers(&parameters.copy_value(None).unwrap());
        assert_eq!(all, [0., 0., 0., 0., 0., 0., -1., -2., -3., -4.]);
        parameters.assign(Some(0), &Tensor::ones((2, 3), DType::F32, &Device::Cpu).unwrap()).unwrap();
        assert_eq!(numbers(&parameters.copy_value(Some(0)).unwrap()), [1.; 6]);
        assert!(parameters.subtract(Some(0), &Tensor::ones(6, DType::F32, &Device::Cpu).unwrap()).is_err());
        assert!(parameters.assign(None, &Tensor::ones(9, DType::F32, &Device::Cpu).unwrap()).is_err());
    }

    #[test]
    fn a_copy_does_not_change_with_the_value() {
        let parameters = parameters();
        let (value, gradient) = (parameters.copy_value(None).unwrap(), parameters.copy_gradient(Some(1)).unwrap());
        parameters.add_noise(7, "noise", 1.0).unwrap();
        parameters.accumulate(1, &Tensor::ones(4, DType::F32, &Device::Cpu).unwrap()).unwrap();
        assert_eq!((numbers(&value), numbers(&gradient)), (vec![0.; 10], vec![0.; 4]));
        assert_eq!(numbers(&parameters.copy_gradient(None).unwrap())[6..], [1.; 4]);
    }

    #[test]
    fn noise_is_the_stream_in_the_order_of_the_slots_for_any_number_of_threads() {
        let count = TASK_NUMBERS + 5;
        let parameters = Parameters::new(vec![("a".to_owned(), vec![count])], &Device::Cpu).unwrap();
        parameters.add_noise(7, "noise", 0.5).unwrap();
        let wanted: Vec<f32> = Stream::new(7, "noise").normals(count).iter().map(|z| 0.5 * z).collect();
        assert_eq!(numbers(&parameters.copy_value(None).unwrap()), wanted);
    }
}
