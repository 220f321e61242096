//! Families with a mixture of experts in the feed-forward part of every block: Qwen3-MoE, with the attention of Qwen3;
//! and OLMoE, with norms over all features of queries and keys.

use serde_json::{Value, json};

use super::family::Family;
use super::gguf::Keys;
use super::hugging_face;
use super::llama::QWEN3;
use crate::configuration::{Configuration, Experts};
use crate::error::Result;
use crate::fields::Fields;

pub(super) const QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    model_types: &["qwen3_moe"],
    class: "Qwen3MoeForCausalLM",
    architecture: "qwen3moe",
    heads: Some(32),
    kv_heads: Some(4),
    head_dim: None,
    from_hugging_face: qwen3_from_hugging_face,
    // llama.cpp divides the weights of a token's experts by their sum in this family, whatever the file says.
    from_gguf: |keys, configuration| from_gguf(keys, configuration, true),
    to_hugging_face: qwen3_to_hugging_face,
    ..QWEN3
};

/// Sets the experts, and the window of all layers if one is in use. Errors: blocks without experts, as
/// `mlp_only_layers` or `decoder_sparse_step` ask for.
fn qwen3_from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("mlp_only_layers", &json!([]))?;
    fields.only("decoder_sparse_step", &json!(1))?;
    let width = fields.get_or("moe_intermediate_size", Some(768))?;
    configuration.experts = Some(hugging_face::experts(fields, 128, width)?);
    configuration.set_window(hugging_face::window_in_use(fields, Some(hugging_face::WINDOW))?);
    Ok(())
}

/// Adds the keys of experts and windows to a `config.json`.
fn qwen3_to_hugging_face(configuration: &Configuration, config: &mut Value) {
    hugging_face::write_windows_in_use(configuration, config);
    hugging_face::write_experts(configuration, config);
    config["moe_intermediate_size"] = json!(configuration.experts.map(|experts| experts.intermediate));
    config["decoder_sparse_step"] = json!(1);
    config["mlp_only_layers"] = json!([]);
}

pub(super) const OLMOE: Family = Family {
    name: "olmoe",
    model_types: &["olmoe"],
    class: "OlmoeForCausalLM",
    architecture: "olmoe",
    attention_bias: true,
    heads: Some(16),
    vocabulary: Some(50_304),
    max_positions: 4096,
    norm_epsilon: 1e-5,
    set_architecture: |configuration| {
        (configuration.query_key_norm, configuration.joint_query_key_norm) = (true, true);
    },
    from_hugging_face: |fields, configuration| {
        fields.only("clip_qkv", &Value::Null)?;
        configuration.experts = Some(hugging_face::experts(fields, 64, configuration.intermediate)?);
        Ok(())
    },
    from_gguf: |keys, configuration| from_gguf(keys, configuration, false),
    to_hugging_face: hugging_face::write_experts,
    ..Family::PLAIN
};

/// Sets the experts from a GGUF file, with `expert_feed_forward_length`, or else `feed_forward_length`, as the width
/// inside an expert. `normalized` says whether the weights of a token's experts are divided by their sum.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration, normalized: bool) -> Result<()> {
    configuration.experts = Some(Experts {
        count: keys.size("expert_count")?,
        active: keys.size("expert_used_count")?,
        intermediate: keys.optional_size("expert_feed_forward_length")?.unwrap_or(configuration.intermediate),
        normalized,
    });
    Ok(())
}
