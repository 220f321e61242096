//! Tests that published `config.json` files are read to the right configuration.

mod blocks;
mod experts;
mod gguf;
mod rotations;

use blocks::{glm4, granite, olmo2, olmo3};
use experts::{mixtral, olmoe, qwen3_moe};
use serde_json::json;

use super::*;
use crate::configuration::{Activation, BlockNorms, LayerKind, RopeScaling, RopeSetting};

fn read(config: Value) -> Result<Configuration> {
    Configuration::from_hugging_face(&config, Path::new("config.json"))
}

fn llama() -> Value {
    json!({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128_256,
        "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": true, "eos_token_id": [128_001, 128_009],
        "bos_token_id": 128_000, "hidden_act": "silu", "max_position_embeddings": 131_072,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}})
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

#[test]
fn llama_3_2_reads_as_published() {
    let found = read(llama()).unwrap();
    let scaling = RopeScaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 8192 };
    assert_eq!(found.ropes, [RopeSetting { theta: 500_000.0, scaling }]);
    assert_eq!((found.kv_heads, found.head_dim, found.tied), (8, 64, true));
    assert_eq!(found.eos, [128_001, 128_009]);
    assert_eq!(found.parameter_count(), 1_235_814_400);
}

#[test]
fn a_head_width_that_is_missing_or_null_follows_from_the_heads() {
    let found = read(with(llama(), "head_dim", Value::Null)).unwrap();
    assert_eq!(found.head_dim, 64);
}

#[test]
fn qwen2_windows_start_at_the_layer_that_is_named() {
    let config = json!({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 272, "use_sliding_window": true,
        "sliding_window": 16, "max_window_layers": 3});
    let windows = |config| read(config).unwrap().layer_kinds.iter().map(|kind| kind.window).collect::<Vec<_>>();
    assert_eq!(windows(config.clone()), [None, None, None, Some(16)]);
    let unused = with(config, "use_sliding_window", json!(false));
    assert_eq!(windows(unused.clone()), [None; 4]);
    assert_eq!(windows(with(unused.clone(), "layer_types", json!(vec!["full_attention"; 4]))), [None; 4]);
    let contradicting = with(unused, "layer_types", json!(vec!["sliding_attention"; 4]));
    assert_eq!(read(contradicting).unwrap_err().to_string(), "`use_sliding_window` is `false`");
}

#[test]
fn mistral_without_the_key_has_a_window_and_with_null_has_none() {
    let config = json!({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "vocab_size": 272, "num_key_value_heads": 4});
    let window = |config| read(config).unwrap().layer_kinds[0].window;
    assert_eq!(window(config.clone()), Some(4096));
    assert_eq!(window(with(config, "sliding_window", Value::Null)), None);
}

fn smollm3() -> Value {
    json!({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11_008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128_256, "hidden_act": "silu",
        "no_rope_layer_interval": 4, "use_sliding_window": false, "sliding_window": null, "rope_theta": 5e6,
        "max_position_embeddings": 65_536, "eos_token_id": 128_012, "rope_scaling": null})
}

fn bare(config: Value) -> Vec<usize> {
    let kinds = read(config).unwrap().layer_kinds;
    kinds.iter().enumerate().filter_map(|(layer, kind)| kind.rope.is_none().then_some(layer)).collect()
}

#[test]
fn smollm3_reads_as_published() {
    let found = read(smollm3()).unwrap();
    assert_eq!((found.tied, found.head_dim, found.max_positions), (true, 128, 65_536));
    assert_eq!(found.ropes, [RopeSetting::plain(5e6)]);
    assert!(found.layer_kinds.iter().all(|kind| kind.window.is_none()));
    assert_eq!(found.parameter_count(), 3_075_098_624);
    assert_eq!(bare(smollm3()), [3, 7, 11, 15, 19, 23, 27, 31, 35]);
}

#[test]
fn smollm3_takes_its_layers_without_positions_from_a_list_before_the_interval() {
    let mut marks = vec![1; 36];
    marks[5] = 0;
    assert_eq!(bare(with(smollm3(), "no_rope_layers", json!(marks))), [5]);
    assert_eq!(bare(with(smollm3(), "no_rope_layer_interval", json!(12))), [11, 23, 35]);
    for (key, value) in [
        ("no_rope_layers", json!([1, 0])),
        ("no_rope_layers", json!(vec![2; 36])),
        ("no_rope_layer_interval", json!(0)),
    ] {
        assert!(matches!(read(with(smollm3(), key, value)), Err(Error::Key { .. })), "`{key}`");
    }
}

