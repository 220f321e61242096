//! Reward models against transformers, on tiny models whose weights both sides make from one formula, and hostile files.

use std::path::Path;

use serde_json::{Value, json};
use tunebox_compute::precision::Compute;
use tunebox_compute::{Device, Tensor};
use tunebox_foundation::explain::Explain;
use tunebox_model::hub::Hub;
use tunebox_model::reward::find_reward_model;
use tunebox_model::{Error, RewardModel};

use crate::support::reward_models::{golden, write, write_texts};

/// The largest difference allowed in a logit.
const TOLERANCE: f64 = 1e-4;

/// The names of all files of `golden/reward_models`.
const NAMES: [&str; 9] = [
    "deberta_plain",
    "deberta_v2",
    "deberta_v3",
    "gemma2",
    "llama",
    "modern_bert",
    "modern_bert_mean",
    "qwen2",
    "qwen3",
];

fn open(folder: &Path) -> Result<RewardModel, Error> {
    let source = find_reward_model(&folder.display().to_string(), &Hub::from_environment(true))?;
    RewardModel::open(&source, &Device::Cpu, Compute::F32)
}

/// A folder with a reward model, and the model.
fn opened(name: &str) -> (tempfile::TempDir, RewardModel, Value) {
    let (folder, golden) = (tempfile::tempdir().unwrap(), golden(name));
    write(folder.path(), &golden, |_, tensor| tensor);
    let model = open(folder.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
    (folder, model, golden)
}

fn texts(pair: &Value) -> (&str, &str) {
    (pair[0].as_str().unwrap(), pair[1].as_str().unwrap())
}

#[test]
fn every_reward_model_gives_the_logits_of_transformers() {
    for name in NAMES {
        let (_folder, model, golden) = opened(name);
        let pairs = golden["pairs"].as_array().unwrap().iter().zip(golden["scores"].as_array().unwrap());
        for (pair, wanted) in pairs {
            let (prompt, completion) = texts(pair);
            let found = f64::from(model.score(prompt, completion, None).unwrap());
            let gap = (found - wanted.as_f64().unwrap()).abs();
            assert!(gap < TOLERANCE, "{name}: {found} instead of {wanted} for {prompt:?}, {completion:?}");
        }
    }
}

#[test]
fn a_score_has_the_same_bits_whatever_was_scored_before() {
    for name in NAMES {
        let (_folder, model, golden) = opened(name);
        let pairs: Vec<(&str, &str)> = golden["pairs"].as_array().unwrap().iter().map(texts).collect();
        let score = |(prompt, completion): &(&str, &str)| model.score(prompt, completion, None).unwrap().to_bits();
        let forward: Vec<u32> = pairs.iter().map(score).collect();
        let mut backward: Vec<u32> = pairs.iter().rev().map(score).collect();
        backward.reverse();
        assert_eq!(forward, backward, "{name}");
    }
}

/// The error of a model of `golden`, with the value at `key` of its configuration replaced, or removed if it is null, before
/// any weights are there.
fn error_of(golden: &Value, key: &str, value: Value) -> String {
    let (folder, mut changed) = (tempfile::tempdir().unwrap(), golden.clone());
    match value {
        Value::Null => drop(changed["config"].as_object_mut().unwrap().remove(key)),
        value => changed["config"][key] = value,
    }
    write_texts(folder.path(), &changed);
    std::fs::write(folder.path().join("model.safetensors"), "").unwrap();
    let error = open(folder.path()).err().unwrap();
    format!("{error} {}", error.why().unwrap_or_default())
}

#[test]
fn numbers_that_no_model_has_are_refused_before_anything_is_allocated() {
    let wrong =
        [json!(0), json!(-1), json!(1_u64 << 40), json!(1e300), json!(0.5), json!("many"), json!([1]), json!(null)];
    for name in ["deberta_v3", "modern_bert", "llama"] {
        let golden = golden(name);
        for key in ["hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_attention_heads"] {
            // Decoders have a default for the last two.
            let optional = name == "llama" && matches!(key, "vocab_size" | "num_attention_heads");
            for value in wrong.iter().filter(|value| !optional || value.as_u64() > Some(0)) {
                let error = error_of(&golden, key, value.clone());
                assert!(error.contains(key), "{name}: {key} = {value}: {error}");
            }
        }
    }
}

#[test]
fn settings_that_cannot_be_computed_are_named() {
    for (name, key, values) in [
        ("deberta_v3", "max_position_embeddings", vec![json!(0), json!(-4), json!(1_u64 << 40)]),
        ("deberta_v3", "position_buckets", vec![json!(1), json!(-2), json!(1 << 20), json!(1025), json!("none")]),
        ("deberta_v3", "type_vocab_size", vec![json!(-1), json!(1 << 30)]),
        ("deberta_v3", "layer_norm_eps", vec![json!(-1.0), json!("small")]),
        ("deberta_v3", "pos_att_type", vec![json!("p2p"), json!(["c2p", "x"]), json!(7)]),
        ("deberta_v3", "conv_kernel_size", vec![json!(3)]),
        ("deberta_v3", "attention_head_size", vec![json!(1_u64 << 40)]),
        ("deberta_v3", "embedding_size", vec![json!(0), json!(1_u64 << 40)]),
        ("deberta_v3", "pooler_hidden_size", vec![json!(31)]),
        ("deberta_v3", "hidden_act", vec![json!("softmax")]),
        ("deberta_v2", "max_relative_positions", vec![json!(-3), json!(1_u64 << 40)]),
        ("modern_bert", "global_attn_every_n_layers", vec![json!(0), json!(-1)]),
        ("modern_bert", "local_attention", vec![json!(0), json!(1_u64 << 40)]),
        ("modern_bert", "norm_eps", vec![json!(-1e-5)]),
        ("modern_bert", "classifier_pooling", vec![json!("max")]),
        ("modern_bert", "attention_bias", vec![json!(true)]),
        (
            "modern_bert",
            "layer_types",
            vec![json!([]), json!(["full_attention", "full_attention", "full_attention", "full_attention"])],
        ),
        ("modern_bert", "num_attention_heads", vec![json!(5), json!(32)]),
        ("modern_bert", "rope_parameters", vec![json!({"full_attention": {"rope_theta": 1e-9}}), json!(3)]),
        ("llama", "num_key_value_heads", vec![json!(3), json!(0)]),
    ] {
        let golden = golden(name);
        for value in values {
            let error = error_of(&golden, key, value.clone());
            assert!(error.contains(key) || error.contains("rope_theta"), "{name}: {key} = {value}: {error}");
        }
    }
}

#[test]
fn what_is_no_reward_model_is_refused_with_the_reason() {
    let llama = golden("llama");
    for (key, value, wanted) in [
        ("architectures", json!(["LlamaForCausalLM"]), "its architecture is `LlamaForCausalLM`"),
        ("architectures", json!(null), "its architecture is `none`"),
        ("architectures", json!(["T5ForSequenceClassification"]), "it sorts"),
        ("id2label", json!({"0": "no", "1": "yes"}), "it sorts texts into 2 classes"),
        ("num_labels", json!(3), "it sorts texts into 3 classes"),
        ("model_type", json!("t5"), "its architecture is `LlamaForSequenceClassification`"),
    ] {
        let mut changed = llama.clone();
        if wanted == "it sorts" {
            changed["config"]["id2label"] = json!({});
        }
        let error = error_of(&changed, key, value.clone());
        assert!(error.contains(wanted), "{key} = {value}: {error}");
    }
}

#[test]
fn files_that_are_missing_or_of_another_model_are_refused() {
    let golden = golden("deberta_v3");
    let folder = tempfile::tempdir().unwrap();
    let error = || {
        let error = open(folder.path()).err().unwrap();
        format!("{error} {}", error.why().unwrap_or_default())
    };
    assert!(error().contains("it has no `config.json`"), "{}", error());
    write_texts(folder.path(), &golden);
    assert!(error().contains("neither `model.safetensors`"), "{}", error());
    let cut = |name: &str, tensor: Tensor| {
        if name == "classifier.weight" { tensor.narrow(1, 0, 31).unwrap() } else { tensor }
    };
    write(folder.path(), &golden, cut);
    assert!(
        error().contains("tensor `classifier.weight` is [1, 31], the configuration asks for [1, 32]"),
        "{}",
        error()
    );
    let nan = |name: &str, tensor: Tensor| match name {
        "pooler.dense.weight" => (tensor * f64::NAN).unwrap(),
        _ => tensor,
    };
    write(folder.path(), &golden, nan);
    assert!(error().contains("tensor `pooler.dense.weight` holds NaN at place 0"), "{}", error());
    write(folder.path(), &golden, |_, tensor| tensor);
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    assert!(error().contains("it has no `tokenizer.json`"), "{}", error());
}

#[test]
fn a_token_outside_of_the_vocabulary_is_an_error_and_no_index() {
    for name in ["deberta_v3", "modern_bert", "llama"] {
        let (folder, mut golden) = (tempfile::tempdir().unwrap(), golden(name));
        golden["config"]["vocab_size"] = 20.into();
        write(folder.path(), &golden, |_, tensor| tensor);
        let error = open(folder.path()).unwrap().score("What is 2 + 2?", "4", None).unwrap_err().to_string();
        assert!(error.contains("vocabulary"), "{name}: {error}");
    }
}
