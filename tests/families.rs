//! Every model family against transformers, on tiny models whose weights both sides make from one formula, through
//! every kind of file: a safetensors folder, several shards, a multimodal checkpoint, a GGUF file.

mod candle;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::support::tiny_models::{Golden, GoldenAdapter, along, rounded, write_folder, write_gguf, write_shards};
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::precision::{Compute, PrecisionRequest};
use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::adapter::AdapterSettings;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::{Error, Model, Policy, PolicySettings, Rows, Seeds, Source, View};

/// The largest difference allowed in a log-probability.
const TOLERANCE: f64 = 1e-4;

/// The largest difference allowed in a gradient, as a share of its length.
const GRADIENT_TOLERANCE: f64 = 1e-5;

fn open(path: &Path) -> Result<Model, Error> {
    let in_f32 = PrecisionRequest { compute: Compute::F32, ..PrecisionRequest::default() };
    Model::open_in(&Source::open(&path.display().to_string(), true)?, &Device::Cpu, in_f32)
}

fn policy(model: Model) -> Policy {
    Policy::open(Arc::new(model), None, PolicySettings::default()).unwrap()
}

/// The log-probability of each token after the first.
fn score(policy: &Policy, ids: &[u32]) -> Vec<f32> {
    let rows = Arc::new(Rows::new(vec![ids.to_vec()], vec![vec![true; ids.len()]]).unwrap());
    let scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false).unwrap();
    scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap()[0][1..].to_vec()
}

fn largest_difference(found: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    found.iter().zip(wanted).map(|(found, wanted)| (f64::from(*found) - wanted).abs()).fold(0.0, f64::max)
}

fn assert_matches(model: Model, golden: &Golden) {
    let found = score(&policy(model), &golden.ids);
    for wanted in [&golden.logprobs, &golden.logprobs_f64] {
        let gap = largest_difference(&found, wanted);
        assert!(gap < TOLERANCE, "{}: log-probabilities differ by {gap:.2e}", golden.name);
    }
}

#[test]
fn every_family_gives_the_log_probabilities_of_transformers() {
    for golden in Golden::all() {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &golden.config, &golden.weights());
        assert_matches(open(folder.path()).unwrap(), &golden);
    }
}

/// The names and shapes in an adapter's file.
fn stored(folder: &Path) -> BTreeMap<String, Vec<usize>> {
    let bytes = std::fs::read(folder.join("adapter_model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    file.tensors().into_iter().map(|(name, tensor)| (name, tensor.shape().to_vec())).collect()
}

#[test]
fn adapters_have_the_names_and_the_gradients_of_peft() {
    let mut compared = 0;
    for golden in Golden::all() {
        let Some(wanted) = &golden.adapter else { continue };
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &golden.config, &golden.weights());
        let model = Arc::new(open(folder.path()).unwrap());
        let fresh = folder.path().join("fresh");
        let settings = AdapterSettings { rank: wanted.rank, alpha: wanted.alpha, ..AdapterSettings::default() };
        Policy::new(model.clone(), &settings, PolicySettings::default()).unwrap().save(&fresh).unwrap();
        let shapes = stored(&fresh);
        assert!(shapes.keys().eq(wanted.gradients.keys()), "{}: other names than PEFT's", golden.name);
        let adapter = folder.path().join("adapter");
        wanted.write_folder(&adapter, &shapes);
        let policy = Policy::open(model, Some(&adapter), PolicySettings::default()).unwrap();
        assert_gradients(&golden, wanted, &policy);
        compared += 1;
    }
    assert_eq!(compared, 10, "families with gradients");
}

/// The gradients of the sum of all log-probabilities: their lengths, and their products with noise.
fn assert_gradients(golden: &Golden, wanted: &GoldenAdapter, policy: &Policy) {
    let marks = vec![true; golden.ids.len()];
    let rows = Arc::new(Rows::new(vec![golden.ids.clone()], vec![marks]).unwrap());
    let mut scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, true).unwrap();
    let ones = Tensor::ones((1, golden.ids.len()), DType::F32, &Device::Cpu).unwrap();
    policy.backward(&mut scored, &Seeds::from_iter([(Tap::Logprob, ones)])).unwrap();
    for (number, slot) in policy.parameters().slots().iter().enumerate() {
        let name = format!("base_model.model.{}", slot.name);
        let gradient = policy.parameters().gradient(number).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let noise = along(&name, gradient.len());
        let length = gradient.iter().map(|one| f64::from(*one).powi(2)).sum::<f64>().sqrt();
        let product = gradient.iter().zip(&noise).map(|(one, noise)| f64::from(*one) * f64::from(*noise)).sum::<f64>();
        let [wanted_length, wanted_product] = wanted.gradients[&name];
        let gap = (length - wanted_length).abs().max((product - wanted_product).abs()) / wanted_length;
        assert!(gap < GRADIENT_TOLERANCE, "{}: the gradient of `{name}` is off by {gap:.2e}", golden.name);
    }
}

