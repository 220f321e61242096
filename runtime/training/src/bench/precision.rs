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

/// The name of a model's number format: `nf4`, `gguf` for the mixed formats of such a file, or the type of its weights.
pub(super) fn name(model: &Model) -> &'static str {
    if model.weights.precision().base() == Base::Nf4 {
        return "nf4";
    }
    if is_gguf(model) { "gguf" } else { model.weights.dtype().as_str() }
}

/// Writes the run's model into a folder with weights of the type `dtype`. Returns false and writes nothing if its files
/// have that type already.
pub(super) fn store(settings: &RunSettings, dtype: DType, folder: &Path) -> Result<bool, Error> {
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
