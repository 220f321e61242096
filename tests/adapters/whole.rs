//! Modules that are trained whole beside low-rank factors, against PEFT.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::optimizer::{AdamWSettings, Optimizer, UpdateRule};
use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::adapter::{Adapter, AdapterSettings};
use tunebox_model::{Model, Policy, PolicySettings, Rows, Seeds, View};

use super::{golden, model_named, numbers};
use crate::support::noise::noise;
use crate::support::tiny_models::Golden;

const PREFIX: &str = "base_model.model.";

/// Runs `check` with every case of the golden file, its model and a text of it.
fn each_case(check: impl Fn(&Value, &Arc<Model>, &Arc<Rows>)) {
    for case in golden()["whole"].as_array().unwrap() {
        let family = case["family"].as_str().unwrap();
        let (_files, model) = model_named(family);
        let ids = Golden::named(family).ids;
        let marks = vec![true; ids.len()];
        check(case, &model, &Arc::new(Rows::new(vec![ids], vec![marks]).unwrap()));
    }
}

/// Writes the adapter of a case as PEFT saves it: factors of noise, and the weights of the model.
fn write_adapter(folder: &Path, case: &Value, model: &Model) {
    let value = |(name, shape): (&String, &Value)| {
        let slot = name.strip_prefix(PREFIX).unwrap();
        let shape: Vec<usize> = serde_json::from_value(shape.clone()).unwrap();
        let tensor = if slot.contains("lora_") {
            let values: Vec<f32> = noise(slot, shape.iter().product()).iter().map(|value| 0.25 * value).collect();
            Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
        } else {
            let is_tied_head = slot == "lm_head.weight" && model.configuration.tied;
            model.weights.get(if is_tied_head { "model.embed_tokens.weight" } else { slot }).unwrap()
        };
        (name.clone(), tensor)
    };
    let tensors: BTreeMap<String, Tensor> = case["tensors"].as_object().unwrap().iter().map(value).collect();
    std::fs::write(folder.join("adapter_config.json"), case["config"].to_string()).unwrap();
    safetensors::serialize_to_file(tensors, None, &folder.join("adapter_model.safetensors")).unwrap();
}

/// Scores the rows and takes a step of AdamW on the mean of −log p. Returns that mean.
fn step(policy: &mut Policy, optimizer: &mut Optimizer, rows: &Arc<Rows>) -> f64 {
    let mut scored = policy.score(&View::Policy, rows, TapSet::default(), 1.0, true).unwrap();
    let count = rows.width() as f64 - 1.0;
    let found = scored.tap(Tap::Logprob).unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
    let seeds = (Tensor::ones((1, rows.width()), DType::F32, &Device::Cpu).unwrap() * (-1.0 / count)).unwrap();
    policy.parameters().clear_gradients().unwrap();
    policy.backward(&mut scored, &Seeds::from_iter([(Tap::Logprob, seeds)])).unwrap();
    optimizer.step(policy.parameters(), 1e-2, 0.0).unwrap();
    policy.note_update();
    -f64::from(found) / count
}

#[test]
fn steps_with_whole_modules_have_the_losses_of_peft() {
    each_case(|case, model, rows| {
        let folder = tempfile::tempdir().unwrap();
        write_adapter(folder.path(), case, model);
        let mut policy = Policy::open(Arc::clone(model), Some(folder.path()), PolicySettings::default()).unwrap();
        let rule = UpdateRule::AdamW(AdamWSettings::default());
        let mut optimizer = Optimizer::new(rule.into(), policy.parameters()).unwrap();
        for (number, wanted) in numbers(&case["losses"]).into_iter().enumerate() {
            let found = step(&mut policy, &mut optimizer, rows);
            let (gap, settings) = ((found - wanted).abs(), &case["settings"]);
            assert!(gap < 1e-4, "{settings}: the loss of step {number} is off by {gap:.1e}");
        }
    });
}

#[test]
fn whole_modules_are_saved_as_by_peft() {
    each_case(|case, model, rows| {
        let given = &case["settings"];
        let settings = AdapterSettings {
            rank: 4,
            alpha: 6.0,
            modules_to_save: serde_json::from_value(given["modules_to_save"].clone()).unwrap(),
            ensure_weight_tying: given["ensure_weight_tying"] == true,
            ..AdapterSettings::default()
        };
        let policy = Policy::new(Arc::clone(model), &settings, PolicySettings::default()).unwrap();
        super::change(&policy);
        let folder = tempfile::tempdir().unwrap();
        policy.save(folder.path()).unwrap();
        let found =
            candle_core::safetensors::load(folder.path().join("adapter_model.safetensors"), &Device::Cpu).unwrap();
        let wanted: BTreeMap<String, Vec<usize>> = serde_json::from_value(case["tensors"].clone()).unwrap();
        let found: BTreeMap<String, Vec<usize>> =
            found.into_iter().map(|(name, tensor)| (name, tensor.dims().to_vec())).collect();
        assert_eq!(found, wanted, "{given}");
        let again = Policy::open(Arc::clone(model), Some(folder.path()), PolicySettings::default()).unwrap();
        let score = |policy: &Policy| {
            let scored = policy.score(&View::Policy, rows, TapSet::default(), 1.0, false).unwrap();
            scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap()
        };
        assert_eq!(score(&again), score(&policy), "{given}");
    });
}

#[test]
fn whole_modules_that_cannot_be_meant_are_refused() {
    let refused = |family: &str, modules: &[&str], tying: bool| {
        let settings = AdapterSettings {
            modules_to_save: modules.iter().map(|name| (*name).to_owned()).collect(),
            ensure_weight_tying: tying,
            ..AdapterSettings::default()
        };
        Adapter::create(&model_named(family).1, &settings).err().unwrap().to_string()
    };
    for (family, modules, tying, wanted) in [
        ("llama3", &["wte"][..], false, "`wte` is the end of the path of no module with weights"),
        ("llama3", &[""], false, "`` is the end of the path of no module with weights"),
        ("llama3", &["_proj"], false, "all modules that would get an adapter are trained whole"),
        ("llama3", &["lm_head"], true, "`ensure-weight-tying` is for models with a tied head"),
        ("qwen2", &["norm"], true, "`ensure-weight-tying` is for `modules-to-save` with `embed_tokens` or `lm_head`"),
    ] {
        let found = refused(family, modules, tying);
        assert!(found.starts_with(wanted), "{found}");
    }
}
