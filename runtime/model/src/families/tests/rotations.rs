//! Tests of the rotations in `config.json`: which key wins, what is rejected, and what is written back.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_first_context_beside_the_rotation_counts_before_one_in_it() {
    let original = |config: Value| {
        let found = read(with(config, "original_max_position_embeddings", json!(4096))).unwrap();
        match found.ropes[0].scaling {
            RopeScaling::Llama3 { original, .. }
            | RopeScaling::Yarn { original, .. }
            | RopeScaling::Long { original, .. } => original,
            _ => 0,
        }
    };
    let factors = vec![1.0; 32];
    let long = json!({"type": "longrope", "short_factor": factors, "long_factor": factors,
        "original_max_position_embeddings": 8192});
    let yarn = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192});
    assert_eq!(original(llama()), 4096);
    assert_eq!(original(with(llama(), "rope_scaling", yarn)), 4096);
    assert_eq!(original(with(llama(), "rope_scaling", long)), 4096);
}

#[test]
fn the_older_key_of_a_rotation_counts_before_the_newer_unless_it_is_empty() {
    let newer = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0});
    let linear = |theta, factor| RopeSetting { theta, scaling: RopeScaling::Linear { factor } };
    let llama = |older| read(with(with(llama(), "rope_parameters", newer.clone()), "rope_scaling", older)).unwrap();
    assert_eq!(llama(json!({"type": "linear", "factor": 3.0})).ropes, [linear(500_000.0, 3.0)]);
    assert_eq!(llama(json!({})).ropes, [linear(7.0, 2.0)]);

    let plain = json!({"rope_type": "default", "partial_rotary_factor": 1.0});
    let both = with(phi4_mini(), "rope_parameters", plain);
    assert_eq!(read(both.clone()).unwrap(), read(phi4_mini()).unwrap());
    let found = read(with(both, "rope_scaling", json!({}))).unwrap();
    assert_eq!((found.rotated, found.short_context()), (128, None));

    let gemma = json!({"model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 1, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}});
    assert_eq!(read(gemma).unwrap().ropes[0], linear(5e5, 8.0));
}

#[test]
fn newer_files_name_a_rotation_for_each_kind_of_layer() {
    let found = read(json!({"model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}}))
    .unwrap();
    let scaling = RopeScaling::Linear { factor: 2.0 };
    assert_eq!(found.ropes, [RopeSetting { theta: 5e5, scaling }, RopeSetting::plain(2e4)]);
    assert_eq!(found.layer_kinds.iter().map(|kind| kind.rope).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn a_rotation_that_is_not_known_is_refused_by_name() {
    let scaling = json!({"rope_type": "dynamic", "factor": 2.0});
    let error = read(with(llama(), "rope_scaling", scaling)).unwrap_err();
    assert_eq!(error.to_string(), "`rope_type` is `dynamic`");
}

#[test]
fn phi_3_of_the_first_weeks_calls_its_rotation_su() {
    let mut config = phi4_mini();
    config["rope_scaling"]["type"] = json!("su");
    assert_eq!(read(config.clone()).unwrap(), read(phi4_mini()).unwrap());
    config["rope_scaling"]["type"] = json!("linear");
    assert_eq!(read(config).unwrap_err().to_string(), "`type` is `linear`");
}

#[test]
fn factors_and_shares_that_make_no_rotation_are_refused() {
    for (key, value) in [
        ("partial_rotary_factor", json!(0.5)),
        ("partial_rotary_factor", json!(1.5)),
        ("original_max_position_embeddings", json!(0)),
        ("rope_scaling", json!({"type": "longrope", "short_factor": vec![1.0; 48]})),
        ("rope_scaling", json!({"type": "longrope", "short_factor": vec![1.0; 48], "long_factor": vec![0.0; 48]})),
    ] {
        assert!(matches!(read(with(phi4_mini(), key, value)), Err(Error::Key { .. })), "`{key}`");
    }
    let error = read(with(llama(), "partial_rotary_factor", json!(0.5))).unwrap_err();
    assert_eq!(error.to_string(), "`partial_rotary_factor` is `0.5`");
}

#[test]
fn what_makes_no_rotation_is_named() {
    let refusal = |config| read(config).unwrap_err().to_string();
    for length in [0, 1] {
        let config = with(phi4_mini(), "original_max_position_embeddings", json!(length));
        assert_eq!(refusal(config), format!("`original_max_position_embeddings` is `{length}`"));
    }
    let scaling = json!({"type": "longrope", "short_factor": vec![1.0; 47], "long_factor": vec![1.0; 48]});
    let error = read(with(phi4_mini(), "rope_scaling", scaling)).unwrap_err();
    let Error::Key { key, found, why, .. } = error else { panic!("{error}") };
    assert_eq!((key.as_str(), found.as_str()), ("rope_parameters", "47 and 48 factors"));
    assert_eq!(why, "expected 48 factors, one for each pair of features that turn");
    assert_eq!(refusal(with(llama(), "rope_theta", json!(-1.0))), "`rope_theta` is `-1`");
}

#[test]
fn rotations_that_call_other_sequences_short_are_refused() {
    let factors = vec![1.0; 128];
    let long = |original: usize| {
        json!({"rope_type": "longrope", "short_factor": factors, "long_factor": factors,
        "original_max_position_embeddings": original})
    };
    let gemma = |local: usize| {
        json!({"model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 1, "rope_parameters": {"full_attention": long(4096), "sliding_attention": long(local)}})
    };
    assert_eq!(read(gemma(4096)).unwrap().short_context(), Some(4096));
    let error = read(gemma(2048)).unwrap_err();
    assert_eq!(error.to_string(), "`original_max_position_embeddings` is `4096 and 2048`");
}

#[test]
fn a_written_phi_3_has_the_three_keys_of_a_rotation_that_transformers_4_takes() {
    let keys = |found: &Configuration| {
        let written = found.to_hugging_face();
        let keys: BTreeSet<String> = written["rope_scaling"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(read(written).unwrap().short_context(), found.short_context());
        Vec::from_iter(keys)
    };
    let mut found = read(phi4_mini()).unwrap();
    let mut factor = |change: fn(f64) -> f64| {
        let RopeScaling::Long { attention_factor, .. } = &mut found.ropes[0].scaling else { panic!() };
        *attention_factor = change(*attention_factor);
        keys(&found)
    };
    assert_eq!(factor(|factor| factor), ["long_factor", "short_factor", "type"]);
    assert_eq!(factor(|factor| f64::from(factor as f32)), ["long_factor", "short_factor", "type"]);
    assert_eq!(factor(|factor| factor * 1.001), ["attention_factor", "long_factor", "short_factor", "type"]);
    assert_eq!(read(found.to_hugging_face()).unwrap(), found);
}

#[test]
fn the_share_of_a_head_that_turns_reads_back_as_the_same_features() {
    for (head_dim, rotated) in [(88, 30), (90, 26), (92, 52), (128, 96), (64, 64)] {
        let ropes = vec![RopeSetting::plain(1e4)];
        let found = Configuration { head_dim, rotated, ropes, ..read(phi4_mini()).unwrap() };
        assert_eq!(read(found.to_hugging_face()).unwrap().rotated, rotated, "{rotated} of {head_dim}");
    }
}
