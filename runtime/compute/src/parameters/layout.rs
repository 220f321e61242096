//! Where each slot lies in the flat buffers, with the gaps that an accelerator wants between them.

use std::collections::HashMap;
use std::ops::Range;

use candle_core::{DType, Device, Tensor};

use super::device;
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};

/// The place of one tensor in the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name, unique among the parameters.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
    /// The index of its first number among the numbers of all slots, gaps not counted.
    pub offset: usize,
}

impl Slot {
    /// The number of elements of the slot's shape, 1 for an empty shape.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// All slots, in order, and where each lies in the flat buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(super) slots: Vec<Slot>,
    /// The index of each slot by its name.
    pub(super) names: HashMap<String, usize>,
    /// The index of each slot's first number in the buffers, gaps counted.
    places: Vec<usize>,
    /// Numbers of all slots.
    pub(super) len: usize,
    /// Numbers of a buffer: of all slots and gaps.
    pub(crate) size: usize,
}

impl Layout {
    /// Lays out a slot for every (name, shape), in order. In the buffers each slot begins at a multiple of `step`
    /// numbers, and the size of a buffer is a multiple of `step` too; 1 gives no gaps.
    ///
    /// # Errors
    /// [`Error::Argument`] if a name comes twice.
    pub(super) fn new(list: Vec<(String, Vec<usize>)>, step: usize) -> Result<Self> {
        let mut layout = Self::default();
        for (index, (name, shape)) in list.into_iter().enumerate() {
            if layout.names.insert(name.clone(), index).is_some() {
                return Err(Error::argument(format!("two parameters are called `{name}`")));
            }
            let slot = Slot { name, shape, offset: layout.len };
            layout.places.push(layout.size);
            layout.len += slot.count();
            layout.size = (layout.size + slot.count()).next_multiple_of(step);
            layout.slots.push(slot);
        }
        Ok(layout)
    }

    /// Returns the slot number `index`, and the index of its first number in the buffers, gaps counted. Fails with
    /// [`Error::Argument`] if there is no such slot.
    pub(super) fn slot(&self, index: usize) -> Result<(&Slot, usize)> {
        let missing = || Error::argument(format!("there is no parameter {index}, only {}", self.slots.len()));
        self.slots.get(index).zip(self.places.get(index).copied()).ok_or_else(missing)
    }

    /// Returns every slot with the range from its first number in the buffers to that of the next slot, gaps counted;
    /// the last range ends with the buffers.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Slot, Range<usize>)> {
        let ends = self.places.iter().skip(1).chain([&self.size]);
        self.slots.iter().zip(self.places.iter().zip(ends).map(|(start, end)| *start..*end))
    }

    /// Copies an f32 buffer `[size]` of an accelerator to a tensor `[len]` of the CPU, leaving the gaps out. Waits for
    /// the device. If there are gaps, takes a temporary buffer `[len]` on the accelerator.
    pub(crate) fn gather(&self, accelerator: &Accelerator, buffer: &Tensor) -> Result<Tensor> {
        if self.len == self.size {
            return Ok(Tensor::from_vec(accelerator.download::<f32>(buffer)?, self.len, &Device::Cpu)?);
        }
        let flat = accelerator.empty(&[self.len], DType::F32)?;
        self.for_each_slot(|place, offset, count| {
            device::copy(accelerator, &flat.narrow(0, offset, count)?, &buffer.narrow(0, place, count)?)
        })?;
        Ok(Tensor::from_vec(accelerator.download::<f32>(&flat)?, self.len, &Device::Cpu)?)
    }

    /// Copies numbers `[len]` of any float type, on the CPU or the accelerator, into a new f32 buffer `[size]` of the
    /// accelerator, with gaps of 0 between the slots.
    pub(crate) fn spread(&self, accelerator: &Accelerator, numbers: &Tensor) -> Result<Tensor> {
        let numbers = match numbers.device() {
            Device::Cpu => device::upload_contiguous(accelerator, numbers)?,
            _ => numbers.clone(),
        };
        let buffer = accelerator.zeros(&[self.size], DType::F32)?;
        self.for_each_slot(|place, offset, count| {
            device::copy(accelerator, &buffer.narrow(0, place, count)?, &numbers.narrow(0, offset, count)?)
        })?;
        Ok(buffer)
    }

    /// Calls `work` for every slot, in order, with (the index of its first number in the buffers, its offset without
    /// gaps, its number of elements). Stops at the first error.
    fn for_each_slot(&self, mut work: impl FnMut(usize, usize, usize) -> Result<()>) -> Result<()> {
        self.slots.iter().zip(&self.places).try_for_each(|(slot, place)| work(*place, slot.offset, slot.count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(step: usize) -> Layout {
        let list = [("a", vec![3, 5]), ("b", vec![8]), ("c", vec![]), ("d", vec![2])];
        Layout::new(list.map(|(name, shape)| (name.to_owned(), shape)).to_vec(), step).unwrap()
    }

    #[test]
    fn without_a_step_slots_lie_one_after_another() {
        let layout = layout(1);
        assert_eq!(layout.places, layout.slots.iter().map(|slot| slot.offset).collect::<Vec<_>>());
        assert_eq!((layout.len, layout.size), (26, 26));
    }

    #[test]
    fn a_step_moves_slots_and_changes_no_offset() {
        let (plain, even) = (layout(1), layout(8));
        assert_eq!(even.places, [0, 16, 24, 32]);
        assert_eq!(even.ranges().map(|(_, range)| range).collect::<Vec<_>>(), [0..16, 16..24, 24..32, 32..40]);
        assert_eq!((even.len, even.size), (26, 40));
        assert_eq!(even.slots, plain.slots);
    }
}
