//! One weight of a model: its shape, where it is stored, and its loaded copy.

use std::path::Path;
use std::sync::OnceLock;

use tunebox_compute::precision::{Precision, Purpose, already_quantized};
use tunebox_compute::weight::{Format, WeightRef};
use tunebox_compute::{DType, Device, Weight};

use super::location::Location;
use super::reading::Repair;
use crate::decoder::site::is_router;
use crate::error::{Error, Result};

/// A weight and where it is.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shape: Vec<usize>,
    pub(super) stored: Stored,
    /// The weight in the precision of the model and on its device; empty until it is first asked for.
    pub(super) loaded: OnceLock<Weight>,
}

/// Where a weight is.
#[derive(Debug)]
pub(super) enum Stored {
    /// In a file; `repair` undoes what the file's writer changed.
    File { location: Location, repair: Repair },
    /// Already in memory.
    InMemory {
        /// The element type that holds its numbers exactly.
        dtype: DType,
        /// The weight on the CPU if the model is on another device, to which it is copied.
        original: Option<Weight>,
    },
}

impl Entry {
    /// An entry for a weight in a file that is not read yet; `repair` is what has to be undone on its values.
    pub(super) fn in_file(location: Location, repair: Repair) -> Self {
        Self { shape: location.shape.clone(), stored: Stored::File { location, repair }, loaded: OnceLock::new() }
    }

    /// An entry for a weight in CPU memory. On a CPU device it counts as loaded; for another device it is copied there
    /// later.
    pub(super) fn in_memory(weight: Weight, device: &Device) -> Self {
        let shape = WeightRef::from(&weight).sides();
        let dtype = match &weight {
            Weight::Tensor(tensor) => tensor.dtype(),
            Weight::Packed(packed) => packed.format().dtype(),
        };
        let (original, loaded) = match device.is_cpu() {
            true => (None, OnceLock::from(weight)),
            false => (Some(weight), OnceLock::new()),
        };
        Self { shape, stored: Stored::InMemory { dtype, original }, loaded }
    }

    /// The bytes of the weight: as loaded; else as it will be kept in memory, in its file or on the device, with the
    /// types that `precision` gives plain numbers on an accelerator. Does not take into account that it may be
    /// quantized.
    pub(super) fn bytes(&self, precision: Precision) -> u64 {
        if let Some(weight) = self.loaded.get() {
            return weight.bytes() as u64;
        }
        if let (Some(matrices), false) = (precision.plain(), self.is_in_blocks()) {
            let dtype = if self.shape.len() == 2 { matrices } else { precision.dtype(Purpose::Vector) };
            return self.shape.iter().map(|side| *side as u64).product::<u64>() * dtype.size_in_bytes() as u64;
        }
        match &self.stored {
            Stored::File { location, .. } => location.kept_bytes(),
            Stored::InMemory { original, .. } => original.as_ref().map_or(0, |weight| weight.bytes() as u64),
        }
    }

    /// Whether the weight is kept quantized in blocks, in the format of its file or source.
    fn is_in_blocks(&self) -> bool {
        let format = match &self.stored {
            Stored::File { location, .. } => location.kept_format(),
            Stored::InMemory { original: Some(Weight::Packed(packed)), .. } => Some(packed.format()),
            Stored::InMemory { .. } => None,
        };
        format.is_some_and(|format| format.block() > 1)
    }

    /// The element type that holds the stored values exactly; `F32` for a format that is converted to `f32` or not
    /// read.
    pub(super) fn dtype(&self) -> DType {
        match &self.stored {
            Stored::File { location, .. } => location.kept_format().map_or(DType::F32, Format::dtype),
            Stored::InMemory { dtype, .. } => *dtype,
        }
    }

    /// Whether the loaded weight has its own memory, on whatever device, and is not a part of the mapped file. A packed
    /// matrix on the CPU counts as mapped unless its rows were reordered or it has another format than its file. False
    /// if it is not loaded.
    pub(super) fn is_copy(&self) -> bool {
        // Moving rows takes a copy of the matrix.
        let moved = matches!(self.stored, Stored::File { repair: Repair::Pairs { .. }, .. });
        match self.loaded.get() {
            Some(weight @ Weight::Packed(packed)) if weight.device().is_cpu() => {
                let quantized = match &self.stored {
                    Stored::File { location, .. } => location.kept_format() != Some(packed.format()),
                    Stored::InMemory { .. } => packed.format().block() > 1,
                };
                moved || quantized
            }
            loaded => loaded.is_some(),
        }
    }

    /// The format to which this precision quantizes the weight when it is read; `None` if it stays as stored. `name` is
    /// its Hugging Face name, which tells what it is used for; `place` is the file or folder that the error names.
    ///
    /// # Errors
    /// When the precision would, but the weight is quantized in its file already.
    pub(super) fn target_format(&self, name: &str, precision: Precision, place: &Path) -> Result<Option<Format>> {
        let columns = self.shape.last().copied().unwrap_or(0);
        let Some(wanted) = precision.target_format(self.purpose(name), columns) else { return Ok(None) };
        match &self.stored {
            Stored::File { location, .. } if let Some(format) = location.quantized_format() => {
                Err(name_tensor_in_error(name, place, already_quantized(format)))
            }
            _ => Ok(Some(wanted)),
        }
    }

    /// Returns the bytes of the weight if it were kept in this precision: in the format to which the precision
    /// quantizes it, else as [`bytes`](Self::bytes) counts them. `name` and `place` are the arguments of
    /// [`target_format`](Self::target_format).
    ///
    /// # Errors
    /// When the precision would quantize a weight that is quantized in its file already.
    pub(super) fn bytes_in(&self, name: &str, precision: Precision, place: &Path) -> Result<u64> {
        let &[rows, columns] = self.shape.as_slice() else { return Ok(self.bytes(precision)) };
        let format = self.target_format(name, precision, place)?;
        let quantized = format.and_then(|format| Weight::bytes_in(format, rows, columns));
        Ok(quantized.map_or_else(|| self.bytes(precision), |bytes| bytes as u64))
    }

    /// What the weight is used for: a matrix of a block is [`Purpose::Linear`], another matrix (embedding, output head
    /// or router) [`Purpose::Vocabulary`], everything else (norms and biases) [`Purpose::Vector`].
    pub(super) fn purpose(&self, name: &str) -> Purpose {
        match self.shape.len() {
            // The router is small, and rounding it would send tokens to other experts.
            2 if name.starts_with("model.layers.") && !is_router(name) => Purpose::Linear,
            2 => Purpose::Vocabulary,
            _ => Purpose::Vector,
        }
    }
}

/// Converts an error of the compute library. Puts the names of the weight and of `place`, its file or folder, before
/// the message of an argument error; leaves the messages of other errors as they are.
pub(super) fn name_tensor_in_error(name: &str, place: &Path, error: tunebox_compute::Error) -> Error {
    match error {
        tunebox_compute::Error::Argument(why) => {
            Error::Argument(format!("tensor `{name}` of `{}`: {why}", place.display()))
        }
        other => other.into(),
    }
}
