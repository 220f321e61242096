//! Tests that published `config.json` files of families whose blocks have other norms or multipliers than Llama's are
//! read to the right configuration.

use serde_json::{Value, json};

use super::{read, with};
use crate::configuration::{BlockNorms, LayerKind, RopeSetting};

/// OLMo-2-1124-7B.
pub(super) fn olmo2() -> Value {
    json!({"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100_352, "hidden_act": "silu",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 500_000,
        "tie_word_embeddings": false, "attention_bias": false, "eos_token_id": 100_257, "pad_token_id": 100_277})
}

/// OLMo-3-7B.
pub(super) fn olmo3() -> Value {
    let scaling = json!({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192,
        "attention_factor": 1.207_944_154_167_983_6, "beta_fast": 32.0, "beta_slow": 1.0});
    let mut config = with(olmo2(), "model_type", json!("olmo3"));
    for (key, value) in [
        ("vocab_size", json!(100_278)),
        ("max_position_embeddings", json!(65_536)),
        ("sliding_window", json!(4096)),
        ("rope_scaling", scaling),
    ] {
        config[key] = value;
    }
    config
}

#[test]
fn olmo_2_and_3_read_as_published() {
    let found = read(olmo2()).unwrap();
    assert_eq!((found.norms, found.query_key_norm, found.joint_query_key_norm), (BlockNorms::OUTPUTS, true, true));
    assert_eq!(found.parameter_count(), 7_298_617_344);
    let found = read(olmo3()).unwrap();
    assert_eq!(found.norms, BlockNorms::OUTPUTS);
    assert_eq!(found.layer_kinds[2], LayerKind { window: Some(4096), rope: Some(1) });
    assert_eq!(found.layer_kinds[3], LayerKind::FULL);
    assert!((found.ropes[0].attention_factor() - 1.207_944_154_167_983_6).abs() < 1e-12);
    assert_eq!(found.ropes[1], RopeSetting::plain(500_000.0));
}

/// Granite 3.1 8B.
pub(super) fn granite() -> Value {
    json!({"model_type": "granite", "hidden_size": 4096, "intermediate_size": 12_800, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 49_155, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5,
        "rope_scaling": null, "rope_theta": 10_000_000.0, "tie_word_embeddings": true, "attention_multiplier": 0.007_812_5,
        "embedding_multiplier": 12.0, "logits_scaling": 16.0, "residual_multiplier": 0.22, "eos_token_id": 0})
}

#[test]
fn granite_3_reads_as_published_and_writes_the_same_multipliers() {
    let found = read(granite()).unwrap();
    assert_eq!((found.embedding_scale, found.attention_scale), (12.0, 1.0 / 128.0));
    assert_eq!((found.residual_scale, found.logit_divisor), (0.22, 16.0));
    assert_eq!(found.parameter_count(), 8_170_848_256);
    let written = with(granite(), "logits_scaling", json!(7.0));
    let written = read(written).unwrap().to_hugging_face();
    for (key, value) in [("residual_multiplier", 0.22), ("attention_multiplier", 0.007_812_5), ("logits_scaling", 7.0)]
    {
        assert_eq!(written[key], json!(value), "`{key}`");
    }
}

#[test]
fn multipliers_of_granite_that_are_not_positive_are_refused() {
    for key in ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"] {
        let error = read(with(granite(), key, json!(0.0))).unwrap_err();
        assert_eq!(error.to_string(), format!("`{key}` is `0.0`"));
    }
}

/// GLM-4-9B-0414.
pub(super) fn glm4() -> Value {
    json!({"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13_696, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151_552, "hidden_act": "silu",
        "attention_bias": true, "max_position_embeddings": 32_768, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0, "tie_word_embeddings": false, "eos_token_id": [151_329, 151_336, 151_338]})
}

#[test]
fn glm_4_0414_reads_as_published() {
    let found = read(glm4()).unwrap();
    assert_eq!((found.rotated, found.adjacent_pairs, found.norms), (64, true, BlockNorms::GLM4));
    assert!(found.fused_gate_up && !found.fused_query_key_value);
    assert!(found.attention_bias && !found.output_bias);
    assert_eq!(found.parameter_count(), 9_400_279_040);
    let mut missing = glm4();
    for key in ["partial_rotary_factor", "attention_bias"] {
        missing.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(read(missing).unwrap(), found);
    let newer =
        with(with(glm4(), "rope_parameters", json!({"partial_rotary_factor": 0.25})), "attention_bias", json!(false));
    let newer = read(newer).unwrap();
    assert_eq!((newer.rotated, newer.attention_bias), (32, false));
}
