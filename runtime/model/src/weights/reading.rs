//! Loads a weight: maps or reads it, undoes the changes of GGUF writers, quantizes it and places it on the device.

use std::sync::Arc;

use tunebox_compute::precision::Purpose;
use tunebox_compute::weight::{Packed, Weight};
use tunebox_compute::{DType, Device, Tensor};

use super::Weights;
use super::entry::{Entry, Stored, name_tensor_in_error};
use super::location::Location;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::has_gguf_pairs;

impl Weights {
    /// Reads or maps a weight on the CPU, undoes what a GGUF writer did to it, and quantizes it if the precision asks
    /// for it. A weight given in memory is not copied. Does not store the result in `entry`. Errors: also an entry in
    /// memory without its original, which is only in `loaded`.
    pub(super) fn read(&self, name: &str, entry: &Entry) -> Result<Weight> {
        let weight = match &entry.stored {
            Stored::InMemory { original, .. } => {
                original.clone().ok_or_else(|| Error::missing(format!("tensor `{name}`"), &self.place))?
            }
            Stored::File { location, repair } => match (self.map_packed(entry, location, *repair)?, repair) {
                (Some(packed), _) => Weight::Packed(Arc::new(packed)),
                (None, Repair::Nothing) => location.read()?.into(),
                (None, repair) => {
                    let values = repair.undo(location.read_f32()?, &entry.shape);
                    Tensor::from_vec(values, entry.shape.as_slice(), &Device::Cpu)?.into()
                }
            },
        };
        self.quantize(name, entry, weight)
    }

    /// Copies a CPU weight to the model's device and releases its mapped pages. Converts plain matrices to the type of
    /// activations and vectors to `f32`; quantized blocks stay as they are. Returns the weight itself if the device is
    /// the CPU.
    pub(super) fn place_on_device(&self, name: &str, entry: &Entry, weight: Weight) -> Result<Weight> {
        if self.device.is_cpu() {
            return Ok(weight);
        }
        let plain = match entry.purpose(name) {
            Purpose::Linear | Purpose::Vocabulary => self.precision.plain().unwrap_or(DType::F32),
            purpose => self.precision.dtype(purpose),
        };
        let placed =
            weight.to_device(&self.device, plain).map_err(|error| name_tensor_in_error(name, &self.place, error))?;
        self.release(entry);
        Ok(placed)
    }

    /// Tells the system that it may drop the mapped pages of a weight. Does nothing for a weight that is not in a file.
    pub(super) fn release(&self, entry: &Entry) {
        if let Stored::File { location, .. } = &entry.stored {
            self.files.release(&location.path, location.offset, location.bytes);
        }
    }

    /// Quantizes a CPU weight if the model's precision does so for its purpose and width, and then releases its mapped
    /// pages; else returns the weight as it is.
    fn quantize(&self, name: &str, entry: &Entry, weight: Weight) -> Result<Weight> {
        let columns = entry.shape.last().copied().unwrap_or(0);
        if self.precision.target_format(entry.purpose(name), columns).is_none() {
            return Ok(weight);
        }
        let kept = self.precision.convert(weight, entry.purpose(name));
        let kept = kept.map_err(|error| name_tensor_in_error(name, &self.place, error))?;
        self.release(entry);
        Ok(kept)
    }

    /// Returns a quantized matrix without copying it from the mapped file; if `repair` reorders rows, as a copy with
    /// its rows in Hugging Face's order, after which the mapped pages are released. Returns `None` if the weight has to
    /// be read instead: a vector, a format without products, or bytes that are not mapped or not aligned. Errors: an
    /// unsupported format, or a repair other than a reordering of all rows.
    fn map_packed(&self, entry: &Entry, location: &Location, repair: Repair) -> Result<Option<Packed>> {
        let &[rows, columns] = entry.shape.as_slice() else { return Ok(None) };
        let Some(format) = location.format()?.native else { return Ok(None) };
        let bytes = self.files.bytes(&location.path, location.offset, location.bytes);
        // Misaligned numbers can still be read. A file that became shorter is an error of reading, which names it.
        let packed = bytes.and_then(|bytes| Packed::new(bytes, format, rows, columns).ok());
        let Some(packed) = packed else { return Ok(None) };
        match repair.order(rows) {
            Some(order) if order.len() == rows => {
                let reordered = packed.permute_rows(&order).ok();
                if reordered.is_some() {
                    self.release(entry);
                }
                Ok(reordered)
            }
            None if repair == Repair::Nothing => Ok(Some(packed)),
            _ => {
                let what = format!("tensor `{}` cannot be converted where it lies", location.name);
                Err(Error::broken(&location.path, what))
            }
        }
    }
}

