//! All trained parameters in one flat f32 buffer, and their gradients in another of the same layout.
//!
//! So the optimizer, gradient clipping, a snapshot and a checkpoint are one pass each. A value that is returned is a
//! view that sees later updates.

mod change;
mod device;
mod flat;
mod layout;
mod sums;

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::accelerator::{Accelerator, MatrixView};
use crate::error::{Error, Result};
use crate::fused::{Floats, linear_weight_gradient};

pub use change::all_finite;
pub(crate) use device::{Norm, zeros};
use flat::update_pairs;
pub(crate) use flat::{TASK_NUMBERS, square_sum, update_numbers, update_together};
pub(crate) use layout::Layout;
pub use layout::Slot;
pub use sums::{GradientSums, TokenParts};

/// The trained parameters and their gradients, each in a flat buffer in which every tensor has a slot.
///
/// On an accelerator each slot begins at a multiple of eight numbers, as vector loads want it; what lies between slots
/// stays 0. Offsets, lengths and copies do not count the gaps.
#[derive(Debug)]
pub struct Parameters {
    layout: Layout,
    values: Tensor,
    gradients: Tensor,
    /// The values once more in the type of activations, for products of an accelerator.
    operand_copy: Option<Tensor>,
    /// Where the buffers are; none for the CPU.
    accelerator: Option<Accelerator>,
}

impl Parameters {
    /// Creates parameters on `device` with a slot for every (name, shape), in the order of the list. All values and
    /// gradients are 0. There is no operand copy.
    ///
    /// # Errors
    /// [`Error::Argument`] if a name comes twice, [`Error::Unavailable`] if `crate::device::parse` did not open the
    /// device. Also when the device has no memory for both buffers.
    pub fn new(list: Vec<(String, Vec<usize>)>, device: &Device) -> Result<Self> {
        let accelerator = Accelerator::of(device)?;
        let layout = Layout::new(list, if accelerator.is_some() { device::EVEN } else { 1 })?;
        let zeros = || zeros(layout.size, device);
        let (values, gradients) = (zeros()?, zeros()?);
        Ok(Self { layout, values, gradients, operand_copy: None, accelerator })
    }