#[test]
fn every_family_continues_a_text_as_transformers_does() {
    for golden in Golden::all() {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &golden.config, &golden.weights());
        let policy = policy(open(folder.path()).unwrap());
        let sampling = Sampling { temperature: 0.0, max_tokens: golden.greedy.len(), ..Sampling::default() };
        let prompt = golden.ids[..golden.prompt].to_vec();
        let found = generate(&policy, &View::Policy, &[prompt], &sampling, &mut |_, _| true).unwrap();
        assert_eq!(found[0].ids, golden.greedy, "{}", golden.name);
    }
}

#[test]
fn a_gguf_file_holds_the_same_model_as_the_folder_it_was_made_from() {
    for golden in Golden::all() {
        // GGUF has no key for a window in some layers of a Qwen2.
        if golden.name == "qwen2" {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        write_gguf(&path, &golden);
        let model = open(&path).unwrap();
        for (name, wanted) in golden.weights() {
            let gap = (model.weights.get(&name).unwrap() - wanted).unwrap().abs().unwrap().max_all().unwrap();
            // Adding 1 to a norm and taking it off again rounds once.
            assert!(gap.to_scalar::<f32>().unwrap() < 1e-7, "{}: `{name}`", golden.name);
        }
        assert_matches(model, &golden);
    }
}

#[test]
fn a_model_in_several_files_is_the_same_model() {
    let golden = Golden::named("llama3");
    let folder = tempfile::tempdir().unwrap();
    write_shards(folder.path(), &golden.config, &golden.weights());
    assert_matches(open(folder.path()).unwrap(), &golden);
}

#[test]
fn the_text_model_of_a_multimodal_checkpoint_is_found_in_both_layouts() {
    let golden = Golden::named("gemma3");
    let config = serde_json::json!({"model_type": "gemma3", "text_config": golden.config, "vision_config": {}});
    for prefix in ["language_model.model.", "model.language_model."] {
        let rename = |name: String| name.replacen("model.", prefix, 1);
        let weights = golden.weights().into_iter().map(|(name, tensor)| (rename(name), tensor)).collect();
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &config, &weights);
        assert_matches(open(folder.path()).unwrap(), &golden);
    }
}

#[test]
fn weights_in_bf16_score_as_the_same_values_in_f32() {
    let golden = Golden::named("llama3");
    let stored = rounded(&golden.weights(), DType::BF16);
    let scores = |weights: &BTreeMap<String, Tensor>| {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &golden.config, weights);
        let model = open(folder.path()).unwrap();
        let dtype = model.weights.get("model.layers.0.mlp.up_proj.weight").unwrap().dtype();
        (dtype, score(&policy(model), &golden.ids))
    };
    let (dtype, found) = scores(&stored);
    assert_eq!(dtype, DType::BF16);
    assert_eq!(found, scores(&rounded(&stored, DType::F32)).1);
}

#[test]
fn a_missing_weight_is_named() {
    let golden = Golden::named("qwen2");
    let mut weights = golden.weights();
    weights.remove("model.layers.1.self_attn.k_proj.bias");
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &golden.config, &weights);
    let error = open(folder.path()).unwrap_err();
    assert_eq!(error.to_string(), "tensor `model.layers.1.self_attn.k_proj.bias` is missing");
}

#[test]
fn weights_of_another_size_are_named_with_both_shapes() {
    let golden = Golden::named("qwen3");
    let mut config = golden.config.clone();
    config["intermediate_size"] = 96.into();
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &config, &golden.weights());
    let error = open(folder.path()).unwrap_err();
    let wanted = "tensor `model.layers.0.mlp.gate_proj.weight` is [112, 64], the configuration asks for [96, 64]";
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn a_gguf_file_that_ends_early_is_refused_at_every_length() {
    let golden = Golden::named("llama3");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    write_gguf(&path, &golden);
    let whole = std::fs::read(&path).unwrap();
    let last = whole.len() - 64;
    for length in (0..last).step_by(last / 97) {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(open(&path), Err(Error::Broken { .. })), "{length} of {} bytes", whole.len());
    }
}

/// Gives a tensor of a GGUF file another name of the same length.
fn rename(path: &Path, from: &str, to: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn rotation_factors_for_short_or_long_texts_alone_are_refused() {
    let golden = Golden::named("phi3_short");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    for name in ["rope_factors_short.weight", "rope_factors_long.weight"] {
        write_gguf(&path, &golden);
        rename(&path, name, &name.replace("rope", "ripe"));
        assert_eq!(open(&path).unwrap_err().to_string(), format!("tensor `{name}` is missing"));
    }
}

#[test]
fn a_tensor_in_a_block_that_the_family_does_not_have_is_refused() {
    let golden = Golden::named("llama_biases");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    write_gguf(&path, &golden);
    rename(&path, "blk.1.attn_q.bias", "blk.1.attn_q.spin");
    // Without a bias in the first block the model has none; those of the others would be left out.
    rename(&path, "blk.0.attn_q.bias", "xlk.0.attn_q.bias");
    assert_eq!(open(&path).unwrap_err().to_string(), "tensor `blk.0.attn_k.bias` is not part of a `llama` model");
}
