//! One weight of a model: its shape, where its numbers lie, and what was read of them.

use std::path::Path;
use std::sync::OnceLock;

use tunebox_compute::precision::Role;
use tunebox_compute::{DType, Weight};

use super::repair::Repair;
use super::{gguf, safetensors};
use crate::error::{Error, Result};

/// A weight and where it is.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shape: Vec<usize>,
    pub(super) stored: Stored,
    pub(super) loaded: OnceLock<Weight>,
}

/// Where a weight is.
#[derive(Debug)]
pub(super) enum Stored {
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

impl Entry {
    /// A weight that nobody has asked for yet.
    pub(super) fn new(shape: Vec<usize>, stored: Stored) -> Self {
        Self { shape, stored, loaded: OnceLock::new() }
    }

    /// Bytes that it takes, in memory or in its file.
    pub(super) fn bytes(&self) -> u64 {
        match (self.loaded.get(), &self.stored) {
            (Some(weight), _) => weight.bytes() as u64,
            (None, Stored::Safetensors(location)) => location.bytes,
            (None, Stored::Gguf { location, .. }) => gguf::bytes(location),
            (None, Stored::Given) => 0,
        }
    }

    /// What holds its numbers exactly.
    pub(super) fn dtype(&self) -> DType {
        match (&self.stored, self.loaded.get()) {
            (_, Some(Weight::Packed(packed))) => packed.format().dtype(),
            (Stored::Safetensors(location), _) => safetensors::kept_as(location),
            (Stored::Gguf { location, .. }, _) => gguf::kept_as(location),
            (Stored::Given, Some(Weight::Tensor(tensor))) => tensor.dtype(),
            (Stored::Given, _) => DType::F32,
        }
    }

    /// What a weight of this name is there for.
    pub(super) fn role(&self, name: &str) -> Role {
        match self.shape.len() {
            2 if name.starts_with("model.layers.") => Role::Linear,
            2 => Role::Vocabulary,
            _ => Role::Vector,
        }
    }
}

/// Refuses a weight of another shape than the configuration asks for.
pub(super) fn same_shape(name: &str, wanted: &[usize], found: &[usize], place: &Path) -> Result<()> {
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
