//! Families with a mixture of experts in the feed-forward part of every block: Mixtral, with the attention of Mistral;
//! Qwen3-MoE, with that of Qwen3; and OLMoE, with norms over all features of queries and keys.

use serde_json::{Value, json};

use super::family::Family;
use super::gguf::Keys;
use super::gguf_keys::with_experts;
use super::hugging_face;
use super::llama::{MISTRAL, QWEN3};
use crate::configuration::{Configuration, ExpertNames, Experts};
use crate::error::Result;
use crate::fields::Fields;

/// Mixtral. Its GGUF files have the architecture `llama` as well.
pub(super) const MIXTRAL: Family = Family {
    name: "mixtral",
    model_types: &["mixtral"],
    class: "MixtralForCausalLM",
    heads: Some(32),
    vocabulary: Some(32_000),
    norm_epsilon: 1e-5,
    theta: 1_000_000.0,
    set_architecture: |configuration| configuration.expert_names = ExpertNames::MIXTRAL,
    from_hugging_face: |fields, configuration| {
        let usual = Experts { count: 8, active: 2, intermediate: configuration.intermediate, normalized: true };
        configuration.experts = Some(hugging_face::experts(fields, usual)?);
        configuration.set_window(fields.get("sliding_window")?);
        Ok(())
    },
    to_hugging_face: |configuration, config| {
        hugging_face::write_one_window(configuration, config);
        config["num_local_experts"] = json!(configuration.experts.map(|experts| experts.count));
        config["num_experts_per_tok"] = json!(configuration.experts.map(|experts| experts.active));
    },
    to_gguf: Some(|configuration| with_experts(configuration, true)),
    ..MISTRAL
};

/// Makes a GGUF file of the architecture `llama` Mixtral and sets its experts.
pub(super) fn set_mixtral(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    MIXTRAL.name.clone_into(&mut configuration.family);
    (MIXTRAL.set_architecture)(configuration);
    from_gguf(keys, configuration, true)
}

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
    to_gguf: Some(|configuration| with_experts(configuration, true)),
    ..QWEN3
};

/// Sets the experts, and the window of all layers if one is in use. Errors: blocks without experts, as
/// `mlp_only_layers` or `decoder_sparse_step` ask for.
fn qwen3_from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("mlp_only_layers", &json!([]))?;
    fields.only("decoder_sparse_step", &json!(1))?;
    let intermediate = fields.get_or("moe_intermediate_size", Some(768))?;
    let normalized = fields.get_or("norm_topk_prob", Some(false))?;
    let usual = Experts { count: 128, active: 8, intermediate, normalized };
    configuration.experts = Some(hugging_face::experts(fields, usual)?);
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
        let normalized = fields.get_or("norm_topk_prob", Some(false))?;
        let usual = Experts { count: 64, active: 8, intermediate: configuration.intermediate, normalized };
        configuration.experts = Some(hugging_face::experts(fields, usual)?);
        Ok(())
    },
    from_gguf: |keys, configuration| from_gguf(keys, configuration, false),
    to_hugging_face: hugging_face::write_experts,
    to_gguf: Some(|configuration| with_experts(configuration, false)),
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
