//! The model families: which there are, and how a configuration is chosen and read for each.
//! One file a family holds only what differs; what is shared lies in `hugging_face`, `gguf` and `names`.

mod fields;
mod gemma2;
mod gemma3;
mod gguf;
mod hugging_face;
mod llama;
mod mistral;
mod names;
mod phi3;
mod qwen2;
mod qwen3;
mod smollm3;

use std::path::Path;

use serde_json::{Map, Value};

pub use gguf::TensorFacts;
pub use names::expected;
pub(crate) use names::{StoredForm, aliases, gguf_name, stored_form};

use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::weights::gguf::Metadata;
use fields::Fields;
use gguf::Keys;

/// What a family differs in.
struct Family {
    /// Its name in configurations: the `model_type` of its text models.
    name: &'static str,
    /// Every `model_type` that is read as this family.
    model_types: &'static [&'static str],
    /// Its `general.architecture` in GGUF files; none: its GGUF files carry another family's name.
    architecture: Option<&'static str>,
    /// Whether heads may turn in part.
    partial_rotation: bool,
    /// What transformers assumes for keys that `config.json` leaves out.
    defaults: Defaults,
    /// Turns a plain decoder, made from the shared keys of `config.json`, into this family's.
    from_hugging_face: fn(&Fields<'_>, &mut Configuration) -> Result<()>,
    /// The same from the metadata of a GGUF file.
    from_gguf: fn(&Keys<'_>, &mut Configuration) -> Result<()>,
    /// Adds this family's own keys to a `config.json`.
    to_hugging_face: fn(&Configuration, &mut Map<String, Value>),
    /// How GGUF files store it.
    stored: StoredForm,
}

/// Values of keys that `config.json` may leave out.
#[derive(Clone, Copy)]
struct Defaults {
    heads: Option<usize>,
    /// None: as many as query heads.
    kv_heads: Option<usize>,
    /// None: the hidden width divided by the heads.
    head_dim: Option<usize>,
    vocabulary: Option<usize>,
    max_positions: usize,
    tied: bool,
}

const FAMILIES: [&Family; 8] = [
    &llama::FAMILY,
    &mistral::FAMILY,
    &smollm3::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &phi3::FAMILY,
];

/// The configuration that a `config.json` describes.
pub(crate) fn from_hugging_face(config: &Value, place: &Path) -> Result<Configuration> {
    let place = place.display().to_string();
    let whole = Fields::new(config, &place)?;
    let found = whole.text("model_type")?;
    let family = FAMILIES.iter().find(|family| family.model_types.contains(&found));
    let Some(family) = family else {
        let known = FAMILIES.iter().flat_map(|family| family.model_types).copied().collect();
        return Err(Error::UnknownFamily { found: found.into(), place, known });
    };
    hugging_face::read(&whole, family)
}

/// The configuration that a GGUF file describes.
pub(crate) fn from_gguf(metadata: &Metadata, facts: TensorFacts) -> Result<Configuration> {
    let place = metadata.path().display().to_string();
    let Some(found) = metadata.string("general.architecture") else {
        return Err(Error::KeyMissing { key: "general.architecture".into(), place });
    };
    let family = FAMILIES.iter().find(|family| family.architecture == Some(found));
    let Some(family) = family else {
        let known = FAMILIES.iter().filter_map(|family| family.architecture).collect();
        return Err(Error::UnknownFamily { found: found.into(), place, known });
    };
    gguf::read(metadata, family, found, facts)
}

/// The tokens that a `generation_config.json` ends at.
pub(crate) fn eos(config: &Value, place: &Path) -> Result<Vec<u32>> {
    Fields::new(config, &place.display().to_string())?.ids("eos_token_id")
}

/// A `config.json` for a configuration.
pub(crate) fn to_hugging_face(configuration: &Configuration) -> Value {
    let mut map = hugging_face::write(configuration);
    if let Some(family) = family_of(configuration) {
        (family.to_hugging_face)(configuration, &mut map);
    }
    Value::Object(map)
}

fn family_of(configuration: &Configuration) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.name == configuration.family)
}

#[cfg(test)]
mod tests;
