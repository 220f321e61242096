//! GLM-4-0414: four norms a block, heads of which only some features are rotated, in adjacent pairs, and gate and up in
//! one matrix.

use serde_json::json;

use super::family::Family;
use super::gguf_keys::without_own;
use super::rope;
use crate::configuration::BlockNorms;

pub(super) const GLM4: Family = Family {
    name: "glm4",
    model_types: &["glm4"],
    class: "Glm4ForCausalLM",
    architecture: "glm4",
    partial_rotation: Some(0.5),
    heads: Some(32),
    kv_heads: Some(2),
    head_dim: Some(128),
    vocabulary: Some(151_552),
    max_positions: 131_072,
    norm_epsilon: 1.5625e-7,
    set_architecture: |configuration| {
        configuration.norms = BlockNorms::GLM4;
        (configuration.adjacent_pairs, configuration.fused_gate_up) = (true, true);
    },
    // Without a bias on the attention's output.
    from_hugging_face: |fields, configuration| {
        configuration.attention_bias = fields.get_or("attention_bias", Some(true))?;
        Ok(())
    },
    to_hugging_face: |configuration, config| {
        config["attention_bias"] = json!(configuration.attention_bias);
        rope::write_partial(configuration, config);
    },
    to_gguf: Some(without_own),
    ..Family::PLAIN
};
