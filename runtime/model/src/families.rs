//! The model families, and how the configuration of each is read and written.
//! A family is a constant that holds only what differs from other families, in a file with related families. What is
//! shared lies in `hugging_face`, `rope`, `gguf` and `names`.

mod family;
mod gemma;
mod gguf;
mod gguf_keys;
mod glm4;
mod granite;
mod hugging_face;
mod llama;
mod moe;
mod names;
mod olmo;
mod phi3;
mod rope;
mod unread;

use std::path::Path;

use candle_core::quantized::gguf_file::Value as GgufValue;
use serde_json::Value;
use tunebox_foundation::explain::Explanation;

pub use gguf::TensorFacts;
pub use names::weight_shapes;
pub(crate) use names::{EMBEDDING, HEAD, aliases, base_name, gguf_name};

use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::weights::gguf::Metadata;
use family::Family;

/// All families that are read. The first is the default of [`family_of`].
const FAMILIES: [&Family; 15] = [
    &llama::LLAMA,
    &llama::MISTRAL,
    &moe::MIXTRAL,
    &llama::SMOLLM3,
    &llama::QWEN2,
    &llama::QWEN3,
    &moe::QWEN3_MOE,
    &moe::OLMOE,
    &olmo::OLMO2,
    &olmo::OLMO3,
    &granite::GRANITE,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &phi3::PHI3,
    &glm4::GLM4,
];

impl Configuration {
    /// Reads the parsed `config.json` of a model folder and checks its values; `file` names the file in errors. The
    /// family is the one that lists the file's `model_type`, case included.
    ///
    /// # Errors
    /// When `config` is not an object, the family is not known, or a setting is missing or has a value that cannot be
    /// run.
    pub fn from_hugging_face(config: &Value, file: &Path) -> Result<Self> {
        let whole = Fields::new(config, file)?;
        let family = find_family(&whole)?;
        refuse_quantized(&whole)?;
        let configuration = hugging_face::read(&whole, family)?;
        configuration.check(file)?;
        Ok(configuration)
    }

    /// Checks that the parsed `config.json` of a model names a known family, and no quantized weights; `file` names the
    /// file in errors. A file that names no family passes: [`Configuration::from_hugging_face`] reports it.
    ///
    /// # Errors
    /// When the family is not known, or the weights are quantized.
    pub(crate) fn check_family(config: &Value, file: &Path) -> Result<()> {
        if !config["model_type"].is_string() {
            return Ok(());
        }
        let whole = Fields::new(config, file)?;
        find_family(&whole)?;
        refuse_quantized(&whole)
    }

    /// Whether `model_type`, as in `config.json`, is that of a known family.
    pub(crate) fn is_known(model_type: &str) -> bool {
        FAMILIES.iter().any(|family| family.model_types.contains(&model_type))
    }

    /// Appends the `eos_token_id` values of a parsed `generation_config.json`, such as end-of-turn tokens, to `eos`.
    /// Skips those that `eos` contains already; does nothing if the key is missing, null or an empty list. Does not
    /// check that the ids are in the vocabulary. `file` names the file in errors.
    ///
    /// # Errors
    /// When `config` is not an object, or the values are not token ids.
    pub fn add_eos(&mut self, config: &Value, file: &Path) -> Result<()> {
        for id in Fields::new(config, file)?.list("eos_token_id")?.unwrap_or_default() {
            if !self.eos.contains(&id) {
                self.eos.push(id);
            }
        }
        Ok(())
    }

