//! The weights of a model by their Hugging Face names, whatever files hold them.
//! Names, shapes and number formats are checked when a model is opened; bytes are read when they are asked for.

mod entry;
pub mod gguf;
pub(crate) mod location;
mod mapped;
mod reading;
pub(crate) mod safetensors;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rayon::prelude::*;
use tunebox_compute::precision::{Base, Precision, PrecisionRequest, Purpose};
use tunebox_compute::weight::Weight;
use tunebox_compute::{DType, Device, Tensor};

use crate::configuration::Configuration;
use crate::decoder::site::expert_of;
use crate::error::{Error, Result};
use crate::families::{aliases, gguf_name, weight_shapes};
use entry::{Entry, Stored};
pub(crate) use location::Location;
pub(crate) use reading::Repair;

/// The weights of a model. On the CPU a matrix stays in the mapped file, in the file's format (`bf16`, `f16`, `f32`,
/// or quantized); vectors, and matrices in formats that matrix products cannot read directly, are copied to memory. On
/// an accelerator each weight is a copy: quantized blocks as they are, plain matrices in the type of activations,
/// vectors in `f32`.
#[derive(Debug)]
pub struct Weights {
    /// Each weight that the configuration needs, by its Hugging Face name.
    entries: BTreeMap<String, Entry>,
    files: mapped::Files,
    device: Device,
    /// The file or folder that errors name.
    place: PathBuf,
    precision: Precision,
}

