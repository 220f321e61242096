//! Creating, saving and loading adapters, and the files that loading rejects.

mod merged;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::explain::Explain;

use super::{Adapter, AdapterKind, AdapterSettings, Targets, weights_file};
use crate::decoder::site::Site;
use crate::error::Error;
use crate::policy::{Policy, PolicySettings, View};
use crate::tiny::{self, logprobs, policy, stir};

fn values(adapter: &Adapter) -> Vec<f32> {
    adapter.parameters().values().to_vec1::<f32>().unwrap()
}

fn edit(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("adapter_config.json");
    let mut value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(&path, value.to_string()).unwrap();
}

fn stored(folder: &Path) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(folder.join("adapter_model.safetensors"), &Device::Cpu).unwrap()
}

fn store(folder: &Path, tensors: &HashMap<String, Tensor>) {
    candle_core::safetensors::save(tensors, folder.join("adapter_model.safetensors")).unwrap();
}

/// Saves an adapter, changes its files with `change`, and returns the error message of loading them.
fn refusal(change: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::llama(), &tiny::adapter(AdapterKind::Lora));
    policy.save(folder.path()).unwrap();
    change(folder.path());
    Adapter::load(policy.model(), folder.path()).err().unwrap().to_string()
}

#[test]
fn a_file_that_is_larger_than_its_numbers_is_not_read() {
    let refused = refusal(|folder| {
        let path = folder.join("adapter_model.safetensors");
        std::fs::File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap();
    });
    assert!(refused.contains("its settings call for at most"), "{refused}");
}

#[test]
fn a_is_uniform_within_one_over_the_root_of_its_width_and_b_is_zero() {
    let adapter = Adapter::create(&tiny::model(tiny::llama(), 1), &tiny::adapter(AdapterKind::Lora)).unwrap();
    for module in adapter.modules() {
        let read = |slot: usize| tiny::numbers(&adapter.parameters().value(slot).unwrap());
        let a = read(module.a_slot);
        let bound = 1.0 / (a.len() as f32 / 3.0).sqrt();
        let largest = a.iter().fold(0f32, |most, value| most.max(value.abs()));
        assert!(largest <= bound && largest > 0.8 * bound);
        assert!(read(module.b_slot).iter().all(|value| *value == 0.0));
    }
}

#[test]
fn trainable_numbers_are_rank_times_in_plus_out() {
    let configuration = tiny::llama();
    let adapter = Adapter::create(&tiny::model(configuration.clone(), 1), &tiny::adapter(AdapterKind::Lora)).unwrap();
    let sides = |site: &Site| site.shape(&configuration).0 + site.shape(&configuration).1;
    let wanted: usize = Site::all(&configuration).iter().map(sides).sum::<usize>() * 3 * configuration.layers;
    assert_eq!(adapter.trainable(), wanted);
}

#[test]
fn a_target_that_no_module_is_called_is_refused_with_the_names_there_are() {
    let targets = Targets::Modules(vec!["query".into()]);
    let settings = AdapterSettings { targets, ..tiny::adapter(AdapterKind::Lora) };
    let error = Adapter::create(&tiny::model(tiny::llama(), 1), &settings).err().unwrap();
    assert!(error.to_string().contains("`query`"), "{error}");
    assert!(error.hint().unwrap().starts_with("maps: q_proj, "), "{:?}", error.hint());
    let known = vec!["q_proj", "k_proj"];
    let hint = Error::NoModule { name: "q_prj".into(), known }.hint();
    assert_eq!(hint.as_deref(), Some("did you mean `q_proj`? (maps: q_proj, k_proj)"));
}

