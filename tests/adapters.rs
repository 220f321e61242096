//! Adapters against PEFT, and noise on embeddings against transformers: `golden/adapters.json`, which
//! `golden/adapters.py` writes.

mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::precision::{Compute, PrecisionRequest};
use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::adapter::{Adapter, AdapterKind, AdapterSettings, Initialization, Module, Targets};
use tunebox_model::decoder::{EmbeddingNoise, Recompute};
use tunebox_model::{Model, Policy, PolicySettings, Rows, Seeds, Slice, Source, View};

use crate::support::noise::noise;
use crate::support::tiny_models::{Golden, along, write_folder};

/// The largest difference allowed in a log-probability, and in a number of a tensor as a share of its length.
const TOLERANCE: f64 = 1e-4;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/adapters.json")).unwrap()
}

/// The tiny model, and the folder that its weights are mapped from.
fn model() -> (TempDir, Arc<Model>) {
    model_named("llama3")
}

/// The tiny model of this name, and the folder that its weights are mapped from.
fn model_named(name: &str) -> (TempDir, Arc<Model>) {
    let (folder, golden) = (tempfile::tempdir().unwrap(), Golden::named(name));
    write_folder(folder.path(), &golden.config, &golden.weights());
    let in_f32 = PrecisionRequest { compute: Compute::F32, ..PrecisionRequest::default() };
    let source = Source::open(&folder.path().display().to_string(), true).unwrap();
    let model = Model::open_in(&source, &Device::Cpu, in_f32).unwrap();
    (folder, Arc::new(model))
}

fn rows(lengths: &[usize]) -> Arc<Rows> {
    let ids: Vec<Vec<u32>> = lengths.iter().map(|length| Golden::named("llama3").ids[..*length].to_vec()).collect();
    let marks = lengths.iter().map(|length| vec![true; *length]).collect();
    Arc::new(Rows::new(ids, marks).unwrap())
}

fn score(policy: &Policy, view: &View, lengths: &[usize], learning: bool) -> Vec<Vec<f32>> {
    let scored = policy.score(view, &rows(lengths), TapSet::default(), 1.0, learning).unwrap();
    scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Asserts log-probabilities, of which the first token has none.
fn assert_scores(found: &[f32], wanted: &[f64], what: &str) {
    let gaps = found[1..].iter().zip(wanted).map(|(found, wanted)| (f64::from(*found) - wanted).abs());
    let gap = gaps.fold(0.0, f64::max);
    assert!(gap < TOLERANCE, "{what}: log-probabilities differ by {gap:.1e}");
}

/// Asserts the length of a tensor, and its product with noise.
fn assert_summary(name: &str, found: &Tensor, wanted: &Value) {
    let found = found.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let length = found.iter().map(|one| f64::from(*one).powi(2)).sum::<f64>().sqrt();
    let pairs = found.iter().zip(along(name, found.len()));
    let product = pairs.map(|(one, along)| f64::from(*one) * f64::from(along)).sum::<f64>();
    let wanted = numbers(wanted);
    let gap = (length - wanted[0]).abs().max((product - wanted[1]).abs()) / wanted[0];
    assert!(gap < TOLERANCE, "`{name}` is off by {gap:.1e}");
}

/// Writes an adapter of zeros with these settings, and a rank for each module.
fn write_zeros(folder: &Path, model: &Model, config: &Value, ranks: &BTreeMap<String, usize>) {
    let mut tensors = BTreeMap::new();
    for (path, rank) in ranks {
        let shape = model.weights.shape(&format!("{path}.weight")).unwrap();
        for (suffix, shape) in [("lora_A", [*rank, shape[1]]), ("lora_B", [shape[0], *rank])] {
            let zeros = Tensor::zeros(shape.as_slice(), DType::F32, &Device::Cpu).unwrap();
            tensors.insert(format!("base_model.model.{path}.{suffix}.weight"), zeros);
        }
    }
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    safetensors::serialize_to_file(tensors, None, &folder.join("adapter_model.safetensors")).unwrap();
}

/// The rank and the scale of every module, by path.
fn modules(adapter: &Adapter) -> BTreeMap<String, (usize, f64)> {
    let one = |module: &Module| (module.site.path(module.layer), (module.rank, module.scale));
    adapter.modules().iter().map(one).collect()
}

fn assert_modules(found: &Adapter, wanted: &Value) {
    let (found, wanted) = (modules(found), wanted.as_object().unwrap());
    assert_eq!(found.keys().collect::<BTreeSet<_>>(), wanted.keys().collect());
    for (path, (rank, scale)) in &found {
        assert_eq!(*rank as u64, wanted[path][0].as_u64().unwrap(), "rank of {path}");
        assert!((scale - wanted[path][1].as_f64().unwrap()).abs() < 1e-8, "scale of {path}");
    }
}

#[test]
fn expressions_in_settings_give_the_modules_ranks_and_scales_of_peft() {
    let (_files, model) = model();
    for case in golden()["modules"].as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let rank = |(path, pair): (&String, &Value)| (path.clone(), pair[0].as_u64().unwrap() as usize);
        let ranks = case["modules"].as_object().unwrap().iter().map(rank).collect();
        write_zeros(folder.path(), &model, &case["config"], &ranks);
        let loaded = Adapter::load(&model, folder.path()).unwrap();
        assert_modules(&loaded, &case["modules"]);
        let again = tempfile::tempdir().unwrap();
        loaded.save(&model, again.path()).unwrap();
        assert_modules(&Adapter::load(&model, again.path()).unwrap(), &case["modules"]);
    }
}

