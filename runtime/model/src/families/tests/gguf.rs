//! Tests that the metadata of GGUF files is read to the right configuration.

use std::collections::HashMap;

use super::*;
use crate::weights::gguf::Value as Stored;

fn metadata(architecture: &str, more: &[(&str, Stored)]) -> Metadata {
    let mut values = HashMap::from([("general.architecture".to_owned(), Stored::Text(architecture.into()))]);
    let sizes = [
        ("embedding_length", 64),
        ("block_count", 7),
        ("feed_forward_length", 128),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("context_length", 4096),
        ("attention.sliding_window", 16),
    ];
    for (key, size) in sizes {
        values.insert(format!("{architecture}.{key}"), Stored::Number(f64::from(size)));
    }
    for (key, value) in more {
        values.insert((*key).to_owned(), value.clone());
    }
    Metadata { path: "model.gguf".into(), values }
}

fn facts() -> TensorFacts {
    TensorFacts { vocabulary: 272, tied: true, ..TensorFacts::default() }
}

#[test]
fn gemma_3_in_gguf_has_five_local_layers_for_each_global_one() {
    let metadata = metadata("gemma3", &[("gemma3.rope.freq_base", Stored::Number(1e6))]);
    let found = Configuration::from_gguf(&metadata, facts()).unwrap();
    let windows: Vec<_> = found.layer_kinds.iter().map(|kind| kind.window.is_some()).collect();
    assert_eq!(windows, [true, true, true, true, true, false, true]);
    assert_eq!(found.ropes, [RopeSetting::plain(1e6), RopeSetting::plain(1e4)]);
    assert_eq!((found.embedding_scale, found.attention_scale), (8.0, 0.25));
}

#[test]
fn gemma_2_in_gguf_is_local_in_every_other_layer() {
    let found = Configuration::from_gguf(&metadata("gemma2", &[]), facts()).unwrap();
    let windows: Vec<_> = found.layer_kinds.iter().map(|kind| kind.window).collect();
    assert_eq!(windows[..3], [Some(16), None, Some(16)]);
    assert_eq!((found.attention_soft_cap, found.logit_soft_cap), (Some(50.0), Some(30.0)));
    assert_eq!((found.embedding_scale, found.attention_scale), (8.0, 0.25));
}

#[test]
fn gemma_2_in_gguf_scales_by_the_width_of_a_head_and_the_largest_by_hidden_over_heads() {
    let scale = |layers| {
        let sizes = [("gemma2.attention.key_length", 32), ("gemma2.block_count", layers)];
        let keys = sizes.map(|(key, size)| (key, Stored::Number(f64::from(size))));
        Configuration::from_gguf(&metadata("gemma2", &keys), facts()).unwrap().attention_scale
    };
    assert_eq!((scale(42), scale(46)), (32f64.sqrt().recip() as f32, 0.25));
}

#[test]
fn smollm3_in_gguf_has_every_fourth_layer_without_positions() {
    let found = Configuration::from_gguf(&metadata("smollm3", &[]), facts()).unwrap();
    let ropes: Vec<_> = found.layer_kinds.iter().map(|kind| kind.rope.is_some()).collect();
    assert_eq!(ropes, [true, true, true, false, true, true, true]);
}

#[test]
fn phi_3_in_gguf_keeps_its_factors_as_tensors() {
    let factors = Some([vec![1.0; 6], vec![3.0; 6]]);
    let keys = [
        ("phi3.rope.dimension_count", Stored::Number(12.0)),
        ("phi3.rope.scaling.original_context_length", Stored::Number(256.0)),
        ("phi3.rope.scaling.attn_factor", Stored::Number(1.25)),
        ("phi3.attention.sliding_window", Stored::Number(0.0)),
    ];
    let facts = TensorFacts { rope_factors: factors, ..facts() };
    let found = Configuration::from_gguf(&metadata("phi3", &keys), facts).unwrap();
    assert_eq!((found.rotated, found.short_context(), found.layer_kinds[0].window), (12, Some(256), None));
    assert_eq!(found.ropes[0].attention_factor(), 1.25);
    assert_eq!(found.ropes[0].long_frequencies(12).unwrap()[0], 1.0 / 3.0);
}

