//! The number format of the base model in a benchmark.

use std::path::Path;

use tunebox_compute::DType;
use tunebox_compute::precision::Base;
use tunebox_model::merge::merge;
use tunebox_model::source::Form;
use tunebox_model::{Model, Policy, PolicySettings, Source};

use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::open_model;

/// The number format of the base model. Sums are in `f32` in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredAs {
    /// 32 bits.
    F32,
    /// 16 bits, 8 of them exponent.
    Bf16,
    /// 16 bits, 5 of them exponent.
    F16,
    /// 4-bit NF4 for the matrices of the blocks, quantized while the model is read.
    Nf4,
}

impl StoredAs {
    /// The formats by name.
    pub const WORDS: [(&'static str, Self); 4] =
        [("f32", Self::F32), ("bf16", Self::Bf16), ("f16", Self::F16), ("nf4", Self::Nf4)];

    /// The type in which weights of this format are stored; `None` for NF4, which is computed while the model is read.
    fn dtype(self) -> Option<DType> {
        match self {
            Self::F32 => Some(DType::F32),
            Self::Bf16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
            Self::Nf4 => None,
        }
    }

    /// The `--set` argument that gives a run this format without rewriting the model's files; `None` except for NF4.
    pub(super) fn setting(self) -> Option<&'static str> {
        (self == Self::Nf4).then_some("model.precision=nf4")
    }
}

/// The name of a model's number format: `nf4`, `gguf` for the mixed formats of such a file, or the type of its weights.
pub(super) fn name(model: &Model) -> &'static str {
    if model.weights.precision().base() == Base::Nf4 {
        return "nf4";
    }
    if is_gguf(model) { "gguf" } else { model.weights.dtype().as_str() }
}

/// Writes the run's model into a folder in another number format. Returns false and writes nothing if its files have
/// that format already, or for NF4.
pub(super) fn store(settings: &RunSettings, precision: StoredAs, folder: &Path) -> Result<bool, Error> {
    let Some(dtype) = precision.dtype() else { return Ok(false) };
    let model = open_model(settings)?;
    if !is_gguf(&model) && model.weights.dtype() == dtype {
        return Ok(false);
    }
    merge(&Policy::open(model, None, PolicySettings::default())?, folder, dtype)?;
    Ok(true)
}

/// Whether the model was opened from a GGUF file.
fn is_gguf(model: &Model) -> bool {
    matches!(model.source().map(Source::form), Some(Form::Gguf { .. }))
}