#[test]
fn a_new_adapter_with_expressions_has_the_modules_of_peft() {
    let ((_files, model), golden) = (model(), golden());
    let base = AdapterSettings { rank: 4, alpha: 6.0, ..AdapterSettings::default() };
    let patterns = AdapterSettings {
        rank_pattern: vec![("q_proj".into(), 2), (r"layers\.[12]\.mlp\..*".into(), 8)],
        alpha_pattern: vec![("layers.0.*".into(), 3.0)],
        ..base.clone()
    };
    let targets = AdapterSettings {
        kind: AdapterKind::RsLora,
        targets: Targets::Pattern(r".*\.(q|v)_proj".into()),
        alpha_pattern: vec![("v_proj".into(), 1.5)],
        ..base
    };
    for (settings, case) in [patterns, targets].iter().zip(golden["modules"].as_array().unwrap()) {
        let created = Adapter::create(&model, settings).unwrap();
        assert_modules(&created, &case["modules"]);
        let folder = tempfile::tempdir().unwrap();
        created.save(&model, folder.path()).unwrap();
        assert_modules(&Adapter::load(&model, folder.path()).unwrap(), &case["modules"]);
    }
}

#[test]
fn expressions_of_a_new_adapter_that_select_nothing_or_leave_a_choice_are_refused() {
    let (_files, model) = model();
    let refused = |settings: AdapterSettings| Adapter::create(&model, &settings).err().unwrap().to_string();
    let ranks = |list: &[&str]| AdapterSettings {
        rank_pattern: list.iter().map(|text| ((*text).into(), 2)).collect(),
        ..AdapterSettings::default()
    };
    let targets = |text: &str| AdapterSettings { targets: Targets::Pattern(text.into()), ..AdapterSettings::default() };
    for (settings, wanted) in [
        (ranks(&["qproj"]), "`qproj` matches no module that gets an adapter"),
        (ranks(&["q_proj", ".*_proj"]), "`q_proj` and `.*_proj` both match `model.layers.0.self_attn.q_proj`"),
        (ranks(&["(q"]), "`(q` is not a regular expression: "),
        (targets("q_proj"), "`q_proj` matches the whole path of no linear map"),
        (targets(".*"), "`.*` matches `model.embed_tokens`; low-rank factors are for the linear maps"),
    ] {
        let found = refused(settings);
        assert!(found.starts_with(wanted), "{found}");
    }
}