impl Weights {
    /// Locates the weights in safetensors files, maps the files, and checks names, shapes and formats against the
    /// configuration. Also finds weights by the names that multimodal models give them; ignores tensors that the
    /// configuration does not need. Reads no tensor yet. `folder` is named in errors.
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
        let mut weights = Self::collect(folder, configuration, device, |name| {
            let Some(location) = aliases(name).iter().find_map(|alias| found.remove(alias)) else { return Ok(None) };
            location.format()?;
            Ok(Some(Entry::in_file(location, Repair::Nothing)))
        })?;
        weights.files = mapped::Files::map(files.iter().map(PathBuf::as_path))?;
        Ok(weights)
    }

    /// Locates the weights in a GGUF file, maps the file, and checks names and shapes against the configuration. Reads
    /// no tensor yet; a format that is not supported is an error only when the tensor is read. `header` is the header
    /// of this file. Ignores unused tensors outside of blocks.
    ///
    /// # Errors
    /// When the file cannot be opened, a weight is missing or of another shape, or a block (`blk.`) has a tensor that
    /// the model does not use.
    pub(crate) fn from_gguf(
        path: &Path,
        mut header: gguf::Header,
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        let experts = configuration.experts.map_or(0, |experts| experts.count);
        let mut weights = Self::collect(path, configuration, device, |name| {
            let Some(stored) = gguf_name(name, configuration) else { return Ok(None) };
            let location = match expert_of(name) {
                Some(expert) => header.tensors.get(&stored).map(|all| all.matrix(expert, experts)).transpose()?,
                None => header.tensors.remove(&stored),
            };
            Ok(location.map(|location| Entry::in_file(location, Repair::of(name, configuration))))
        })?;
        // A part of a block that nothing reads would be a part of the model left out.
        let is_read = |name: &str| experts > 0 && name.ends_with("_exps.weight");
        if let Some(name) = header.tensors.keys().find(|name| name.starts_with("blk.") && !is_read(name)) {
            let what = format!("tensor `{name}` is not part of a `{}` model", configuration.family);
            return Err(Error::broken(path, what));
        }
        weights.files = mapped::Files::map([path])?;
        Ok(weights)
    }

    /// Wraps weights in CPU memory, in any stored format, by their Hugging Face names, after a check against the
    /// configuration. Ignores weights that the configuration does not need. If `device` is not the CPU, copies each
    /// weight to the device when the weight is first asked for.
    ///
    /// # Errors
    /// When a weight is missing or of another shape.
    pub fn from_tensors<T: Into<Weight>>(
        mut weights: BTreeMap<String, T>,
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        Self::collect(Path::new("memory"), configuration, device, |name| {
            Ok(weights.remove(name).map(|weight| Entry::in_memory(weight.into(), device)))
        })
    }

    /// Calls `find` with the Hugging Face name of each weight that the configuration needs, and collects the entries.
    /// Maps no files; sets the default precision of the device. Errors: those of `find`, a model that does not run on
    /// the device, or a weight that is not found (`None`) or has another shape. The last two name the weight's file, or
    /// `place` if it has none.
    fn collect(
        place: &Path,
        configuration: &Configuration,
        device: &Device,
        mut find: impl FnMut(&str) -> Result<Option<Entry>>,
    ) -> Result<Self> {
        configuration.check_device(device)?;
        let mut entries = BTreeMap::new();
        for (name, wanted) in weight_shapes(configuration) {
            let Some(entry) = find(&name)? else {
                return Err(Error::missing(format!("tensor `{name}`"), place));
            };
            if entry.shape != wanted {
                let place = match &entry.stored {
                    Stored::File { location, .. } => &location.path,
                    Stored::InMemory { .. } => place,
                };
                return Err(Error::tensor_shape(&name, &wanted, &entry.shape, place));
            }
            entries.insert(name, entry);
        }
        let (device, place) = (device.clone(), place.to_path_buf());
        let (files, precision) = (mapped::Files::default(), Precision::default());
        let mut weights = Self { entries, files, device, place, precision };
        weights.precision = weights.precision_for(PrecisionRequest::default());
        Ok(weights)
    }

    /// Sets the precision of the block matrices and of computation. On an accelerator, drops the weights that are
    /// loaded, so that they are read again. On the CPU, converts them; a matrix that was quantized when it was loaded
    /// stays so. Weights that are not loaded are converted one by one when they are read.
    ///
    /// # Errors
    /// When a quantized format is asked for and a block matrix is quantized already, in its file or as loaded, or a
    /// loaded one holds a number that is not finite.
    pub fn with_precision(mut self, asked: impl Into<PrecisionRequest>) -> Result<Self> {
        self.precision = self.precision_for(asked);
        for (name, entry) in &mut self.entries {
            entry.target_format(name, self.precision, &self.place)?;
            // On an accelerator the weight is read again, in the new precision.
            if let Some(weight) = entry.loaded.take().filter(|_| self.device.is_cpu()) {
                let weight = self.precision.convert(weight, entry.purpose(name))?;
                entry.loaded = OnceLock::from(weight);
            }
        }
        Ok(self)
    }

    /// The precision that follows from a request, the device and the total number of values in these weights.
    fn precision_for(&self, asked: impl Into<PrecisionRequest>) -> Precision {
        let numbers = self.entries.values().map(|entry| entry.shape.iter().product::<usize>() as u64);
        Precision::of(asked, &self.device, numbers.sum())
    }

    /// The number formats of weights and activations.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// A weight by its Hugging Face name, in the precision of the model and on its device. Reads it at the first call;
    /// every call gives the same storage.
    ///
    /// # Errors
    /// When there is no such weight, or its file cannot be read any more.
    pub fn weight(&self, name: &str) -> Result<Weight> {
        let entry = self.entry(name)?;
        if let Some(weight) = entry.loaded.get() {
            return Ok(weight.clone());
        }
        let weight = self.place_on_device(name, entry, self.read(name, entry)?)?;
        Ok(entry.loaded.get_or_init(|| weight).clone())
    }

    /// A weight on the CPU, whatever the device of the model. If that is the CPU, it is the weight with which passes
    /// run. Otherwise it is read again and not cached: as stored or given, or quantized if the precision asks for
    /// it.
    ///
    /// # Errors
    /// When there is no such weight, or its file cannot be read any more.
    pub(crate) fn on_host(&self, name: &str) -> Result<Weight> {
        if self.device.is_cpu() { self.weight(name) } else { self.read(name, self.entry(name)?) }
    }

    /// A weight as a CPU tensor with exact values: those of its file or source, or the rounded ones if the precision
    /// quantizes it. In `f32` if it is quantized. A weight in a file is copied; if the model is not on the CPU, the
    /// mapped pages are released afterwards.
    ///
    /// # Errors
    /// When there is no such weight, or its file cannot be read any more.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let tensor = self.on_host(name)?.to_tensor()?;
        if !self.device.is_cpu() {
            self.release(self.entry(name)?);
        }
        Ok(tensor)
    }

    /// Reads all weights that are not loaded yet and copies them to the device, on all cores. Without this call, each
    /// is read when it is first asked for.
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

    /// The shape of a weight, without reading it; `None` for an unknown name.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|entry| entry.shape.as_slice())
    }

    /// The device on which the model computes.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The element type that holds every weight exactly as stored: the type of all, or `F32` if they differ.
    #[must_use]
    pub fn dtype(&self) -> DType {
        let mut types = self.entries.values().map(Entry::dtype);
        let first = types.next().unwrap_or(DType::F32);
        if types.all(|dtype| dtype == first) { first } else { DType::F32 }
    }

    /// The bytes of all weights as kept: in memory, in the mapped file or on the device. Weights not read yet count as
    /// they will be kept, but without quantization; [`bytes_in`](Self::bytes_in) includes that.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.bytes(self.precision)).sum()
    }

    /// The bytes of the loaded weights that have their own memory, on the CPU or the device, and are not parts of the
    /// mapped files.
    #[must_use]
    pub fn bytes_in_memory(&self) -> u64 {
        self.entries.values().filter(|entry| entry.is_copy()).map(|entry| entry.bytes(self.precision)).sum()
    }

    /// The bytes that all weights would take with the block matrices kept as `base`. Converts nothing.
    ///
    /// # Errors
    /// When `base` is a quantized format and a block matrix is quantized in its file already.
    pub fn bytes_in(&self, base: Base) -> Result<u64> {
        let precision = self.precision_for(PrecisionRequest { base, ..self.precision.request() });
        self.entries.iter().map(|(name, entry)| entry.bytes_in(name, precision, &self.place)).sum()
    }

    /// The number of block matrices that the precision does not quantize, and the number of all block matrices, in
    /// this order.
    #[must_use]
    pub fn linear_as_stored(&self) -> (usize, usize) {
        let linear = self.entries.iter().filter(|(name, entry)| entry.purpose(name) == Purpose::Linear);
        let columns: Vec<usize> = linear.map(|(_, entry)| entry.shape.last().copied().unwrap_or(0)).collect();
        let stored =
            columns.iter().filter(|columns| self.precision.target_format(Purpose::Linear, **columns).is_none());
        (stored.count(), columns.len())
    }

    /// The entry of a weight. Errors: no weight of this name.
    fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.get(name).ok_or_else(|| Error::missing(format!("tensor `{name}`"), &self.place))
    }
}

#[cfg(test)]
mod tests;