    /// Reads the configuration from the metadata of a GGUF file, and from `facts`, which its metadata does not state
    /// but its tensors show, and checks its values. The family is the first with the architecture
    /// `general.architecture`, unless its reader finds that the file is of another one with it, such as Mistral.
    ///
    /// # Errors
    /// When the architecture is missing or not known, or a setting is missing or has a value that cannot be run.
    pub fn from_gguf(metadata: &Metadata, facts: TensorFacts) -> Result<Self> {
        const KEY: &str = "general.architecture";
        let file = metadata.path();
        let found = metadata.string(KEY).ok_or_else(|| Error::missing(format!("`{KEY}`"), file))?;
        let Some(family) = FAMILIES.iter().find(|family| family.architecture == found) else {
            let mut known = FAMILIES.map(|family| family.architecture).to_vec();
            known.dedup();
            return Err(Error::key(KEY, found, file, unread::explain(found, &known)));
        };
        let configuration = gguf::read(metadata, family, found, facts)?;
        configuration.check(file)?;
        Ok(configuration)
    }

    /// Converts the configuration to a `config.json`, for models that came without one. An unknown family gets the keys
    /// of Llama.
    #[must_use]
    pub fn to_hugging_face(&self) -> Value {
        let family = family_of(self);
        let mut config = hugging_face::write(self, family);
        (family.to_hugging_face)(self, &mut config);
        config
    }

    /// The total number of values in the model's weights; a tied head counts once, with the embedding.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        weight_shapes(self).iter().map(|(_, shape)| shape.iter().map(|side| *side as u64).product::<u64>()).sum()
    }
}

/// Fails if a `config.json` says that MLX quantized its weights, or another program (`quantization_config`), such as
/// `bitsandbytes` or `gptq`. Their layouts are not read, and weights would be reported that are missing.
fn refuse_quantized(whole: &Fields<'_>) -> Result<()> {
    let other = whole.object("quantization_config")?;
    let program = match &other {
        _ if whole.object("quantization")?.is_some() => "MLX",
        Some(other) => other.get("quant_method")?.unwrap_or("another program"),
        None => return Ok(()),
    };
    let what = format!("the weights of this folder are quantized by {program}, whose layout tunebox does not read");
    let hint =
        "give the model that it was made from, or a GGUF file of it; `--precision nf4` quantizes the base to 4 bits";
    let location = whole.file().display().to_string();
    Err(Explanation::new("model", what).with_location(location).with_hint(hint).into())
}

/// Finds the family that lists the `model_type` of a `config.json`. Errors: the key is missing, or no family lists it.
fn find_family(whole: &Fields<'_>) -> Result<&'static Family> {
    let found: &str = whole.require("model_type")?;
    let family = FAMILIES.into_iter().find(|family| family.model_types.contains(&found));
    family.ok_or_else(|| {
        let known: Vec<&str> = FAMILIES.iter().flat_map(|family| family.model_types).copied().collect();
        whole.key_error("model_type", unread::explain(found, &known))
    })
}

/// The family of a configuration, by name; Llama for an unknown name.
fn family_of(configuration: &Configuration) -> &'static Family {
    FAMILIES.into_iter().find(|family| family.name == configuration.family).unwrap_or(FAMILIES[0])
}

/// Whether the two rows of a rotated pair of features are adjacent in the query and key weights of GGUF files of a
/// configuration's family, in Hugging Face's half a head apart.
pub(crate) fn has_gguf_pairs(configuration: &Configuration) -> bool {
    family_of(configuration).gguf_pairs
}

/// The keys that only the configuration's family has in GGUF metadata, without the architecture before them. The error
/// says why no GGUF file is written: metadata is not written for the family, or llama.cpp cannot run the model.
pub(crate) fn gguf_keys(configuration: &Configuration) -> std::result::Result<Vec<(&'static str, GgufValue)>, String> {
    let Some(write) = family_of(configuration).to_gguf else {
        let written: Vec<&str> = FAMILIES.iter().filter(|one| one.to_gguf.is_some()).map(|one| one.name).collect();
        return Err(format!("the metadata of a GGUF file is written for {} only", written.join(", ")));
    };
    write(configuration).map_err(str::to_owned)
}

/// The `general.architecture` of GGUF files of a configuration's family.
pub(crate) fn gguf_architecture(configuration: &Configuration) -> &'static str {
    family_of(configuration).architecture
}

#[cfg(test)]
mod tests;
