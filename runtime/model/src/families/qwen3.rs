//! Qwen3: a norm on each head of queries and keys before they are rotated, and a head width of its own.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::keys::Keys;
use super::{hugging_face, qwen2};
use crate::configuration::Configuration;
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "qwen3",
    model_types: &["qwen3"],
    architecture: Some("qwen3"),
    partial_rotation: false,
    defaults: Defaults {
        kv_heads: Some(32),
        head_dim: Some(128),
        vocabulary: Some(151_936),
        max_positions: 32_768,
        ..Defaults::NONE
    },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::PLAIN,
};

/// Sets Qwen3's fields from `config.json`: norms of query and key heads, biases, windows, and the rotation.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    configuration.query_key_norm = true;
    hugging_face::attention_bias(fields, configuration)?;
    qwen2::upper_windows(fields, configuration)?;
    configuration.ropes = vec![hugging_face::rope(fields, configuration)?];
    Ok(())
}

/// Sets the norms of query and key heads.
fn from_gguf(_: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    configuration.query_key_norm = true;
    Ok(())
}

/// Adds Qwen3's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    map.insert("architectures".into(), json!(["Qwen3ForCausalLM"]));
    map.insert("attention_bias".into(), json!(configuration.attention_bias));
    qwen2::write_windows(configuration, map);
}
