//! Qwen2 and Qwen2.5: biases on queries, keys and values; optionally a window from some layer upwards.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::hugging_face;
use super::keys::Keys;
use crate::configuration::Configuration;
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    architecture: Some("qwen2"),
    partial_rotation: false,
    defaults: Defaults { kv_heads: Some(32), vocabulary: Some(151_936), max_positions: 32_768, ..Defaults::NONE },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::PLAIN,
};

/// What transformers assumes for a window that is in use and not named.
const WINDOW: usize = 4096;

/// Sets Qwen2's fields from `config.json`: biases of queries, keys and values, windows, and the rotation.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    configuration.attention_bias = true;
    upper_windows(fields, configuration)?;
    configuration.ropes = vec![hugging_face::rope(fields, configuration)?];
    Ok(())
}

/// Sets the window on the layers that `layer_types` names, or on those from `max_window_layers` on; on none unless
/// `use_sliding_window` is set.
pub(super) fn upper_windows(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let window = hugging_face::window_in_use(fields, Some(WINDOW))?;
    let first = fields.size_or("max_window_layers", Some(28))?;
    hugging_face::windows(fields, configuration, window, |layer| layer >= first)
}

/// Sets the biases of queries, keys and values, which every Qwen2 has.
fn from_gguf(_: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    // A file without them is broken, not another kind of Qwen2.
    configuration.attention_bias = true;
    Ok(())
}

/// Adds Qwen2's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    map.insert("architectures".into(), json!(["Qwen2ForCausalLM"]));
    write_windows(configuration, map);
}

/// Adds `use_sliding_window` and, if any layer has a window, `sliding_window` and `layer_types`.
pub(super) fn write_windows(configuration: &Configuration, map: &mut Map<String, Value>) {
    let kinds = &configuration.layers_kind;
    let window = kinds.iter().find_map(|kind| kind.window);
    map.insert("use_sliding_window".into(), json!(window.is_some()));
    if window.is_some() {
        map.insert("sliding_window".into(), json!(window));
        map.insert("layer_types".into(), hugging_face::layer_types(configuration));
    }
}
