//! Qwen2 and Qwen2.5, with biases on queries, keys and values; Qwen3, with a norm on each head of queries and keys
//! before they are rotated. Both optionally have a window from some layer upwards.

use super::family::Family;
use super::hugging_face;
use crate::configuration::Configuration;
use crate::error::Result;
use crate::fields::Fields;

pub(super) const QWEN2: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    class: "Qwen2ForCausalLM",
    architecture: Some("qwen2"),
    kv_heads: Some(32),
    vocabulary: Some(151_936),
    max_positions: 32_768,
    // A GGUF file without them is broken, not another kind of Qwen2.
    shape: |configuration| configuration.attention_bias = true,
    from_hugging_face: set_upper_windows,
    to_hugging_face: hugging_face::write_windows_in_use,
    ..Family::PLAIN
};

pub(super) const QWEN3: Family = Family {
    name: "qwen3",
    model_types: &["qwen3"],
    class: "Qwen3ForCausalLM",
    architecture: Some("qwen3"),
    attention_bias: true,
    head_dim: Some(128),
    shape: |configuration| configuration.query_key_norm = true,
    ..QWEN2
};

/// Sets the window on the layers that `layer_types` names, or on those from `max_window_layers` on; on none unless
/// `use_sliding_window` is set.
fn set_upper_windows(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let window = hugging_face::window_in_use(fields, Some(hugging_face::WINDOW))?;
    let first = fields.get_or("max_window_layers", Some(28))?;
    hugging_face::set_windows(fields, configuration, window, |layer| layer >= first)
}
