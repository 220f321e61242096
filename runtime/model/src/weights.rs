//! The weights of a model by their Hugging Face names, whatever files hold them.
//! Names, shapes and number formats are checked when a model is opened; bytes are read when they are asked for.

mod digest;
mod entry;
pub mod gguf;
mod mapped;
mod repair;
pub(crate) mod safetensors;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use tunebox_compute::precision::{Base, Precision, Purpose};
use tunebox_compute::weight::{Format, Packed, Weight, WeightRef};
use tunebox_compute::{DType, Device, Tensor};

pub use digest::digest;

use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::{aliases, expected, gguf_name, stored_form};
use entry::{Entry, Stored, of_tensor, same_shape};
use repair::Repair;

/// The weights of a model. On the CPU a matrix stays where it lies, in the mapped file and in the file's format
/// (`bf16`, `f16`, `f32`, or quantized); vectors, and what a file holds in a format without products, are read.
#[derive(Debug)]
pub struct Weights {
    entries: BTreeMap<String, Entry>,
    files: mapped::Files,
    device: Device,
    place: PathBuf,
    precision: Precision,
}

/// How a matrix lies in its file: format, first byte, bytes.
type Place = (Format, u64, usize);

impl Weights {
    /// The weights in some safetensors files of a folder, checked against the configuration. Reads no tensor yet.
    ///
    /// # Errors
    /// When a file is broken, or a weight is missing, of another shape, or stored in a format that is not read.
    pub fn from_folder(
        folder: &Path,
        files: &[PathBuf],
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        let mut found = safetensors::locate(files)?;
        let mut entries = BTreeMap::new();
        for (name, wanted) in expected(configuration) {
            let Some(location) = aliases(&name).iter().find_map(|alias| found.remove(alias)) else {
                return Err(Error::TensorMissing { name, place: folder.display().to_string() });
            };
            same_shape(&name, &wanted, &location.shape, &location.path)?;
            safetensors::check_type(&name, &location)?;
            entries.insert(name, Entry::new(wanted, Stored::Safetensors(location)));
        }
        let files = mapped::Files::map(files.iter().map(PathBuf::as_path))?;
        Ok(Self {
            entries,
            files,
            device: device.clone(),
            place: folder.to_path_buf(),
            precision: Precision::default(),
        })
    }

    /// The weights in a GGUF file, checked against the configuration. Reads no tensor yet.
    ///
    /// # Errors
    /// When a weight is missing or of another shape.
    pub(crate) fn from_gguf(
        path: &Path,
        mut header: gguf::Header,
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        let place = path.to_path_buf();
        let form = stored_form(configuration);
        let mut entries = BTreeMap::new();
        for (name, wanted) in expected(configuration) {
            let location = gguf_name(&name, form).and_then(|stored| header.tensors.remove_entry(&stored));
            let Some((stored, location)) = location else {
                return Err(Error::TensorMissing { name, place: place.display().to_string() });
            };
            same_shape(&name, &wanted, &location.shape, &place)?;
            let repair = Repair::of(&name, form, configuration);
            let stored = Stored::Gguf { name: stored, location, length: header.length, repair };
            entries.insert(name, Entry::new(wanted, stored));
        }
        // A part of a block that nobody reads would be a part of the model left out.
        if let Some(name) = header.tensors.keys().filter(|name| name.starts_with("blk.")).min() {
            let what = format!("tensor `{name}` is not part of a `{}` model", configuration.family);
            return Err(Error::broken(&place, what));
        }
        let files = mapped::Files::map([place.as_path()])?;
        Ok(Self { entries, files, device: device.clone(), place, precision: Precision::default() })
    }

    /// Weights that are in memory already, checked against the configuration.
    ///
    /// # Errors
    /// When a weight is missing or of another shape.
    pub fn from_tensors(
        tensors: BTreeMap<String, Tensor>,
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        let moved = tensors.into_iter().map(|(name, tensor)| Ok((name, Weight::from(tensor.to_device(device)?))));
        Self::from_weights(moved.collect::<Result<_>>()?, configuration, device)
    }