#[test]
fn features_that_cannot_turn_are_named_by_their_key_in_gguf() {
    for count in [0, 7, 18] {
        let keys = [("phi3.rope.dimension_count", Stored::Number(f64::from(count)))];
        let error = Configuration::from_gguf(&metadata("phi3", &keys), facts()).unwrap_err();
        assert_eq!(error.to_string(), format!("`phi3.rope.dimension_count` is `{count}`"));
    }
}

#[test]
fn an_older_phi_3_in_gguf_has_the_window_that_belongs_to_its_sizes() {
    let window = |layers, context, named: Option<i32>| {
        let sizes = [("phi3.block_count", layers), ("phi3.context_length", context)];
        let mut metadata = metadata("phi3", &sizes.map(|(key, size)| (key, Stored::Number(f64::from(size)))));
        metadata.values.remove("phi3.attention.sliding_window");
        if let Some(size) = named {
            metadata.values.insert("phi3.attention.sliding_window".into(), Stored::Number(f64::from(size)));
        }
        Configuration::from_gguf(&metadata, facts()).unwrap().layer_kinds[0].window
    };
    assert_eq!([window(32, 4096, None), window(40, 4096, None)], [Some(2047); 2]);
    assert_eq!([window(7, 4096, None), window(32, 131_072, None), window(32, 4096, Some(0))], [None; 3]);
    assert_eq!(window(32, 4096, Some(100)), Some(100));
}

#[test]
fn a_window_of_a_llama_in_gguf_is_written_as_a_mistral() {
    let metadata = metadata("llama", &[]);
    let found = Configuration::from_gguf(&metadata, facts()).unwrap();
    assert_eq!(found.layer_kinds[6].window, Some(16));
    let written = read(found.to_hugging_face()).unwrap();
    assert_eq!((written.family.as_str(), written.layer_kinds), ("mistral", found.layer_kinds));
    let error = Configuration::from_gguf(&metadata, TensorFacts { attention_bias: true, ..facts() }).unwrap_err();
    assert_eq!(error.to_string(), "`llama.attention.sliding_window` is `16`");
}

#[test]
fn llama_3_scaling_in_gguf_is_a_tensor_of_divisors() {
    let plain = RopeSetting::plain(500_000.0).frequencies(16);
    let scaling = RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 8192 };
    let scaled = RopeSetting { theta: 500_000.0, scaling }.frequencies(16);
    let divisors: Vec<f64> = plain.iter().zip(&scaled).map(|(plain, scaled)| plain / scaled).collect();
    let metadata = metadata("llama", &[("llama.rope.freq_base", Stored::Number(5e5))]);
    let facts = TensorFacts { rope_divisors: Some(divisors), ..facts() };
    let found = Configuration::from_gguf(&metadata, facts).unwrap();
    for (found, scaled) in found.ropes[0].frequencies(16).iter().zip(&scaled) {
        assert!((found / scaled - 1.0).abs() < 1e-12);
    }
    let written = read(found.to_hugging_face()).unwrap().ropes[0].frequencies(16);
    for (written, scaled) in written.iter().zip(&scaled) {
        assert!((written / scaled - 1.0).abs() < 1e-12);
    }
}

#[test]
fn divisors_of_another_width_are_refused() {
    for count in [3, 9] {
        let facts = TensorFacts { rope_divisors: Some(vec![1.0; count]), ..facts() };
        assert!(matches!(Configuration::from_gguf(&metadata("llama", &[]), facts), Err(Error::Key { .. })));
    }
}