#[test]
fn in_a_model_with_experts_adapters_are_for_the_attention() {
    let model = tiny::model(tiny::qwen3_moe(), 1);
    let all = Adapter::create(&model, &tiny::adapter(AdapterKind::Lora)).unwrap();
    let names: Vec<&str> = all.modules()[..4].iter().map(|module| module.site.short_name()).collect();
    assert_eq!((names, all.modules().len()), (vec!["q_proj", "k_proj", "v_proj", "o_proj"], 8));
    let names = |name: &str| Targets::Modules(vec!["q_proj".into(), name.into()]);
    let pattern = |text: &str| Targets::Pattern(text.into());
    for targets in [names("down_proj"), names("mlp.gate"), pattern(".*_proj"), pattern(r".*\.gate")] {
        let settings = AdapterSettings { targets: targets.clone(), ..tiny::adapter(AdapterKind::Lora) };
        let error = Adapter::create(&model, &settings).err().unwrap().to_string();
        assert!(error.ends_with("in a model with experts, adapters are for its attention"), "{targets:?}: {error}");
    }
    let settings = AdapterSettings { targets: pattern(r".*self_attn\.[qv]_proj"), ..tiny::adapter(AdapterKind::Lora) };
    assert_eq!(Adapter::create(&model, &settings).unwrap().modules().len(), 4);
}

#[test]
fn dropout_with_dora_is_refused() {
    let settings = AdapterSettings { dropout: 0.1, ..tiny::adapter(AdapterKind::Dora) };
    assert!(Adapter::create(&tiny::model(tiny::llama(), 1), &settings).is_err());
}

#[test]
fn an_adapter_survives_saving_and_loading_bit_for_bit() {
    let some = Targets::Modules(vec!["q_proj".into(), "down_proj".into()]);
    let narrow = AdapterSettings { targets: some, layers: Some(vec![1]), ..tiny::adapter(AdapterKind::Lora) };
    let wanted = [
        tiny::adapter(AdapterKind::Lora),
        tiny::adapter(AdapterKind::RsLora),
        tiny::adapter(AdapterKind::Dora),
        AdapterSettings { dropout: 0.25, ..tiny::adapter(AdapterKind::Lora) },
        narrow,
    ];
    for settings in wanted {
        let folder = tempfile::tempdir().unwrap();
        let policy = policy(tiny::qwen3(), &settings);
        policy.save(folder.path()).unwrap();
        let loaded = Adapter::load(policy.model(), folder.path()).unwrap();
        assert_eq!(values(&loaded), values(policy.adapter()));
        let places = |adapter: &Adapter| {
            adapter.modules().iter().map(|module| (module.layer, module.site, module.rank)).collect::<Vec<_>>()
        };
        assert_eq!(places(&loaded), places(policy.adapter()));
        // Which names the places were chosen by is not kept: PEFT wants them spelt out.
        let loaded = AdapterSettings { targets: settings.targets.clone(), ..loaded.settings().clone() };
        assert_eq!(loaded, settings);
    }
}

#[test]
fn keys_and_shapes_on_disk_are_those_of_peft() {
    let folder = tempfile::tempdir().unwrap();
    policy(tiny::llama(), &tiny::adapter(AdapterKind::Dora)).save(folder.path()).unwrap();
    let tensors = stored(folder.path());
    let path = "base_model.model.model.layers.1.mlp.down_proj";
    assert_eq!(tensors[&format!("{path}.lora_A.weight")].dims(), [3, 24]);
    assert_eq!(tensors[&format!("{path}.lora_B.weight")].dims(), [16, 3]);
    assert_eq!(tensors[&format!("{path}.lora_magnitude_vector")].dims(), [16]);
    assert_eq!(tensors.len(), 2 * 7 * 3);
}

#[test]
fn an_adapter_in_bf16_is_read_into_f32() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::llama(), &tiny::adapter(AdapterKind::Lora));
    policy.save(folder.path()).unwrap();
    let narrow = stored(folder.path()).into_iter().map(|(name, tensor)| (name, tensor.to_dtype(DType::BF16).unwrap()));
    store(folder.path(), &narrow.collect());
    let loaded = Adapter::load(policy.model(), folder.path()).unwrap();
    assert_eq!(loaded.parameters().values().dtype(), DType::F32);
    for (loaded, saved) in values(&loaded).iter().zip(values(policy.adapter())) {
        assert!((loaded - saved).abs() <= saved.abs() / 128.0);
    }
}

