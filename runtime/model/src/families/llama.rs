//! Llama 2 and 3, SmolLM and all that share their `model_type`. GGUF files of Mistral carry this name as well.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::hugging_face;
use super::keys::Keys;
use crate::configuration::Configuration;
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "llama",
    model_types: &["llama"],
    architecture: Some("llama"),
    partial_rotation: false,
    defaults: Defaults::NONE,
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::LLAMA,
};

/// Sets Llama's fields from `config.json`: biases and the rotation. Errors: another activation than SiLU.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    hugging_face::attention_bias(fields, configuration)?;
    configuration.feed_forward_bias = fields.flag("mlp_bias", false)?;
    configuration.ropes = vec![hugging_face::rope(fields, configuration)?];
    Ok(())
}

/// Sets the window of all layers from GGUF metadata; 0 and a missing key mean none. Errors: a model with experts.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    if keys.optional_size("expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(keys.value_error("expert_count", "models without experts"));
    }
    let window = keys.optional_size("attention.sliding_window")?.filter(|window| *window > 0);
    configuration.set_window(window);
    Ok(())
}

/// Adds Llama's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    map.insert("architectures".into(), json!(["LlamaForCausalLM"]));
    map.insert("attention_bias".into(), json!(configuration.attention_bias));
    map.insert("mlp_bias".into(), json!(configuration.feed_forward_bias));
}
