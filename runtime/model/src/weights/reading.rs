//! A weight from its file to where it is kept: mapped or read, put in order, quantized, placed on the device.

use std::sync::Arc;

use tunebox_compute::precision::{Base, Purpose};
use tunebox_compute::weight::{Format, Packed, Weight};
use tunebox_compute::{DType, Device, Tensor};

use super::Weights;
use super::entry::{Entry, Stored, name_tensor_in_error};
use super::location::Location;
use super::repair::Repair;
use crate::error::{Error, Result};

impl Weights {
    /// Reads or maps a weight on the CPU, undoes what a GGUF writer did to it, and quantizes it if the precision asks for
    /// it. Does not cache it. Errors: also a weight that was in memory and is not any more.
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

    /// Copies a CPU weight to the model's device, in the type that computation uses there, and releases its mapped
    /// pages. Returns the weight itself if the device is the CPU.
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

    /// Releases the mapped pages of a weight. Does nothing for a weight that is not in a file.
    pub(super) fn release(&self, entry: &Entry) {
        if let Stored::File { location, .. } = &entry.stored {
            self.files.release(&location.path, location.offset, location.bytes);
        }
    }

    /// Converts a weight to the model's precision; releases its mapped pages if it becomes NF4. Does nothing if weights
    /// are kept as stored.
    fn quantize(&self, name: &str, entry: &Entry, weight: Weight) -> Result<Weight> {
        if self.precision.base() == Base::Stored {
            return Ok(weight);
        }
        let kept = self.precision.convert(weight, entry.purpose(name));
        let kept = kept.map_err(|error| name_tensor_in_error(name, &self.place, error))?;
        if matches!(&kept, Weight::Packed(packed) if packed.format() == Format::NF4) {
            self.release(entry);
        }
        Ok(kept)
    }

    /// A matrix in the mapped file, or a copy with its rows in Hugging Face's order. `None` if it has to be read: a
    /// vector, a format without products, or unmapped or misaligned bytes. Errors: a repair that is not a reordering of
    /// whole rows.
    fn map_packed(&self, entry: &Entry, location: &Location, repair: Repair) -> Result<Option<Packed>> {
        let &[rows, columns] = entry.shape.as_slice() else { return Ok(None) };
        let Some(format) = location.format()?.native else { return Ok(None) };
        let bytes = self.files.bytes(&location.path, location.offset, location.bytes);
        // Numbers that lie askew, or a file that became shorter: reading copes with the one and names the other.
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
