//! Names of settings and values in other trainers.

use std::collections::BTreeSet;

use super::super::check::{choices, key_schema};
use super::*;

#[test]
fn every_name_of_another_trainer_means_one_thing_and_is_no_key_itself() {
    let mut seen = BTreeSet::new();
    let switches = SWITCHES.iter().map(|(name, key, _)| (*key, *name));
    let synonyms = SYNONYMS.iter().flat_map(|(key, names)| names.iter().map(|name| (*key, *name)));
    for (key, name) in switches.chain(synonyms) {
        assert!(key_schema(key).is_object() || key.starts_with("method."), "`{key}` does not exist");
        assert!(seen.insert(name), "`{name}` means two keys");
        assert_eq!(find_key(name), None, "`{name}` is a key");
        assert_eq!(find_advice(name), None, "`{name}` means a key");
    }
    for name in ADVICE.iter().flat_map(|(_, names)| names.iter()) {
        assert!(seen.insert(name), "`{name}` is listed twice");
        assert_eq!(find_key(name), None, "`{name}` is a key");
    }
}

#[test]
fn every_switch_stands_for_a_value_that_its_key_can_have() {
    for (name, key, value) in SWITCHES {
        let schema = key_schema(key);
        let cases = schema["anyOf"].as_array().into_iter().flatten().chain([schema]).chain([&schema["allOf"][0]]);
        assert!(cases.flat_map(choices).any(|choice| choice == *value), "{name}: {key} = {value}");
    }
}

#[test]
fn every_key_that_an_advice_names_exists() {
    for (advice, _) in ADVICE {
        for key in advice.split('`').skip(1).step_by(2) {
            let key = key.split(" = ").next().unwrap();
            let is_key = ["train.", "data.", "model.", "run."].iter().any(|table| key.starts_with(table));
            assert!(!is_key || key_schema(key).is_object(), "`{key}` does not exist");
        }
    }
}

#[test]
fn a_name_is_found_in_the_spelling_of_the_other_trainer() {
    for (name, wanted) in [
        ("learning_rate", Some("train.rate")),
        ("LR", Some("train.rate")),
        ("lora_alpha", Some("train.adapter.alpha")),
        ("per_device_train_batch_size", Some("train.batch")),
        ("max_length", Some("data.max-length")),
        ("early_stopping_patience", Some("train.patience")),
        ("load_in_4bit", Some("model.precision")),
        ("val_set_size", Some("data.validation")),
        ("dpo_beta", Some("method.beta")),
        ("nothing", None),
    ] {
        assert_eq!(find_meant_key(name).as_deref(), wanted, "{name}");
    }
    assert_eq!((find_meant_value("load_in_4bit"), find_meant_value("lora_alpha")), (Some("nf4"), None));
}

#[test]
fn a_key_without_a_counterpart_gets_what_to_do_instead() {
    for (name, wanted) in [
        ("train_on_inputs", "only answers are trained on"),
        ("flash_attn", "attention is fused"),
        ("wandb_project", "metrics.jsonl"),
        ("deepspeed", "mpirun"),
        ("do_eval", "data.validation"),
        ("trust_remote_code", "no code"),
        ("hub_model_id", "tunebox export"),
    ] {
        assert!(find_advice(name).is_some_and(|advice| advice.contains(wanted)), "{name}");
    }
    assert_eq!(find_advice("nothing"), None);
}

#[test]
fn a_value_of_another_trainer_is_told_its_name_here() {
    for (key, value, wanted) in [
        ("train.optimizer", "adamw_torch", "did you mean `adamw`?"),
        ("train.optimizer", "paged_adamw_8bit", "did you mean `adamw-8bit`?"),
        ("train.optimizer", "AdamW", "did you mean `adamw`?"),
        ("model.precision", "4bit", "did you mean `nf4`?"),
        ("train.compute", "bfloat16", "did you mean `bf16`?"),
        ("train.adapter.kind", "qlora", "take `lora`, and `model.precision = \"nf4\"`"),
    ] {
        let known = choices(key_schema(key));
        assert_eq!(meant_choice_hint(key, value, known).as_deref(), Some(wanted), "{key} = {value}");
    }
    assert_eq!(meant_choice_hint("train.optimizer", "sophia", ["adamw"]), None);
}

#[test]
fn no_value_of_another_trainer_is_a_value_here() {
    for (key, hints) in CHOICES {
        assert!(key_schema(key).is_object(), "`{key}` does not exist");
        let known = choices(key_schema(key));
        for name in hints.iter().flat_map(|(_, names)| names.iter()) {
            assert!(!known.contains(name), "`{name}` is a value of `{key}`");
        }
    }
}
