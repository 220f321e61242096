//! Everything that trains, in one flat f32 buffer, and its gradient in another of the same layout.
//!
//! So the optimizer, the clip, a snapshot and a checkpoint are one pass each. A value that is returned is a view that sees
//! later updates.

mod device;
mod flat;
mod layout;

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::fused::Floats;

pub(crate) use device::{Norm, zeros};
use flat::EachNumber;
pub(crate) use flat::{EachPair, TASK_NUMBERS, numbers, numbers_mut};
use layout::Layout;
pub use layout::Slot;

/// The flat buffers.
///
/// On an accelerator each slot begins at a multiple of eight numbers, as vector loads want it; what lies between slots
/// stays 0. Offsets, lengths and copies do not count the gaps.
#[derive(Debug)]
pub struct Parameters {
    layout: Layout,
    values: Tensor,
    gradients: Tensor,
    /// The values once more in the type of activations, for products of an accelerator.
    shadow: Option<Tensor>,
    /// Where the buffers are; none for the CPU.
    accelerator: Option<Accelerator>,
}

impl Parameters {
    /// Zeros for every name and shape in the list, in its order.
    ///
    /// # Errors
    /// [`Error::Argument`] if a name comes twice.
    pub fn new(list: Vec<(String, Vec<usize>)>, device: &Device) -> Result<Self> {
        let accelerator = Accelerator::of(device)?;
        let layout = Layout::new(list, if accelerator.is_some() { device::EVEN } else { 1 })?;
        let zeros = || zeros(layout.size, device);
        let (values, gradients) = (zeros()?, zeros()?);
        Ok(Self { layout, values, gradients, shadow: None, accelerator })
    }