    /// The same in whatever format; tensors are on the device already.
    ///
    /// # Errors
    /// Those of [`Weights::from_tensors`].
    pub fn from_weights(
        mut weights: BTreeMap<String, Weight>,
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        let place = PathBuf::from("memory");
        let mut entries = BTreeMap::new();
        for (name, wanted) in expected(configuration) {
            let Some(weight) = weights.remove(&name) else {
                return Err(Error::TensorMissing { name, place: place.display().to_string() });
            };
            same_shape(&name, &wanted, &WeightRef::from(&weight).sides(), &place)?;
            entries.insert(name, Entry::given(wanted, weight));
        }
        let files = mapped::Files::default();
        Ok(Self { entries, files, device: device.clone(), place, precision: Precision::default() })
    }

    /// The same weights with the matrices of the blocks kept in another way. Those that are not read yet are quantised one
    /// by one when they are.
    ///
    /// # Errors
    /// When the device does not compute with such weights, or a matrix is quantized in its file already.
    pub fn kept_in(mut self, base: Base) -> Result<Self> {
        self.precision = Precision::new(base, &self.device)?;
        for (name, entry) in &mut self.entries {
            entry.quantises(name, self.precision, &self.place)?;
            if let Some(weight) = entry.loaded.take() {
                let weight = self.precision.keep(weight, entry.purpose(name))?;
                entry.loaded = OnceLock::from(weight);
            }
        }
        Ok(self)
    }

    /// What the numbers of this model are kept in.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// A weight by its Hugging Face name, as it is kept. Every call gives the same storage.
    ///
    /// # Errors
    /// When there is no such weight, or its file cannot be read any more.
    pub fn weight(&self, name: &str) -> Result<Weight> {
        let missing = || Error::TensorMissing { name: name.into(), place: self.place.display().to_string() };
        let entry = self.entries.get(name).ok_or_else(missing)?;
        if let Some(weight) = entry.loaded.get() {
            return Ok(weight.clone());
        }
        let weight = match self.mapped(name, entry)? {
            Some(packed) => Weight::Packed(Arc::new(packed)),
            None => self.read(name, entry)?.into(),
        };
        let weight = self.quantised(name, entry, weight)?;
        Ok(entry.loaded.get_or_init(|| weight).clone())
    }