    /// Adds a copy of all values in the type `activations`, since products of an accelerator take both operands in one
    /// type. [`set`](Self::set), [`copy_from`](Self::copy_from) and the optimizer update this operand copy together
    /// with the values. Does nothing on the CPU, or if `activations` is f32.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn with_operand_copy(mut self, activations: DType) -> Result<Self> {
        if let Some(accelerator) = self.accelerator.as_ref().filter(|_| activations != DType::F32) {
            let operand_copy = accelerator.empty(self.values.dims(), activations)?;
            device::narrow(accelerator, &operand_copy, &self.values)?;
            self.operand_copy = Some(operand_copy);
        }
        Ok(self)
    }

    /// The name, shape and offset of every tensor, in order.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.layout.slots
    }

    /// The number of trained numbers in all slots, gaps not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.len
    }

    /// Whether there are no trained numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of the slot called `name`. `None` if there is none.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.layout.names.get(name).copied()
    }

    /// The device that holds the buffers.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.values.device()
    }

    /// The flat buffer of all values; on an accelerator with gaps between the slots. Updates are in place, so the
    /// tensor changes with them.
    #[must_use]
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// The flat buffer of all gradients, laid out as the values. They are accumulated in place, so the tensor changes
    /// with them.
    #[must_use]
    pub fn gradients(&self) -> &Tensor {
        &self.gradients
    }

    /// Copies all values to the CPU as `[len]` f32, without gaps. On an accelerator this waits.
    ///
    /// # Errors
    /// When the device fails.
    pub fn snapshot(&self) -> Result<Tensor> {
        self.copied(&self.values, None)
    }

    /// Returns a view of the f32 value of the slot number `index`, in the slot's shape, on the device of the buffers.
    /// The view changes with later updates. Fails if there is no such slot.
    pub fn value(&self, index: usize) -> Result<Tensor> {
        self.view(&self.values, index)
    }

    /// Returns a view of the slot number `index`, in the slot's shape, for use in a product: of the operand copy if
    /// there is one, else of the f32 value. The view changes with later updates. Fails if there is no such slot.
    pub fn operand(&self, index: usize) -> Result<Tensor> {
        self.view(self.operand_copy.as_ref().unwrap_or(&self.values), index)
    }

    /// Returns the f32 value of the slot number `index` on the CPU, in the slot's shape. If the buffers are on the CPU,
    /// the result is a view that changes with later updates. Else it is a copy, for which this waits until the device
    /// has done all queued work.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot; also when the device fails.
    pub fn value_on_cpu(&self, index: usize) -> Result<Tensor> {
        self.on_cpu(Some(index))
    }

    /// Returns a view of the f32 gradient of the slot number `index`, in the slot's shape. The view changes as
    /// gradients are accumulated or cleared. Fails if there is no such slot.
    pub fn gradient(&self, index: usize) -> Result<Tensor> {
        self.view(&self.gradients, index)
    }

    /// Overwrites the value of the slot number `index`, and its part of the operand copy if there is one, with `value`:
    /// a tensor of the slot's shape, of any float type, on the CPU or the device of the buffers. Gradients stay as they
    /// are.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot, [`Error::Shape`] for another shape. Also for a tensor of another
    /// device.
    pub fn set(&self, index: usize, value: &Tensor) -> Result<()> {
        let operand_copy = self.operand_copy.as_ref().map(|operand_copy| self.view(operand_copy, index)).transpose()?;
        self.overwrite(&self.value(index)?, operand_copy.as_ref(), &self.fit_to_slot(index, value)?)
    }

    /// Copies `from` over `values`, the value buffer or a part of it, then rounds `values` into `operand_copy`, the
    /// matching part of the operand copy, if given. `from` has as many numbers as `values`: f32 on the CPU, of any
    /// float type on an accelerator. The CPU does not use `operand_copy`.
    fn overwrite(&self, values: &Tensor, operand_copy: Option<&Tensor>, from: &Tensor) -> Result<()> {
        let Some(accelerator) = &self.accelerator else {
            return update_pairs(values, from, |to, from| *to = from);
        };
        device::copy(accelerator, values, from)?;
        operand_copy.map_or(Ok(()), |operand_copy| device::narrow(accelerator, operand_copy, values))
    }

    /// Adds the tensor `gradient` to the gradient of the slot number `index`, in f32. The tensor has the slot's shape
    /// and any float type, and is on the CPU or the device of the buffers.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot, [`Error::Shape`] for another shape. Also for a tensor of another
    /// device.
    pub fn accumulate(&self, index: usize, gradient: &Tensor) -> Result<()> {
        let place = self.gradient(index)?;
        let gradient = self.fit_to_slot(index, gradient)?;
        match &self.accelerator {
            None => update_pairs(&place, &gradient, |to, from| *to += from),
            Some(accelerator) => device::add(accelerator, &place, &gradient),
        }
    }

    /// Adds `factor · leftᵀ·right` to the gradient of the slot number `index`, a matrix, in f32: the form of every
    /// gradient of a weight. `left` is `[tokens, rows]`, `right` is `[tokens, columns]`, on the device of the buffers.
    /// Does nothing without tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot, [`Error::Shape`] if the slot is not `[rows, columns]` or the
    /// numbers of tokens differ, [`Error::Dtype`] on an accelerator if the two have different types. Also for tensors
    /// of another device.
    pub fn accumulate_product(&self, index: usize, factor: f32, left: &Tensor, right: &Tensor) -> Result<()> {
        let Some(accelerator) = &self.accelerator else {
            return self.accumulate(index, &linear_weight_gradient(factor, left, right)?);
        };
        let gradient = self.gradient(index)?;
        let ((tokens, rows), (_, columns)) = (left.dims2()?, right.dims2()?);
        if gradient.dims() != [rows, columns] {
            let shape = gradient.dims();
            return Err(Error::shape(format!(
                "a gradient {shape:?} was given a product of shape {:?}",
                [rows, columns]
            )));
        }
        if tokens == 0 {
            return Ok(());
        }
        accelerator.multiply(&gradient, MatrixView::transposed(left), MatrixView::plain(right), factor, true)
    }

    /// Sets every gradient to zero. On an accelerator, queues this.
    pub fn clear_gradients(&self) -> Result<()> {
        match &self.accelerator {
            None => update_numbers(&self.gradients, |numbers: &mut [f32]| {
                numbers.par_chunks_mut(TASK_NUMBERS).for_each(|some| some.fill(0.0));
            }),
            Some(accelerator) => accelerator.fill(&self.gradients, 0.0),
        }
    }

    /// Returns the Euclidean norm of all gradients together. Squares are summed in f64 (on Metal in pairs of f32) in
    /// chunks of fixed size, so the result does not depend on the number of threads. On an accelerator this waits for
    /// the device.
    ///
    /// # Errors
    /// When the device fails, or one of its kernels met an index out of range.
    pub fn gradient_norm(&self) -> Result<f64> {
        match &self.accelerator {
            None => {
                let gradients = Floats::of(&self.gradients, "gradients")?;
                Ok(square_sum(&gradients).sqrt())
            }
            Some(accelerator) => Norm::of(accelerator, &self.gradients, 0.0)?.read(accelerator),
        }
    }

    /// Copies the slots, the values and the operand copy (if there is one) to new parameters on the same device, with
    /// gradients of zero. Later updates of either do not change the other. Fails when the device has no memory.
    pub fn detached_copy(&self) -> Result<Self> {
        let gradients = zeros(self.layout.size, self.device())?;
        let values = match &self.accelerator {
            None => self.values.copy()?,
            Some(accelerator) => {
                // The copy of the tensor library shares the memory on Metal.
                let values = accelerator.empty(self.values.dims(), DType::F32)?;
                device::copy(accelerator, &values, &self.values)?;
                values
            }
        };
        let (layout, accelerator) = (self.layout.clone(), self.accelerator.clone());
        let copy = Self { layout, values, gradients, operand_copy: None, accelerator };
        match &self.operand_copy {
            None => Ok(copy),
            Some(operand_copy) => copy.with_operand_copy(operand_copy.dtype()),
        }
    }

    /// Overwrites all values with those of `other`, and rewrites the operand copy, if there is one, from them.
    /// Gradients stay as they are.
    ///
    /// # Errors
    /// [`Error::Shape`] if the slots differ in a name, a shape or their order, [`Error::Argument`] if the devices
    /// differ.
    pub fn copy_from(&self, other: &Self) -> Result<()> {
        if self.slots() != other.slots() {
            return Err(Error::shape("the two sets of parameters differ in their slots"));
        }
        if !other.device().same_device(self.device()) {
            return Err(Error::argument("the two sets of parameters are on different devices"));
        }
        // On the CPU `other` may be these parameters, whose storage cannot be locked twice.
        let from = if self.accelerator.is_none() { other.values.copy()? } else { other.values.clone() };
        self.overwrite(&self.values, self.operand_copy.as_ref(), &from)
    }

    /// The copy of the values in the type of activations, laid out as the values. `None` on the CPU, and if activations
    /// are f32.
    pub(crate) fn operand_copy(&self) -> Option<&Tensor> {
        self.operand_copy.as_ref()
    }

    /// Where each slot lies in the buffers.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The accelerator that holds the buffers. `None` for the CPU.
    pub(crate) fn accelerator(&self) -> Option<&Accelerator> {
        self.accelerator.as_ref()
    }

    /// Returns a view of the slot number `index` in the flat buffer `flat`, in the slot's shape. Fails if there is no
    /// such slot.
    fn view(&self, flat: &Tensor, index: usize) -> Result<Tensor> {
        let (slot, place) = self.layout.slot(index)?;
        Ok(flat.narrow(0, place, slot.count())?.reshape(slot.shape.as_slice())?)
    }

    /// Checks that `tensor` has the shape of the slot number `index`, detaches it from the autograd graph and brings it
    /// to the accelerator if the buffers are on one. On an accelerator, a tensor that is already there keeps its type
    /// and layout, and one of the CPU is uploaded as contiguous f32. On the CPU the tensor becomes contiguous f32.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such slot, or the buffers are on an accelerator and the tensor is on another
    /// one. [`Error::Shape`] for another shape.
    fn fit_to_slot(&self, index: usize, tensor: &Tensor) -> Result<Tensor> {
        let (slot, _) = self.layout.slot(index)?;
        if tensor.dims() != slot.shape {
            let (given, wanted) = (tensor.dims(), &slot.shape);
            return Err(Error::shape(format!("`{}` has shape {wanted:?}, given was {given:?}", slot.name)));
        }
        let tensor = tensor.detach();
        match &self.accelerator {
            Some(_) if tensor.device().same_device(self.device()) => Ok(tensor),
            Some(accelerator) => device::upload_contiguous(accelerator, &tensor),
            None => Ok(tensor.to_dtype(DType::F32)?.contiguous()?),
        }
    }
}

#[cfg(test)]
mod tests;