    /// Keeps a copy of all values in the type of activations beside them, since products of an accelerator take both
    /// operands in one type. Does nothing on the CPU, or if `activations` is f32.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn with_operand_copy(mut self, activations: DType) -> Result<Self> {
        if let Some(accelerator) = self.accelerator.as_ref().filter(|_| activations != DType::F32) {
            let shadow = accelerator.empty(self.values.dims(), activations)?;
            device::narrow(accelerator, &shadow, &self.values)?;
            self.shadow = Some(shadow);
        }
        Ok(self)
    }

    /// The places of all tensors, in order.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.layout.slots
    }

    /// How many numbers train.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.len
    }

    /// Whether nothing trains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of a slot by its name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.layout.names.get(name).copied()
    }

    /// Where the buffers are.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.values.device()
    }

    /// All values; on an accelerator with gaps between the slots. Updates are in place, so the tensor sees them.
    #[must_use]
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// All gradients, laid out as the values. They are accumulated in place.
    #[must_use]
    pub fn gradients(&self) -> &Tensor {
        &self.gradients
    }

    /// All values on the CPU as they are now, `[len]`, without gaps: a copy. On an accelerator this waits.
    ///
    /// # Errors
    /// When the device fails.
    pub fn snapshot(&self) -> Result<Tensor> {
        match &self.accelerator {
            None => Ok(self.values.copy()?),
            Some(accelerator) => self.layout.gathered(accelerator, &self.values),
        }
    }

    /// A view of one value in its shape; it sees later updates.
    pub fn value(&self, index: usize) -> Result<Tensor> {
        self.view(&self.values, index)
    }

    /// A view of one value in the type in which a product takes it; it sees later updates.
    pub fn operand(&self, index: usize) -> Result<Tensor> {
        self.view(self.shadow.as_ref().unwrap_or(&self.values), index)
    }

    /// One value on the CPU: a view there, and a copy of exactly its numbers elsewhere, for which this waits.
    pub fn value_on_cpu(&self, index: usize) -> Result<Tensor> {
        let value = self.value(index)?;
        match &self.accelerator {
            None => Ok(value),
            Some(accelerator) => {
                Ok(Tensor::from_vec(accelerator.download::<f32>(&value)?, value.dims(), &Device::Cpu)?)
            }
        }
    }

    /// A view of one gradient in its shape; it sees what is accumulated later.
    pub fn gradient(&self, index: usize) -> Result<Tensor> {
        self.view(&self.gradients, index)
    }

    /// Overwrites one value with a tensor of its shape, of any float type, of the CPU or of the same device.
    pub fn set(&self, index: usize, value: &Tensor) -> Result<()> {
        let shadow = self.shadow.as_ref().map(|shadow| self.view(shadow, index)).transpose()?;
        self.overwrite(&self.value(index)?, shadow.as_ref(), &self.fitted(index, value)?)
    }

    /// Overwrites some of the values, and `shadow`, which holds them once more in the type of activations.
    fn overwrite(&self, values: &Tensor, shadow: Option<&Tensor>, from: &Tensor) -> Result<()> {
        let Some(accelerator) = &self.accelerator else {
            return Ok(values.inplace_op2(from, &EachPair(|to: &mut f32, from| *to = from))?);
        };
        device::copy(accelerator, values, from)?;
        shadow.map_or(Ok(()), |shadow| device::narrow(accelerator, shadow, values))
    }

    /// Adds to one gradient a tensor of its shape, of any float type, of the CPU or of the same device.
    pub fn accumulate(&self, index: usize, gradient: &Tensor) -> Result<()> {
        let place = self.gradient(index)?;
        let gradient = self.fitted(index, gradient)?;
        match &self.accelerator {
            None => Ok(place.inplace_op2(&gradient, &EachPair(|to: &mut f32, from| *to += from))?),
            Some(accelerator) => device::add(accelerator, &place, &gradient),
        }
    }

    /// Sets every gradient to zero.
    pub fn clear_gradients(&self) -> Result<()> {
        match &self.accelerator {
            None => Ok(self.gradients.inplace_op1(&EachNumber(|number: &mut f32| *number = 0.0))?),
            Some(accelerator) => accelerator.fill(&self.gradients, 0.0),
        }
    }

    /// Multiplies every gradient with a factor.
    pub fn scale_gradients(&self, factor: f32) -> Result<()> {
        match &self.accelerator {
            None => Ok(self.gradients.inplace_op1(&EachNumber(|number: &mut f32| *number *= factor))?),
            Some(accelerator) => device::scale(accelerator, &self.gradients, &accelerator.upload(&[factor], &[1])?),
        }
    }

    /// The Euclidean norm of all gradients together, summed in f64 in fixed chunks. On an accelerator this waits.
    pub fn gradient_norm(&self) -> Result<f64> {
        match &self.accelerator {
            None => {
                let gradients = Floats::of(&self.gradients, "gradients")?;
                let square = |chunk: &[f32]| chunk.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>();
                let sums: Vec<f64> = gradients.par_chunks(TASK_NUMBERS).map(square).collect();
                Ok(sums.iter().sum::<f64>().sqrt())
            }
            Some(accelerator) => Norm::of(accelerator, &self.gradients, 0.0)?.read(accelerator),
        }
    }

    /// Copies the parameters: the same slots and values, with gradients of zero.
    pub fn detached_copy(&self) -> Result<Self> {
        let gradients = zeros(self.layout.size, self.device())?;
        let shadow = self.shadow.as_ref().map(Tensor::copy).transpose()?;
        let (layout, accelerator) = (self.layout.clone(), self.accelerator.clone());
        Ok(Self { layout, values: self.values.copy()?, gradients, shadow, accelerator })
    }

    /// Overwrites all values with those of other parameters of the same layout.
    pub fn copy_from(&self, other: &Self) -> Result<()> {
        if self.slots() != other.slots() {
            return Err(Error::shape("the two sets of parameters differ in their slots"));
        }
        if !other.device().same_device(self.device()) {
            return Err(Error::argument("the two sets of parameters are on different devices"));
        }
        // On the CPU `other` may be these parameters, whose storage cannot be locked twice.
        let from = if self.accelerator.is_none() { other.values.copy()? } else { other.values.clone() };
        self.overwrite(&self.values, self.shadow.as_ref(), &from)
    }

    /// The values in the type of activations, laid out as they are, where there is an accelerator that wants them.
    pub(crate) fn shadow(&self) -> Option<&Tensor> {
        self.shadow.as_ref()
    }

    /// Where slots lie in the buffers.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The accelerator that the buffers are on; none for the CPU.
    pub(crate) fn accelerator(&self) -> Option<&Accelerator> {
        self.accelerator.as_ref()
    }

    /// A view of one slot of a buffer, in the slot's shape.
    fn view(&self, flat: &Tensor, index: usize) -> Result<Tensor> {
        let (slot, place) = self.layout.slot(index)?;
        Ok(flat.narrow(0, place, slot.count())?.reshape(slot.shape.as_slice())?)
    }

    /// The tensor as contiguous numbers of the slot's shape where the buffers are: f32 on the CPU, of any float type on an
    /// accelerator.
    fn fitted(&self, index: usize, tensor: &Tensor) -> Result<Tensor> {
        let (slot, _) = self.layout.slot(index)?;
        if tensor.dims() != slot.shape {
            let (given, wanted) = (tensor.dims(), &slot.shape);
            return Err(Error::shape(format!("`{}` has shape {wanted:?}, given was {given:?}", slot.name)));
        }
        let tensor = tensor.detach();
        match &self.accelerator {
            Some(_) if tensor.device().same_device(self.device()) => Ok(tensor),
            Some(accelerator) => device::uploaded(accelerator, &tensor),
            None => Ok(tensor.to_dtype(DType::F32)?.contiguous()?),
        }
    }
}

#[cfg(test)]
mod tests;