    /// A weight as a tensor of its device, exactly: a copy, `f32` if it is quantized, where it lies in a file.
    ///
    /// # Errors
    /// When there is no such weight, or its file cannot be read any more.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        Ok(self.weight(name)?.to_tensor()?)
    }

    /// Reads or maps all weights, on all cores. Without it each is read when it is first asked for.
    ///
    /// # Errors
    /// When a file cannot be read any more.
    pub fn load(&self) -> Result<()> {
        let names: Vec<&String> = self.entries.keys().collect();
        names.par_iter().try_for_each(|name| self.weight(name).map(drop))
    }

    /// The names of all weights, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The shape of a weight, without reading it.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|entry| entry.shape.as_slice())
    }

    /// Where the weights are.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The element type that holds every weight exactly as it is stored, however it is kept: that of all, or `F32` where
    /// they differ.
    #[must_use]
    pub fn dtype(&self) -> DType {
        let mut types = self.entries.values().map(Entry::dtype);
        let first = types.next().unwrap_or(DType::F32);
        if types.all(|dtype| dtype == first) { first } else { DType::F32 }
    }

    /// Bytes that all weights take, in memory or in the mapped file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(Entry::bytes).sum()
    }

    /// A weight as the precision wants it; what was read of its file for that is not kept.
    fn quantised(&self, name: &str, entry: &Entry, weight: Weight) -> Result<Weight> {
        if self.precision.base() == Base::Stored {
            return Ok(weight);
        }
        let kept = self.precision.keep(weight, entry.purpose(name));
        let kept = kept.map_err(|error| of_tensor(name, &self.place, error))?;
        let is_copy = matches!(&kept, Weight::Packed(packed) if packed.format() == Format::NF4);
        if let (true, Some((path, (_, offset, length), _))) = (is_copy, self.located(entry)?) {
            self.files.release(path, offset, length);
        }
        Ok(kept)
    }

    /// Bytes of those weights that were copied out of their files.
    #[must_use]
    pub fn bytes_in_memory(&self) -> u64 {
        self.entries.values().filter(|entry| entry.is_copy()).map(Entry::bytes).sum()
    }

    /// Bytes that all weights would take if the matrices of the blocks were kept in another way.
    ///
    /// # Errors
    /// Those of [`Weights::kept_in`].
    pub fn bytes_in(&self, base: Base) -> Result<u64> {
        let precision = Precision::new(base, &self.device)?;
        self.entries.iter().map(|(name, entry)| entry.bytes_in(name, precision, &self.place)).sum()
    }

    /// The matrices of the blocks that are kept as they are stored, and all of them.
    #[must_use]
    pub fn linear_as_stored(&self) -> (usize, usize) {
        let linear = self.entries.iter().filter(|(name, entry)| entry.purpose(name) == Purpose::Linear);
        let columns: Vec<usize> = linear.map(|(_, entry)| entry.shape.last().copied().unwrap_or(0)).collect();
        let stored = columns.iter().filter(|columns| !self.precision.quantises(Purpose::Linear, **columns));
        (stored.count(), columns.len())
    }

    /// A matrix where it lies in its file; none where it has to be read.
    fn mapped(&self, name: &str, entry: &Entry) -> Result<Option<Packed>> {
        let &[rows, columns] = entry.shape.as_slice() else { return Ok(None) };
        if !self.device.is_cpu() {
            return Ok(None);
        }
        let Some((path, (format, offset, length), repair)) = self.located(entry)? else { return Ok(None) };
        let bytes = self.files.bytes(path, offset, length);
        // Numbers that lie askew, or a file that became shorter: reading copes with the one and names the other.
        let packed = bytes.and_then(|bytes| Packed::new(bytes, format, rows, columns).ok());
        let Some(packed) = packed else { return Ok(None) };
        match repair.order(rows) {
            Some(order) if order.len() == rows => {
                let reordered = packed.reordered(&order).ok();
                if reordered.is_some() {
                    self.files.release(path, offset, length);
                }
                Ok(reordered)
            }
            None if repair == Repair::Nothing => Ok(Some(packed)),
            _ => Err(Error::broken(path, format!("tensor `{name}` cannot be mended where it lies"))),
        }
    }

    /// The file of a matrix, its place there, and what has to be undone; none where it cannot stay there.
    fn located<'a>(&'a self, entry: &'a Entry) -> Result<Option<(&'a Path, Place, Repair)>> {
        let (path, place, repair) = match &entry.stored {
            Stored::Safetensors(location) => (location.path.as_path(), safetensors::place(location), Repair::Nothing),
            Stored::Gguf { name, location, length, repair } => {
                (self.place.as_path(), gguf::place(&self.place, name, location, *length)?, *repair)
            }
            Stored::Given { .. } => return Ok(None),
        };
        Ok(place.map(|place| (path, place, repair)))
    }

    fn read(&self, name: &str, entry: &Entry) -> Result<Tensor> {
        match &entry.stored {
            Stored::Safetensors(location) => safetensors::read(name, location, &self.device),
            Stored::Gguf { name, location, length, repair } => {
                let values = repair.undo(gguf::read(&self.place, name, location, *length)?, &entry.shape);
                Ok(Tensor::from_vec(values, entry.shape.as_slice(), &self.device)?)
            }
            Stored::Given { .. } => {
                Err(Error::TensorMissing { name: name.into(), place: self.place.display().to_string() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
