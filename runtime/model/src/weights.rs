//! The weights of a model by their Hugging Face names, whatever files hold them.
//! Names, shapes and number formats are checked when a model is opened; bytes are read when they are asked for.

mod digest;
pub mod gguf;
mod repair;
pub(crate) mod safetensors;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rayon::prelude::*;
use tunebox_compute::{DType, Device, Tensor};

pub use digest::digest;

use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::{aliases, expected, gguf_name, stored_form};
use repair::Repair;

/// The weights of a model. A tensor stays as it was stored (`bf16`, `f16` or `f32`); those of GGUF files are made `f32`.
#[derive(Debug)]
pub struct Weights {
    entries: BTreeMap<String, Entry>,
    device: Device,
    place: PathBuf,
}

#[derive(Debug)]
struct Entry {
    shape: Vec<usize>,
    stored: Stored,
    loaded: OnceLock<Tensor>,
}

#[derive(Debug)]
enum Stored {
    Safetensors(safetensors::Location),
    Gguf {
        name: String,
        location: gguf::Location,
        length: u64,
        repair: Repair,
    },
    /// Already in memory.
    Given,
}

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
        Ok(Self { entries, device: device.clone(), place: folder.to_path_buf() })
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
        Ok(Self { entries, device: device.clone(), place })
    }

    /// Weights that are in memory already, checked against the configuration.
    ///
    /// # Errors
    /// When a weight is missing or of another shape.
    pub fn from_tensors(
        mut tensors: BTreeMap<String, Tensor>,
        configuration: &Configuration,
        device: &Device,
    ) -> Result<Self> {
        let place = PathBuf::from("memory");
        let mut entries = BTreeMap::new();
        for (name, wanted) in expected(configuration) {
            let Some(tensor) = tensors.remove(&name) else {
                return Err(Error::TensorMissing { name, place: place.display().to_string() });
            };
            same_shape(&name, &wanted, tensor.dims(), &place)?;
            let entry = Entry::new(wanted, Stored::Given);
            let tensor = entry.loaded.get_or_init(|| tensor).to_device(device)?;
            entries.insert(name, Entry { loaded: OnceLock::from(tensor), ..entry });
        }
        Ok(Self { entries, device: device.clone(), place })
    }

    /// A weight by its Hugging Face name. Every call gives the same storage.
    ///
    /// # Errors
    /// When there is no such weight, or its file cannot be read any more.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let missing = || Error::TensorMissing { name: name.into(), place: self.place.display().to_string() };
        let entry = self.entries.get(name).ok_or_else(missing)?;
        if let Some(tensor) = entry.loaded.get() {
            return Ok(tensor.clone());
        }
        let tensor = self.read(name, entry)?;
        Ok(entry.loaded.get_or_init(|| tensor).clone())
    }

    /// Reads all weights, on all cores. Without it each is read when it is first asked for.
    ///
    /// # Errors
    /// When a file cannot be read any more.
    pub fn load(&self) -> Result<()> {
        let names: Vec<&String> = self.entries.keys().collect();
        names.par_iter().try_for_each(|name| self.get(name).map(drop))
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

    /// The element type that holds every weight exactly: that of all, or `F32` where they differ.
    #[must_use]
    pub fn dtype(&self) -> DType {
        let mut types = self.entries.values().map(Entry::dtype);
        let first = types.next().unwrap_or(DType::F32);
        if types.all(|dtype| dtype == first) { first } else { DType::F32 }
    }

    /// Bytes that all weights take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(Entry::bytes).sum()
    }

    fn read(&self, name: &str, entry: &Entry) -> Result<Tensor> {
        match &entry.stored {
            Stored::Safetensors(location) => safetensors::read(name, location, &self.device),
            Stored::Gguf { name, location, length, repair } => {
                let values = repair.undo(gguf::read(&self.place, name, location, *length)?, &entry.shape);
                Ok(Tensor::from_vec(values, entry.shape.as_slice(), &self.device)?)
            }
            Stored::Given => Err(Error::TensorMissing { name: name.into(), place: self.place.display().to_string() }),
        }
    }
}

impl Entry {
    fn new(shape: Vec<usize>, stored: Stored) -> Self {
        Self { shape, stored, loaded: OnceLock::new() }
    }

    fn bytes(&self) -> u64 {
        let values: u64 = self.shape.iter().map(|side| *side as u64).product();
        values * self.dtype().size_in_bytes() as u64
    }

    /// As it is kept in memory.
    fn dtype(&self) -> DType {
        match (&self.stored, self.loaded.get()) {
            (_, Some(tensor)) => tensor.dtype(),
            (Stored::Safetensors(location), None) => safetensors::kept_as(location),
            _ => DType::F32,
        }
    }
}

fn same_shape(name: &str, wanted: &[usize], found: &[usize], place: &Path) -> Result<()> {
    if wanted == found {
        return Ok(());
    }
    Err(Error::TensorShape {
        name: name.into(),
        wanted: wanted.to_vec(),
        found: found.to_vec(),
        place: place.display().to_string(),
    })
}