#[test]
fn an_adapter_for_mlx_comes_back_bit_for_bit_and_can_be_saved_for_peft() {
    for kind in [AdapterKind::Lora, AdapterKind::RsLora, AdapterKind::Dora] {
        let (mlx, peft) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let some = Targets::Modules(vec!["q_proj".into(), "down_proj".into()]);
        let policy =
            policy(tiny::qwen3(), &AdapterSettings { targets: some, layers: Some(vec![1]), ..tiny::adapter(kind) });
        policy.adapter().save_for_mlx(policy.model(), "base", mlx.path()).unwrap();
        assert_eq!(weights_file(mlx.path()), mlx.path().join("adapters.safetensors"));
        let loaded = Adapter::load(policy.model(), mlx.path()).unwrap();
        assert_eq!(values(&loaded), values(policy.adapter()), "{kind:?}");
        let scales = |adapter: &Adapter| adapter.modules().iter().map(|module| module.scale as f32).collect::<Vec<_>>();
        assert_eq!(scales(&loaded), scales(policy.adapter()), "{kind:?}");
        loaded.save(policy.model(), peft.path()).unwrap();
        assert_eq!(values(&Adapter::load(policy.model(), peft.path()).unwrap()), values(&loaded));
    }
}

/// Saves an adapter for mlx-lm, changes its settings with `change`, and returns the error message of loading it.
fn mlx_refusal(change: impl FnOnce(&mut Value)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::llama(), &tiny::adapter(AdapterKind::Lora));
    policy.adapter().save_for_mlx(policy.model(), "base", folder.path()).unwrap();
    edit(folder.path(), change);
    Adapter::load(policy.model(), folder.path()).err().unwrap().to_string()
}

#[test]
fn settings_of_mlx_that_would_change_the_arithmetic_are_refused() {
    assert!(mlx_refusal(|config| config["fine_tune_type"] = json!("full")).contains("`fine_tune_type` is `full`"));
    assert!(mlx_refusal(|config| config["lora_parameters"]["rank"] = json!(4)).contains("has shape"));
    assert!(mlx_refusal(|config| config["lora_parameters"]["alpha"] = json!(16)).contains("`alpha` is `16`"));
    assert!(mlx_refusal(|config| config["lora_parameters"] = Value::Null).contains("`lora_parameters` is missing"));
    assert!(mlx_refusal(|config| config["fine_tune_type"] = json!("dora")).contains("q_proj.m` is missing"));
}

#[test]
fn an_adapter_of_mlx_on_another_map_than_those_of_the_blocks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::llama(), &tiny::adapter(AdapterKind::Lora));
    policy.adapter().save_for_mlx(policy.model(), "base", folder.path()).unwrap();
    let path = folder.path().join("adapters.safetensors");
    let mut tensors = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    tensors.insert("lm_head.lora_a".into(), Tensor::zeros((16, 3), DType::F32, &Device::Cpu).unwrap());
    candle_core::safetensors::save(&tensors, &path).unwrap();
    let error = Adapter::load(policy.model(), folder.path()).err().unwrap().to_string();
    assert!(error.contains("`lm_head.lora_a`"), "{error}");
}

#[test]
fn a_missing_key_is_an_error() {
    let error = refusal(|folder| {
        let mut tensors = stored(folder);
        tensors.remove("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight").unwrap();
        store(folder, &tensors);
    });
    assert!(error.contains("layers.0.self_attn.q_proj.lora_B.weight` is missing"), "{error}");
}

#[test]
fn an_unknown_key_is_an_error() {
    let error = refusal(|folder| {
        let mut tensors = stored(folder);
        let a = tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"].clone();
        tensors.insert("base_model.model.layers.0.self_attn.q_proj.lora_A.weight".into(), a);
        store(folder, &tensors);
    });
    assert!(error.contains("do not call for"), "{error}");
}

#[test]
fn a_rank_that_does_not_fit_the_tensors_is_an_error() {
    let error = refusal(|folder| edit(folder, |config| config["r"] = json!(4)));
    assert!(error.contains("shape"), "{error}");
}