#[test]
fn smollm3_with_layers_that_slide_but_no_window_in_use_is_refused() {
    let types = vec!["sliding_attention"; 36];
    let config = with(with(smollm3(), "layer_types", json!(types)), "sliding_window", json!(16));
    assert_eq!(read(config.clone()).unwrap_err().to_string(), "`use_sliding_window` is `false`");
    let config = with(config, "use_sliding_window", json!(true));
    assert!(read(config.clone()).unwrap().layer_kinds.iter().all(|kind| kind.window == Some(16)));
    let error = read(with(config, "sliding_window", Value::Null)).unwrap_err();
    assert_eq!(error.to_string(), "`sliding_window` is `null`");
}

#[test]
fn smollm3_has_as_many_key_heads_as_query_heads_where_their_number_is_null() {
    assert_eq!(read(with(smollm3(), "num_key_value_heads", Value::Null)).unwrap().kv_heads, 16);
    let mut missing = smollm3();
    missing.as_object_mut().unwrap().remove("num_key_value_heads");
    assert_eq!(read(missing).unwrap().kv_heads, 4);
}

#[test]
fn smollm3_slides_where_it_has_no_positions() {
    let config = with(with(smollm3(), "use_sliding_window", json!(true)), "sliding_window", json!(16));
    let found = read(config).unwrap();
    assert!(found.layer_kinds.iter().all(|kind| kind.window.is_some() == kind.rope.is_none()));
    assert_eq!(found.layer_kinds[3], LayerKind { window: Some(16), rope: None });
}

fn phi4_mini() -> Value {
    json!({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200_064, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false, "lm_head_bias": false, "sliding_window": 262_144,
        "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "partial_rotary_factor": 0.75, "tie_word_embeddings": true,
        "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096, "eos_token_id": 199_999,
        "rope_scaling": {"type": "longrope", "short_factor": vec![1.0; 48], "long_factor": vec![2.0; 48]}})
}

#[test]
fn phi_4_mini_reads_as_published() {
    let found = read(phi4_mini()).unwrap();
    assert_eq!((found.head_dim, found.rotated, found.tied), (128, 96, true));
    assert!(found.fused_query_key_value && found.fused_gate_up);
    assert_eq!(found.short_context(), Some(4096));
    assert!((found.ropes[0].attention_factor() - 1.190_238_071_423_808).abs() < 1e-12);
    let (short, long) = (found.ropes[0].frequencies(96), found.ropes[0].long_frequencies(96).unwrap());
    assert_eq!((short[0], long[0], short.len()), (1.0, 0.5, 48));
    assert_eq!(found.layer_kinds[31], LayerKind { window: Some(262_144), rope: Some(0) });
    assert_eq!(found.parameter_count(), 3_836_021_760);
}

fn gemma2() -> Value {
    json!({"model_type": "gemma2", "hidden_size": 4608, "intermediate_size": 36_864, "num_hidden_layers": 46,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "query_pre_attn_scalar": 144,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "eos_token_id": 1})
}

#[test]
fn gemma_2_27b_reads_as_published() {
    let found = read(gemma2()).unwrap();
    assert_eq!((found.attention_soft_cap, found.logit_soft_cap), (Some(50.0), Some(30.0)));
    assert_eq!((found.attention_scale, found.embedding_scale), (1.0 / 12.0, 4608f32.sqrt()));
    assert_eq!((found.vocabulary, found.tied, found.query_key_norm), (256_000, true, false));
    assert!(found.unit_offset_norm && found.norms == BlockNorms::GEMMA);
    assert_eq!(found.layer_kinds[0], LayerKind { window: Some(4096), rope: Some(0) });
    assert_eq!(found.layer_kinds[1], LayerKind::FULL);
    assert_eq!(found.parameter_count(), 27_227_128_320);
}

