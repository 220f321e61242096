//! Everything that trains, in one flat f32 buffer, and its gradient in another of the same layout.
//!
//! One buffer makes the optimiser, the clip, a snapshot and a checkpoint one pass each. A value handed out is a view
//! that sees later updates. Which adapter a slot belongs to, the model knows.

mod flat;

use std::collections::HashMap;

use candle_core::{Device, Tensor};

use crate::error::{Error, Result};
use crate::precision::{Precision, Purpose, zeros};

use flat::Numbers;
pub(crate) use flat::{TASK_NUMBERS, numbers, numbers_mut};

/// The place of one tensor in the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name, unique among the parameters.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
    /// The index of its first number.
    pub offset: usize,
}

impl Slot {
    /// How many numbers it has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The flat buffers.
#[derive(Debug)]
pub struct Parameters {
    slots: Vec<Slot>,
    names: HashMap<String, usize>,
    values: Tensor,
    gradients: Tensor,
}

impl Parameters {
    /// Zeros for every name and shape in the list, in its order.
    ///
    /// # Errors
    /// [`Error::Argument`] if a name comes twice.
    pub fn new(list: Vec<(String, Vec<usize>)>, device: &Device) -> Result<Self> {
        let (mut slots, mut names, mut offset) = (Vec::with_capacity(list.len()), HashMap::new(), 0);
        for (index, (name, shape)) in list.into_iter().enumerate() {
            if names.insert(name.clone(), index).is_some() {
                return Err(Error::argument(format!("two parameters are called `{name}`")));
            }
            let slot = Slot { name, shape, offset };
            offset += slot.count();
            slots.push(slot);
        }
        let zeros = || zeros(Purpose::Trained, offset, device);
        Ok(Self { slots, names, values: zeros()?, gradients: zeros()? })
    }

    /// The places of all tensors, in order.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// How many numbers train.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.elem_count()
    }

    /// Whether nothing trains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of a slot by its name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// All values, `[len]`. Updates are in place, so the tensor sees them.
    #[must_use]
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// All gradients, `[len]`. They are accumulated in place.
    #[must_use]
    pub fn gradients(&self) -> &Tensor {
        &self.gradients
    }

    /// A view of one value in its shape; it sees later updates.
    pub fn value(&self, index: usize) -> Result<Tensor> {
        self.view(&self.values, index)
    }

    /// A view of one gradient in its shape; it sees what is accumulated later.
    pub fn gradient(&self, index: usize) -> Result<Tensor> {
        self.view(&self.gradients, index)
    }

    /// Overwrites one value with a tensor of its shape, of any float type.
    pub fn set(&self, index: usize, value: &Tensor) -> Result<()> {
        let place = self.value(index)?;
        let value = self.fitted(index, value)?;
        Ok(place.inplace_op2(&value, &flat::Copy)?)
    }

    /// Adds to one gradient a tensor of its shape, of any float type.
    pub fn accumulate(&self, index: usize, gradient: &Tensor) -> Result<()> {
        let place = self.gradient(index)?;
        let gradient = self.fitted(index, gradient)?;
        Ok(place.inplace_op2(&gradient, &flat::Add)?)
    }

    /// Sets every gradient to zero.
    pub fn clear_gradients(&self) -> Result<()> {
        Ok(self.gradients.inplace_op1(&flat::Fill(0.0))?)
    }

    /// Multiplies every gradient with a factor.
    pub fn scale_gradients(&self, factor: f32) -> Result<()> {
        Ok(self.gradients.inplace_op1(&flat::Scale(factor))?)
    }

    /// The Euclidean norm of all gradients together, summed in f64 in fixed chunks.
    pub fn gradient_norm(&self) -> Result<f64> {
        Ok(Numbers::of(&self.gradients)?.square_sum()?.sqrt())
    }

    /// The same slots with a copy of the values and gradients of zero.
    pub fn detached_copy(&self) -> Result<Self> {
        let (slots, names) = (self.slots.clone(), self.names.clone());
        Ok(Self { slots, names, values: self.values.copy()?, gradients: self.gradients.zeros_like()? })
    }

    /// Overwrites all values with those of other parameters of the same layout.
    pub fn copy_from(&self, other: &Self) -> Result<()> {
        if self.slots != other.slots {
            return Err(Error::shape("the two sets of parameters differ in their slots"));
        }
        let copy = other.values.copy()?;
        Ok(self.values.inplace_op2(&copy, &flat::Copy)?)
    }

    fn slot(&self, index: usize) -> Result<&Slot> {
        let missing = || Error::argument(format!("there is no parameter {index}, only {}", self.slots.len()));
        self.slots.get(index).ok_or_else(missing)
    }

    fn view(&self, flat: &Tensor, index: usize) -> Result<Tensor> {
        let slot = self.slot(index)?;
        Ok(flat.narrow(0, slot.offset, slot.count())?.reshape(slot.shape.as_slice())?)
    }

    /// The tensor as contiguous f32 of the slot's shape.
    fn fitted(&self, index: usize, tensor: &Tensor) -> Result<Tensor> {
        let slot = self.slot(index)?;
        if tensor.dims() != slot.shape {
            let (given, wanted) = (tensor.dims(), &slot.shape);
            return Err(Error::shape(format!("`{}` has shape {wanted:?}, given was {given:?}", slot.name)));
        }
        Ok(tensor.detach().to_dtype(Precision::dtype(Purpose::Trained))?.contiguous()?)
    }
}

#[cfg(test)]
mod tests;
