//! A weight from its file to where it is kept: mapped or read, put in order, quantised, placed on the device.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::precision::{Base, Purpose};
use tunebox_compute::weight::{Format, Packed, Weight};
use tunebox_compute::{DType, Device, Tensor};

use super::entry::{Entry, Stored, name_tensor_in_error};
use super::repair::Repair;
use super::{Weights, gguf, safetensors};
use crate::error::{Error, Result};

/// How a matrix lies in its file: format, first byte, bytes.
type Place = (Format, u64, usize);

impl Weights {
    /// A weight with the CPU, as the precision wants it there.
    pub(super) fn read(&self, name: &str, entry: &Entry) -> Result<Weight> {
        let weight = match (&entry.stored, self.map_packed(name, entry)?) {
            (Stored::InMemory { original: Some(weight), .. }, _) => weight.clone(),
            (_, Some(packed)) => Weight::Packed(Arc::new(packed)),
            (_, None) => self.read_copy(name, entry)?.into(),
        };
        self.quantise(name, entry, weight)
    }

    /// A weight where the model computes. What its file had to be read for is not kept, unless it stays there.
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
        self.release(entry)?;
        Ok(placed)
    }

    /// Releases the mapped pages of a weight that will not be read soon.
    pub(super) fn release(&self, entry: &Entry) -> Result<()> {
        if let Some((path, (_, offset, length), _)) = self.mapped_location(entry)? {
            self.files.release(path, offset, length);
        }
        Ok(())
    }

    /// A weight as the precision wants it; what was read of its file for that is not kept.
    fn quantise(&self, name: &str, entry: &Entry, weight: Weight) -> Result<Weight> {
        if self.precision.base() == Base::Stored {
            return Ok(weight);
        }
        let kept = self.precision.convert(weight, entry.purpose(name));
        let kept = kept.map_err(|error| name_tensor_in_error(name, &self.place, error))?;
        if matches!(&kept, Weight::Packed(packed) if packed.format() == Format::NF4) {
            self.release(entry)?;
        }
        Ok(kept)
    }

    /// A matrix where it lies in its file; none where it has to be read.
    fn map_packed(&self, name: &str, entry: &Entry) -> Result<Option<Packed>> {
        let &[rows, columns] = entry.shape.as_slice() else { return Ok(None) };
        let Some((path, (format, offset, length), repair)) = self.mapped_location(entry)? else { return Ok(None) };
        let bytes = self.files.bytes(path, offset, length);
        // Numbers that lie askew, or a file that became shorter: reading copes with the one and names the other.
        let packed = bytes.and_then(|bytes| Packed::new(bytes, format, rows, columns).ok());
        let Some(packed) = packed else { return Ok(None) };
        match repair.order(rows) {
            Some(order) if order.len() == rows => {
                let reordered = packed.permute_rows(&order).ok();
                if reordered.is_some() {
                    self.files.release(path, offset, length);
                }
                Ok(reordered)
            }
            None if repair == Repair::Nothing => Ok(Some(packed)),
            _ => Err(Error::broken(path, format!("tensor `{name}` cannot be converted where it lies"))),
        }
    }

    /// The file of a matrix, its place there, and what has to be undone; none where it cannot stay there.
    fn mapped_location<'a>(&'a self, entry: &'a Entry) -> Result<Option<(&'a Path, Place, Repair)>> {
        let (path, place, repair) = match &entry.stored {
            Stored::Safetensors(location) => {
                (location.path.as_path(), safetensors::locate_in_file(location), Repair::Nothing)
            }
            Stored::Gguf { name, location, length, repair } => {
                (self.place.as_path(), gguf::locate_in_file(&self.place, name, location, *length)?, *repair)
            }
            Stored::InMemory { .. } => return Ok(None),
        };
        Ok(place.map(|place| (path, place, repair)))
    }

    /// A weight copied out of its file.
    fn read_copy(&self, name: &str, entry: &Entry) -> Result<Tensor> {
        match &entry.stored {
            Stored::Safetensors(location) => safetensors::read(name, location, &Device::Cpu),
            Stored::Gguf { name, location, length, repair } => {
                let values = repair.undo(gguf::read(&self.place, name, location, *length)?, &entry.shape);
                Ok(Tensor::from_vec(values, entry.shape.as_slice(), &Device::Cpu)?)
            }
            Stored::InMemory { .. } => {
                Err(Error::TensorMissing { name: name.into(), place: self.place.display().to_string() })
            }
        }
    }
}
