//! The base's weights in another precision: the model stored anew, as `merge` would store it.

use std::path::Path;

use tunebox_compute::DType;
use tunebox_compute::precision::Base;
use tunebox_model::merge::merge;
use tunebox_model::source::Form;
use tunebox_model::{Model, Policy, PolicySettings, Source};

use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::open_model;

/// How weights are stored for a benchmark. Sums are in `f32` either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredAs {
    /// 32 bits.
    F32,
    /// 16 bits, 8 of them exponent.
    Bf16,
    /// 16 bits, 5 of them exponent.
    F16,
    /// The matrices of the blocks in 4 bits, quantised while they are read; nothing is stored anew.
    Nf4,
}

impl StoredAs {
    /// Each with the word for it.
    pub const WORDS: [(&'static str, Self); 4] =
        [("f32", Self::F32), ("bf16", Self::Bf16), ("f16", Self::F16), ("nf4", Self::Nf4)];

    /// The type to store weights in; none for what is made when they are read.
    fn dtype(self) -> Option<DType> {
        match self {
            Self::F32 => Some(DType::F32),
            Self::Bf16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
            Self::Nf4 => None,
        }
    }

    /// The setting that makes a run keep its base so.
    pub(super) fn setting(self) -> Option<&'static str> {
        (self == Self::Nf4).then_some("model.precision=nf4")
    }
}

/// How most of a model's weights are stored: `gguf` stands for the formats that such a file mixes.
pub(super) fn name(model: &Model) -> &'static str {
    if model.weights.precision().base() == Base::Nf4 {
        return "nf4";
    }
    if is_gguf(model) { "gguf" } else { model.weights.dtype().as_str() }
}

/// Writes the run's model into a folder in another precision; false where its files have it already.
pub(super) fn store(settings: &RunSettings, precision: StoredAs, folder: &Path) -> Result<bool, Error> {
    let Some(dtype) = precision.dtype() else { return Ok(false) };
    let model = open_model(settings)?;
    if !is_gguf(&model) && model.weights.dtype() == dtype {
        return Ok(false);
    }
    merge(&Policy::open(model, None, PolicySettings::default())?, folder, dtype)?;
    Ok(true)
}

fn is_gguf(model: &Model) -> bool {
    matches!(model.source().map(Source::form), Some(Form::Gguf { .. }))
}