#[test]
fn gemma_2_caps_where_the_keys_are_missing_and_not_where_they_are_null() {
    let caps = |config| read(config).map(|found| (found.attention_soft_cap, found.logit_soft_cap)).unwrap();
    let mut missing = gemma2();
    let keys = missing.as_object_mut().unwrap();
    keys.remove("attn_logit_softcapping");
    keys.remove("final_logit_softcapping");
    assert_eq!(caps(missing), (Some(50.0), Some(30.0)));
    assert_eq!(caps(with(gemma2(), "attn_logit_softcapping", Value::Null)), (None, Some(30.0)));
    let error = read(with(gemma2(), "attn_logit_softcapping", json!(0.0))).unwrap_err();
    assert_eq!(error.to_string(), "`attn_logit_softcapping` is `0`");
}

#[test]
fn multimodal_gemma_3_takes_its_text_model_and_its_defaults() {
    let found = read(json!({"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}))
    .unwrap();
    assert_eq!((found.heads, found.kv_heads, found.head_dim, found.vocabulary), (8, 4, 256, 262_208));
    assert_eq!(found.eos, [1, 106]);
    assert!(found.tied && found.unit_offset_norm && found.norms == BlockNorms::GEMMA && found.query_key_norm);
    assert_eq!(found.activation, Activation::GeluTanh);
    assert_eq!(found.layer_kinds[4], LayerKind { window: Some(1024), rope: Some(1) });
    assert_eq!(found.layer_kinds[5], LayerKind { window: None, rope: Some(0) });
    assert_eq!(found.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(found.ropes[1], RopeSetting::plain(10_000.0));
    assert_eq!(found.attention_scale, 1.0 / 16.0);
}

#[test]
fn a_family_that_is_not_known_lists_those_that_are() {
    let error = read(with(llama(), "model_type", json!("rwkv"))).unwrap_err();
    let Error::Key { key, why, .. } = error else { panic!("{error}") };
    let known = "llama, mistral, mixtral, smollm3, qwen2, qwen3, qwen3_moe, olmoe, olmo2, olmo3, granite, gemma2, \
        gemma3_text, gemma3, phi3, glm4";
    assert_eq!((key.as_str(), why), ("model_type", format!("expected one of {known}")));
}

#[test]
fn an_architecture_beside_a_family_says_what_of_it_is_not_run() {
    for (found, part) in [
        ("granitemoe", "experts that are one tensor"),
        ("glm4_moe", "a router of sigmoids"),
        ("qwen3_5", "linear attention"),
        ("gpt_oss", "attention sinks"),
    ] {
        let error = read(with(llama(), "model_type", json!(found))).unwrap_err();
        let Error::Key { why, .. } = error else { panic!("{error}") };
        assert!(
            why.starts_with(&format!("such models have {part}")) && why.contains("; expected one of llama,"),
            "{why}"
        );
    }
}

#[test]
fn sizes_that_make_no_model_are_refused_before_anything_is_made_of_them() {
    for (key, value) in [
        ("hidden_size", json!(0)),
        ("hidden_size", json!(u64::MAX)),
        ("hidden_size", json!("64")),
        ("num_hidden_layers", json!(1u64 << 60)),
        ("num_key_value_heads", json!(5)),
        ("head_dim", json!(63)),
        ("vocab_size", json!(-1)),
        ("num_attention_heads", json!(0)),
        ("rope_theta", json!(-1.0)),
        ("hidden_act", json!("relu")),
    ] {
        assert!(matches!(read(with(llama(), key, value.clone())), Err(Error::Key { .. })), "`{key}`: {value}");
    }
}

#[test]
fn a_written_configuration_reads_as_the_same() {
    let gemma = json!({"model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 7, "sliding_window": 512, "eos_token_id": 1, "final_logit_softcapping": 30.0});
    let qwen2 = json!({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 272, "use_sliding_window": true,
        "sliding_window": 16, "max_window_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}});
    let qwen3 = json!({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 272});
    let mistral = json!({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "vocab_size": 272, "num_key_value_heads": 4, "sliding_window": null});
    let smollm3 = with(with(smollm3(), "use_sliding_window", json!(true)), "sliding_window", json!(16));
    let experts = [mixtral(), qwen3_moe(), olmoe()];
    let dense =
        [llama(), phi4_mini(), smollm3, gemma2(), gemma, qwen2, qwen3, mistral, olmo2(), olmo3(), granite(), glm4()];
    for config in dense.into_iter().chain(experts) {
        let first = read(config).unwrap();
        assert_eq!(read(first.to_hugging_face()).unwrap(), first);
    }
}
