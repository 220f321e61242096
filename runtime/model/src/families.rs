//! The model families: which there are, and how a configuration is chosen and read for each.
//! One file a family holds only what differs; what is shared lies in `hugging_face`, `gguf` and `names`.

mod family;
mod fields;
mod gemma2;
mod gemma3;
mod gguf;
mod hugging_face;
mod keys;
mod llama;
mod mistral;
mod names;
mod phi3;
mod qwen2;
mod qwen3;
mod smollm3;

use std::path::Path;

use serde_json::Value;

pub(crate) use family::GgufLayout;
pub use gguf::TensorFacts;
pub use names::expected;
pub(crate) use names::{aliases, gguf_name};

use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::weights::gguf::Metadata;
use family::Family;
use fields::Fields;

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

impl Configuration {
    /// Reads `config.json` of a model folder; `file` names the file in errors.
    ///
    /// # Errors
    /// When the family is not known, a setting is missing or has a value that cannot be run.
    pub fn from_hugging_face(config: &Value, file: &Path) -> Result<Self> {
        let place = file.display().to_string();
        let whole = Fields::new(config, &place)?;
        let found = whole.text("model_type")?;
        let Some(family) = FAMILIES.iter().find(|family| family.model_types.contains(&found)) else {
            let known = FAMILIES.iter().flat_map(|family| family.model_types).copied().collect();
            return Err(Error::UnknownFamily { found: found.into(), place, known });
        };
        let configuration = hugging_face::read(&whole, family)?;
        configuration.check(file)?;
        Ok(configuration)
    }

    /// Adds the `eos_token_id` values of `generation_config.json`, such as end-of-turn tokens, unless they are known
    /// already. `file` names the file in errors.
    ///
    /// # Errors
    /// When they are not token ids.
    pub fn add_eos(&mut self, config: &Value, file: &Path) -> Result<()> {
        for id in Fields::new(config, &file.display().to_string())?.ids("eos_token_id")? {
            if !self.eos.contains(&id) {
                self.eos.push(id);
            }
        }
        Ok(())
    }

    /// Reads the configuration from the metadata of a GGUF file, and from `facts` found in its tensors.
    ///
    /// # Errors
    /// When the architecture is not known, a setting is missing or has a value that cannot be run.
    pub fn from_gguf(metadata: &Metadata, facts: TensorFacts) -> Result<Self> {
        let place = metadata.path().display().to_string();
        let Some(found) = metadata.string("general.architecture") else {
            return Err(Error::KeyMissing { key: "general.architecture".into(), place });
        };
        let Some(family) = FAMILIES.iter().find(|family| family.architecture == Some(found)) else {
            let known = FAMILIES.iter().filter_map(|family| family.architecture).collect();
            return Err(Error::UnknownFamily { found: found.into(), place, known });
        };
        let configuration = gguf::read(metadata, family, found, facts)?;
        configuration.check(metadata.path())?;
        Ok(configuration)
    }

    /// Converts the configuration to a `config.json`, for models that came without one.
    #[must_use]
    pub fn to_hugging_face(&self) -> Value {
        let mut map = hugging_face::write(self);
        if let Some(family) = family_of(self) {
            (family.to_hugging_face)(self, &mut map);
        }
        Value::Object(map)
    }

    /// The total number of values in the model's weights; a tied head counts once, with the embedding.
    #[must_use]
    pub fn weights(&self) -> u64 {
        expected(self).iter().map(|(_, shape)| shape.iter().map(|side| *side as u64).product::<u64>()).sum()
    }
}

/// The family of a configuration, by name; `None` if unknown.
fn family_of(configuration: &Configuration) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.name == configuration.family)
}

/// How GGUF files store the weights of a configuration's family; Llama's layout for an unknown family.
pub(crate) fn gguf_layout(configuration: &Configuration) -> GgufLayout {
    family_of(configuration).unwrap_or(FAMILIES[0]).gguf_layout
}

#[cfg(test)]
mod tests;