#[test]
fn an_architecture_that_is_not_known_lists_those_that_are() {
    let error = Configuration::from_gguf(&metadata("mamba", &[]), facts()).unwrap_err();
    let Error::Key { key, why, .. } = error else { panic!("{error}") };
    let known = "llama, smollm3, qwen2, qwen3, qwen3moe, olmoe, olmo2, granite, gemma2, gemma3, phi3, glm4";
    assert_eq!((key.as_str(), why), ("general.architecture", format!("expected one of {known}")));
}

#[test]
fn a_window_in_gguf_tells_olmo_3_from_olmo_2() {
    let found = Configuration::from_gguf(&metadata("olmo2", &[]), facts()).unwrap();
    let windows: Vec<_> = found.layer_kinds.iter().map(|kind| kind.window.is_some()).collect();
    assert_eq!((found.family.as_str(), windows), ("olmo3", vec![true, true, true, false, true, true, true]));
    assert_eq!(found.ropes, vec![RopeSetting::plain(1e4); 2]);
    let none = [("olmo2.attention.sliding_window", Stored::Number(0.0))];
    let found = Configuration::from_gguf(&metadata("olmo2", &none), facts()).unwrap();
    assert_eq!((found.family.as_str(), found.ropes.len(), found.layer_kinds[0]), ("olmo2", 1, LayerKind::FULL));
}

#[test]
fn granite_in_gguf_needs_its_divisor_of_logits_and_positions() {
    let divisor = ("granite.logit_scale", Stored::Number(16.0));
    let scales = [divisor.clone(), ("granite.residual_scale", Stored::Number(0.25))];
    let found = Configuration::from_gguf(&metadata("granite", &scales), facts()).unwrap();
    let multipliers = (found.embedding_scale, found.attention_scale, found.residual_scale, found.logit_divisor);
    assert_eq!(multipliers, (1.0, 0.25, 0.25, 16.0));
    let error = Configuration::from_gguf(&metadata("granite", &[]), facts()).unwrap_err();
    assert_eq!(error.to_string(), "`granite.logit_scale` is `missing`");
    let bare = [divisor, ("granite.rope.scaling.finetuned", Stored::Boolean(false))];
    let error = Configuration::from_gguf(&metadata("granite", &bare), facts()).unwrap_err();
    assert_eq!(error.to_string(), "`granite.rope.scaling.finetuned` is `false`");
}

#[test]
fn experts_in_gguf_are_those_of_their_family() {
    for (architecture, width, normalized) in [("llama", 128, true), ("qwen3moe", 96, true), ("olmoe", 128, false)] {
        let keys = [("expert_count", 8), ("expert_used_count", 2), ("expert_feed_forward_length", 96)];
        let keys = keys.map(|(key, size)| (format!("{architecture}.{key}"), Stored::Number(f64::from(size))));
        // Files of OLMoE and Mixtral give the width of an expert as that of the feed-forward part.
        let count = if architecture == "qwen3moe" { 3 } else { 2 };
        let keys: Vec<(&str, Stored)> =
            keys[..count].iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let found = Configuration::from_gguf(&metadata(architecture, &keys), facts()).unwrap();
        let experts = crate::configuration::Experts { count: 8, active: 2, intermediate: width, normalized };
        assert_eq!((found.experts, found.query_key_norm), (Some(experts), architecture != "llama"));
        let written = read(found.to_hugging_face()).unwrap();
        assert_eq!((written.family.as_str(), written.experts), (found.family.as_str(), found.experts));
    }
    let keys = [("llama.expert_count", 8), ("llama.attention.sliding_window", 0)];
    let keys = keys.map(|(key, size)| (key, Stored::Number(f64::from(size))));
    let facts = TensorFacts { attention_bias: true, ..facts() };
    let error = Configuration::from_gguf(&metadata("llama", &keys), facts).unwrap_err();
    assert_eq!(error.to_string(), "`llama.expert_count` is `8`");
}