#[test]
fn settings_that_would_change_the_arithmetic_are_refused() {
    let changes = [
        ("peft_type", json!("LOHA")),
        ("bias", json!("all")),
        ("fan_in_fan_out", json!(true)),
        ("trainable_token_indices", json!([1])),
        ("target_modules", json!("(.*_proj")),
        ("target_modules", json!([".*_proj"])),
        ("exclude_modules", json!("[")),
        ("rank_pattern", json!({ "q)(": 3 })),
    ];
    for (key, value) in changes {
        let error = refusal(|folder| edit(folder, |config| config[key] = value.clone()));
        assert!(error.contains(&format!("`{key}`")), "{key}: {error}");
    }
}

#[test]
fn patterns_give_modules_their_own_rank_and_alpha() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::llama(), &tiny::adapter(AdapterKind::Lora));
    policy.save(folder.path()).unwrap();
    edit(folder.path(), |config| {
        config["rank_pattern"] = json!({ "layers.1.self_attn.q_proj": 2 });
        config["alpha_pattern"] = json!({ "down_proj": 9 });
    });
    let mut tensors = stored(folder.path());
    for (suffix, axis) in [("lora_A.weight", 0), ("lora_B.weight", 1)] {
        let key = format!("base_model.model.model.layers.1.self_attn.q_proj.{suffix}");
        let cut = tensors[&key].narrow(axis, 0, 2).unwrap().contiguous().unwrap();
        tensors.insert(key, cut);
    }
    store(folder.path(), &tensors);
    let loaded = Adapter::load(policy.model(), folder.path()).unwrap();
    let rank = |layer| loaded.module(layer, Site::Query).unwrap().rank;
    assert_eq!((rank(0), rank(1)), (3, 2));
    assert!((loaded.module(0, Site::Down).unwrap().scale - 3.0).abs() < 1e-12);
    let again = tempfile::tempdir().unwrap();
    loaded.save(policy.model(), again.path()).unwrap();
    assert_eq!(values(&Adapter::load(policy.model(), again.path()).unwrap()), values(&loaded));
}

#[test]
fn a_continued_adapter_has_its_frozen_copy_as_reference() {
    let folder = tempfile::tempdir().unwrap();
    policy(tiny::gemma3(), &tiny::adapter(AdapterKind::Lora)).save(folder.path()).unwrap();
    let model = tiny::model(tiny::gemma3(), 1);
    let policy = Policy::open(Arc::clone(&model), Some(folder.path()), PolicySettings::default()).unwrap();
    let before = logprobs(&policy, &View::Policy);
    stir(&policy);
    assert_eq!(before, logprobs(&policy, &View::Reference));
    assert_ne!(before, logprobs(&policy, &View::Policy));
}

#[test]
fn a_continued_adapter_may_have_the_base_as_reference() {
    let folder = tempfile::tempdir().unwrap();
    let written = policy(tiny::gemma3(), &tiny::adapter(AdapterKind::Lora));
    written.save(folder.path()).unwrap();
    let model = tiny::model(tiny::gemma3(), 1);
    let mut policy = Policy::open(model, Some(folder.path()), PolicySettings::default()).unwrap();
    policy.set_base_reference();
    assert_eq!(logprobs(&policy, &View::Reference), logprobs(&written, &View::Reference));
    stir(&policy);
    policy.reset().unwrap();
    assert_eq!(logprobs(&policy, &View::Policy), logprobs(&written, &View::Policy));
}

#[test]
fn restoring_a_checkpoint_moves_the_policy_and_not_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [AdapterKind::Lora, AdapterKind::Full] {
        let mut policy = policy(tiny::qwen2(), &tiny::adapter(kind));
        policy.save(folder.path()).unwrap();
        let saved = values(policy.adapter());
        let reference = logprobs(&policy, &View::Reference);
        stir(&policy);
        policy.restore(folder.path()).unwrap();
        assert_eq!(saved, values(policy.adapter()), "{kind:?}");
        assert_eq!(reference, logprobs(&policy, &View::Reference), "{kind:?}");
    }
}
