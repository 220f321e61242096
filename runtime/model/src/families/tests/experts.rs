//! Tests that published `config.json` files of families with experts are read to the right configuration.

use serde_json::{Value, json};

use super::{read, with};
use crate::configuration::{Experts, LayerKind};
use crate::families::weight_shapes;

/// Qwen3-30B-A3B.
pub(super) fn qwen3_moe() -> Value {
    json!({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151_936, "rms_norm_eps": 1e-6,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 1e6, "sliding_window": null,
        "use_sliding_window": false, "max_window_layers": 48, "attention_bias": false, "tie_word_embeddings": false})
}

/// Mixtral-8x7B-v0.1.
pub(super) fn mixtral() -> Value {
    json!({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32_000, "rms_norm_eps": 1e-5,
        "num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1e6, "sliding_window": null, "hidden_act": "silu",
        "max_position_embeddings": 32_768, "tie_word_embeddings": false, "eos_token_id": 2, "bos_token_id": 1})
}

/// OLMoE-1B-7B.
pub(super) fn olmoe() -> Value {
    json!({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50_304, "rms_norm_eps": 1e-5, "num_experts": 64,
        "num_experts_per_tok": 8, "norm_topk_prob": false, "clip_qkv": null, "rope_theta": 10_000.0, "hidden_act": "silu",
        "attention_bias": false, "max_position_embeddings": 4096, "tie_word_embeddings": false, "eos_token_id": 50_279})
}

#[test]
fn families_with_experts_read_as_published() {
    let found = read(qwen3_moe()).unwrap();
    let experts = Experts { count: 128, active: 8, intermediate: 768, normalized: true };
    assert_eq!((found.experts, found.query_key_norm, found.joint_query_key_norm), (Some(experts), true, false));
    assert_eq!(found.parameter_count(), 30_532_122_624);
    let found = read(mixtral()).unwrap();
    let experts = Experts { count: 8, active: 2, intermediate: 14_336, normalized: true };
    assert_eq!((found.experts, found.layer_kinds[0]), (Some(experts), LayerKind::FULL));
    assert_eq!(found.parameter_count(), 46_702_792_704);
    let (name, shape) = &weight_shapes(&found)[8];
    assert_eq!(
        (name.as_str(), shape.as_slice()),
        ("model.layers.0.block_sparse_moe.experts.0.w3.weight", &[14_336, 4096][..])
    );
    let found = read(olmoe()).unwrap();
    let experts = Experts { count: 64, active: 8, intermediate: 1024, normalized: false };
    assert_eq!((found.experts, found.query_key_norm, found.joint_query_key_norm), (Some(experts), true, true));
    assert_eq!(found.parameter_count(), 6_919_161_856);
}

#[test]
fn the_number_of_experts_has_another_name_in_files_of_transformers_5() {
    let mut config = with(qwen3_moe(), "num_local_experts", json!(64));
    config.as_object_mut().unwrap().remove("num_experts");
    assert_eq!(read(config).unwrap().experts.unwrap().count, 64);
}

#[test]
fn what_no_model_with_experts_can_be_run_with_is_refused() {
    for (config, key, value) in [
        (qwen3_moe(), "mlp_only_layers", json!([0])),
        (qwen3_moe(), "decoder_sparse_step", json!(2)),
        (qwen3_moe(), "num_experts_per_tok", json!(129)),
        (qwen3_moe(), "num_experts_per_tok", json!(0)),
        (qwen3_moe(), "num_experts", json!(2048)),
        (qwen3_moe(), "moe_intermediate_size", json!(1u64 << 60)),
        (olmoe(), "clip_qkv", json!(8.0)),
    ] {
        let error = read(with(config, key, value.clone())).unwrap_err();
        assert_eq!(error.to_string(), format!("`{key}` is `{value}`"));
    }
}