/// The adapter of a case of `initial`, with the sign of each pair of vectors that the golden file has.
fn begin(model: &Arc<Model>, case: &Value) -> Policy {
    let initialize = match case["settings"]["init_lora_weights"].as_str().unwrap() {
        "pissa" => Initialization::Pissa,
        _ => Initialization::Olora,
    };
    let kind = if case["settings"]["use_rslora"] == json!(true) { AdapterKind::RsLora } else { AdapterKind::Lora };
    let settings = AdapterSettings { kind, initialize, rank: 4, alpha: 6.0, ..AdapterSettings::default() };
    let policy = Policy::new(Arc::clone(model), &settings, PolicySettings::default()).unwrap();
    let parameters = policy.parameters();
    for number in (0..parameters.slots().len()).step_by(2) {
        let path = parameters.slots()[number].name.trim_end_matches(".lora_A.weight").to_owned();
        let [a, b] = [number, number + 1].map(|slot| parameters.value(slot).unwrap());
        let along = noise(&format!("sign {path}"), a.dim(1).unwrap());
        let sign = |row: Vec<f32>| row.iter().zip(&along).map(|(one, along)| one * along).sum::<f32>().signum();
        let signs: Vec<f32> = a.to_vec2::<f32>().unwrap().into_iter().map(sign).collect();
        let signs = Tensor::new(signs, &Device::Cpu).unwrap();
        parameters.set(number, &a.broadcast_mul(&signs.unsqueeze(1).unwrap()).unwrap()).unwrap();
        parameters.set(number + 1, &b.broadcast_mul(&signs).unwrap()).unwrap();
    }
    policy
}

/// Adds the noise of the golden file to every trained value.
fn change(policy: &Policy) {
    let parameters = policy.parameters();
    for (number, slot) in parameters.slots().iter().enumerate() {
        let change = noise(&format!("change {}", slot.name), slot.shape.iter().product());
        let change = Tensor::from_vec(change, slot.shape.as_slice(), &Device::Cpu).unwrap();
        let moved = (parameters.value(number).unwrap() + (change * 0.05).unwrap()).unwrap();
        parameters.set(number, &moved).unwrap();
    }
}

#[test]
fn an_adapter_begins_with_the_part_of_the_weights_that_peft_takes_and_with_the_outputs_of_the_base() {
    let (_files, model) = model();
    for case in golden()["initial"].as_array().unwrap() {
        let policy = begin(&model, case);
        for (number, slot) in policy.parameters().slots().iter().enumerate() {
            assert_summary(&slot.name, &policy.parameters().value(number).unwrap(), &case["first"][&slot.name]);
        }
        let base: Vec<f64> =
            score(&policy, &View::Reference, &[48], false)[0][1..].iter().map(|one| f64::from(*one)).collect();
        assert_scores(&score(&policy, &View::Policy, &[48], false)[0], &base, "before training");
    }
}

#[test]
fn such_an_adapter_scores_and_learns_as_in_peft_and_is_saved_as_the_plain_one_that_peft_makes_of_it() {
    let (_files, model) = model();
    for case in golden()["initial"].as_array().unwrap() {
        let (policy, wanted) = (begin(&model, case), numbers(&case["logprobs"]));
        change(&policy);
        let mut scored = policy.score(&View::Policy, &rows(&[48]), TapSet::default(), 1.0, true).unwrap();
        assert_scores(&scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap()[0], &wanted, "changed");
        let ones = Tensor::ones((1, 48), DType::F32, &Device::Cpu).unwrap();
        policy.backward(&mut scored, &Seeds::from_iter([(Tap::Logprob, ones)])).unwrap();
        for (number, slot) in policy.parameters().slots().iter().enumerate() {
            assert_summary(&slot.name, &policy.parameters().gradient(number).unwrap(), &case["gradients"][&slot.name]);
        }
        let folder = tempfile::tempdir().unwrap();
        policy.save(folder.path()).unwrap();
        let plain = Policy::open(Arc::clone(&model), Some(folder.path()), PolicySettings::default()).unwrap();
        assert_eq!(plain.adapter().settings().rank as u64, case["r"].as_u64().unwrap());
        assert!((plain.adapter().settings().alpha - case["alpha"].as_f64().unwrap()).abs() < 1e-9);
        assert_scores(&score(&plain, &View::Policy, &[48], false)[0], &wanted, "saved");
    }
}

