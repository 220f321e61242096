//! SmolLM3: Llama's blocks, every fourth without positions.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::keys::Keys;
use super::{hugging_face, qwen2};
use crate::configuration::Configuration;
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "smollm3",
    model_types: &["smollm3"],
    architecture: Some("smollm3"),
    partial_rotation: false,
    defaults: Defaults {
        heads: Some(16),
        kv_heads: Some(4),
        vocabulary: Some(128_256),
        max_positions: 32_768,
        tied: true,
        ..Defaults::NONE
    },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::LLAMA,
};

/// The base of the frequencies when the key is missing.
const THETA: f64 = 2_000_000.0;
/// Every so many layers one has no positions. GGUF files do not say; llama.cpp knows it by the architecture.
const INTERVAL: usize = 4;

/// Sets SmolLM3's fields from `config.json`: biases, layers without positions, windows, and the rotation.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    hugging_face::attention_bias(fields, configuration)?;
    configuration.feed_forward_bias = fields.flag("mlp_bias", false)?;
    positions(fields, configuration)?;
    let window = hugging_face::window_in_use(fields, None)?;
    let bare: Vec<bool> = configuration.layers_kind.iter().map(|kind| kind.rope.is_none()).collect();
    hugging_face::windows(fields, configuration, window, |layer| bare[layer])?;
    configuration.ropes = vec![hugging_face::rope_from(fields, configuration, THETA)?];
    Ok(())
}

/// Removes the rotation from the layers with a 0 in `no_rope_layers`, or, without that list, from every
/// `no_rope_layer_interval`-th layer. Errors: a list shorter than the layers or with other numbers, or an interval of
/// 0.
fn positions(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let layers = configuration.layers;
    let listed = fields.numbers("no_rope_layers")?;
    let sound = |list: &Vec<f64>| list.len() >= layers && list.iter().all(|mark| *mark == 0.0 || *mark == 1.0);
    if listed.as_ref().is_some_and(|list| !sound(list)) {
        return Err(fields.value_error("no_rope_layers", "one 0 (no positions) or 1 (positions) for each layer"));
    }
    let interval = fields.size_or("no_rope_layer_interval", Some(INTERVAL))?;
    if interval == 0 {
        return Err(fields.value_error("no_rope_layer_interval", "1 and more"));
    }
    for (layer, kind) in configuration.layers_kind.iter_mut().enumerate() {
        let mark = listed.as_ref().and_then(|list| list.get(layer));
        let bare = mark.map_or_else(|| (layer + 1).is_multiple_of(interval), |mark| *mark == 0.0);
        kind.rope = (!bare).then_some(0);
    }
    Ok(())
}

/// Removes the rotation from every fourth layer.
fn from_gguf(_: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    for (layer, kind) in configuration.layers_kind.iter_mut().enumerate() {
        kind.rope = (!(layer + 1).is_multiple_of(INTERVAL)).then_some(0);
    }
    Ok(())
}

/// Adds SmolLM3's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    let marks = configuration.layers_kind.iter().map(|kind| u8::from(kind.rope.is_some()));
    map.insert("architectures".into(), json!(["SmolLM3ForCausalLM"]));
    map.insert("no_rope_layers".into(), marks.collect());
    map.insert("attention_bias".into(), json!(configuration.attention_bias));
    map.insert("mlp_bias".into(), json!(configuration.feed_forward_bias));
    qwen2::write_windows(configuration, map);
}