/// The change by a GGUF writer that is undone when a tensor is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Nothing.
    Nothing,
    /// The `d` rows of each head were interleaved as rotation pairs: 0, d/2, 1, d/2 + 1, …. Row `2i + p` of a head
    /// becomes row `p·d/2 + i` again.
    Pairs {
        /// The number of heads in the tensor.
        heads: usize,
    },
    /// 1 was added to every value.
    PlusOne,
}

impl Repair {
    /// What GGUF writers change on the weight of this Hugging Face name: the order of rows in query and key weights and
    /// biases, for families with [`has_gguf_pairs`]; 1 added to norms that multiply by 1 + weight; else nothing.
    pub(crate) fn of(name: &str, configuration: &Configuration) -> Self {
        let has_pairs = has_gguf_pairs(configuration);
        if has_pairs && name.contains(".q_proj.") {
            Self::Pairs { heads: configuration.heads }
        } else if has_pairs && name.contains(".k_proj.") {
            Self::Pairs { heads: configuration.kv_heads }
        } else if configuration.unit_offset_norm && name.ends_with("norm.weight") {
            Self::PlusOne
        } else {
            Self::Nothing
        }
    }

    /// The order of rows before the GGUF writer moved them: row `i` of the repaired matrix is row `order[i]` of the
    /// stored one. `None` if rows do not move. Shorter than `rows` if they are not whole pairs for each head.
    pub(super) fn order(self, rows: usize) -> Option<Vec<usize>> {
        let Self::Pairs { heads } = self else { return None };
        let half = rows / heads.max(1) / 2;
        let of_head =
            |head: usize| (0..2).flat_map(move |part| (0..half).map(move |at| head * 2 * half + 2 * at + part));
        Some((0..heads).flat_map(of_head).collect())
    }

    /// The values of a weight of this shape, in row-major order, with the change of the GGUF writer undone. Returns
    /// fewer values if the rows are not whole pairs for each head.
    pub(crate) fn undo(self, mut values: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match self {
            Self::Nothing => values,
            Self::PlusOne => {
                values.iter_mut().for_each(|value| *value -= 1.0);
                values
            }
            Self::Pairs { .. } => {
                // Biases are rows of one value.
                let rows = shape.first().copied().unwrap_or(1).max(1);
                let width = values.len() / rows;
                let order = self.order(rows).unwrap_or_default();
                order.iter().flat_map(|row| values[row * width..(row + 1) * width].iter().copied()).collect()
            }
        }
    }
}

impl Repair {
    /// The values of a weight of this shape, in row-major order, with the change of the GGUF writer made: the inverse
    /// of [`undo`](Self::undo).
    pub(crate) fn make(self, mut values: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match self {
            Self::Nothing => values,
            Self::PlusOne => {
                values.iter_mut().for_each(|value| *value += 1.0);
                values
            }
            Self::Pairs { .. } => {
                let rows = shape.first().copied().unwrap_or(1).max(1);
                let width = values.len() / rows;
                let mut stored = vec![0.0; values.len()];
                for (from, to) in self.order(rows).unwrap_or_default().into_iter().enumerate() {
                    stored[to * width..(to + 1) * width].copy_from_slice(&values[from * width..(from + 1) * width]);
                }
                stored
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_made_and_undone_gives_the_same_values() {
        let values: Vec<f32> = (0..24).map(|at| at as f32).collect();
        for repair in [Repair::Nothing, Repair::PlusOne, Repair::Pairs { heads: 2 }] {
            let made = repair.make(values.clone(), &[8, 3]);
            assert_eq!(repair.undo(made.clone(), &[8, 3]), values, "{repair:?}");
            assert_eq!(made == values, repair == Repair::Nothing, "{repair:?}");
        }
    }

    #[test]
    fn pairs_are_taken_apart_head_by_head() {
        let stored = vec![0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0];
        let rows = Repair::Pairs { heads: 2 }.undo(stored.clone(), &[8]);
        assert_eq!(rows, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let pairs: Vec<f32> = stored.iter().flat_map(|value| [*value, -value]).collect();
        let rows = Repair::Pairs { heads: 2 }.undo(pairs, &[8, 2]);
        assert_eq!(rows.iter().step_by(2).copied().collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn the_one_that_was_added_to_a_norm_is_taken_off() {
        assert_eq!(Repair::PlusOne.undo(vec![1.0, 1.5], &[2]), [0.0, 0.5]);
    }
}