#[test]
fn a_checkpoint_of_such_an_adapter_restores_it_bit_for_bit() {
    let ((_files, model), golden) = (model(), golden());
    let (policy, folder) = (begin(&model, &golden["initial"][0]), tempfile::tempdir().unwrap());
    change(&policy);
    policy.save(folder.path()).unwrap();
    let mut resumed = begin(&model, &golden["initial"][0]);
    resumed.restore(folder.path()).unwrap();
    let values = |policy: &Policy| policy.parameters().values().to_vec1::<f32>().unwrap();
    assert_eq!(values(&resumed), values(&policy));
    assert_eq!(score(&resumed, &View::Policy, &[48], false), score(&policy, &View::Policy, &[48], false));
    resumed.reset().unwrap();
    assert_ne!(values(&resumed), values(&policy));
}

/// A policy with LoRA and the noise of the golden file.
fn noisy(model: &Arc<Model>, golden: &Value, settings: PolicySettings) -> Policy {
    let mut policy = Policy::new(Arc::clone(model), &AdapterSettings::default(), settings).unwrap();
    let noise = &golden["noise"];
    let (alpha, seed) = (noise["alpha"].as_f64().unwrap(), noise["seed"].as_u64().unwrap());
    policy.set_embedding_noise(Some(EmbeddingNoise { alpha, seed }));
    policy
}

#[test]
fn noise_on_embeddings_is_that_of_transformers_while_learning_and_nowhere_else() {
    let ((_files, model), golden) = (model(), golden());
    let mut policy = noisy(&model, &golden, PolicySettings::default());
    let lengths = [48, 20];
    let plain = score(&policy, &View::Policy, &lengths, false);
    let learning = score(&policy, &View::Policy, &lengths, true);
    for (row, wanted) in golden["noise"]["logprobs"].as_array().unwrap().iter().enumerate() {
        assert_scores(&learning[row][..lengths[row]], &numbers(wanted), "with noise");
    }
    let family = Golden::named("llama3");
    assert_scores(&plain[0], &family.logprobs, "without");
    assert_eq!(score(&policy, &View::Reference, &lengths, true), plain);
    // Another pass of the same update has other noise; a step that is repeated has the same.
    assert_ne!(score(&policy, &View::Policy, &lengths, true), learning);
    policy.resume_at(0);
    assert_eq!(score(&policy, &View::Policy, &lengths, true), learning);
}

#[test]
fn a_pass_that_runs_again_has_the_noise_of_the_first_time() {
    let ((_files, model), golden) = (model(), golden());
    let gradients = |recompute, slice, max_saved_bytes| {
        let settings = PolicySettings { recompute, slice, max_saved_bytes, ..PolicySettings::default() };
        let policy = noisy(&model, &golden, settings);
        change(&policy);
        let mut scored = policy.score(&View::Policy, &rows(&[48, 48, 20]), TapSet::default(), 1.0, true).unwrap();
        let ones = Tensor::ones((3, 48), DType::F32, &Device::Cpu).unwrap();
        policy.backward(&mut scored, &Seeds::from_iter([(Tap::Logprob, ones)])).unwrap();
        policy.parameters().gradients().to_vec1::<f32>().unwrap()
    };
    assert_eq!(gradients(Recompute::None, Slice::Whole, 0), gradients(Recompute::Blocks, Slice::Whole, 0));
    assert_eq!(gradients(Recompute::None, Slice::Rows(1), 0), gradients(Recompute::None, Slice::Rows(1), u64::MAX));
}
