//! Mistral: Llama's blocks with a window over all layers, where one is set.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::hugging_face;
use super::keys::Keys;
use crate::configuration::Configuration;
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    model_types: &["mistral"],
    // Its GGUF files say `llama`.
    architecture: None,
    partial_rotation: false,
    defaults: Defaults { kv_heads: Some(8), max_positions: 131_072, ..Defaults::NONE },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::LLAMA,
};

/// What transformers assumes when the key is missing; `null` means no window.
const WINDOW: usize = 4096;

/// Sets Mistral's fields from `config.json`: one window for all layers, and the rotation. Errors: another activation
/// than SiLU.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    let window = hugging_face::sliding_window(fields, WINDOW)?;
    configuration.set_window(window);
    configuration.ropes = vec![hugging_face::rope(fields, configuration)?];
    Ok(())
}

/// Does nothing: GGUF files of Mistral are read as Llama's.
fn from_gguf(_: &Keys<'_>, _: &mut Configuration) -> Result<()> {
    Ok(())
}

/// Adds Mistral's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    let window = configuration.layers_kind.first().and_then(|kind| kind.window);
    map.insert("architectures".into(), json!(["MistralForCausalLM"]));
    map.insert("sliding_window".into(), json!(window));
}
