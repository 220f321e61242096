//! Merged adapters: the merged weights alone score as the base and its adapter do together.

use std::sync::Arc;

use tunebox_compute::{DType, Device};

use super::{logprobs, policy, settings};
use crate::adapter::AdapterKind;
use crate::policy::{Policy, PolicySettings, View};
use crate::{Model, Weights, families, merge, tiny};

#[test]
fn a_merged_model_scores_like_its_adapter() {
    for (name, configuration) in tiny::families() {
        for kind in [AdapterKind::Lora, AdapterKind::RsLora, AdapterKind::Dora, AdapterKind::Full] {
            let policy = policy(configuration.clone(), &settings(kind));
            let merged = merged(&policy);
            let base = Policy::open(Arc::new(merged), None, PolicySettings::default()).unwrap();
            let (adapted, merged) = (logprobs(&policy, &View::Policy), logprobs(&base, &View::Policy));
            for (adapted, merged) in adapted.iter().flatten().zip(merged.iter().flatten()) {
                assert!((adapted - merged).abs() < 1e-5, "{name}, {kind:?}: {adapted} adapted, {merged} merged");
            }
        }
    }
}

fn merged(policy: &Policy) -> Model {
    let configuration = policy.model().configuration.clone();
    let weights = families::weight_shapes(&configuration)
        .into_iter()
        .map(|(name, _)| {
            let weight = merge::merge_weight(policy.model(), policy.adapter(), policy.edits(), &name).unwrap();
            (name, weight)
        })
        .collect();
    let weights = Weights::from_tensors(weights, &configuration, &Device::Cpu).unwrap();
    Model::from_parts("merged", configuration, weights)
}

#[test]
fn a_merged_folder_opens_as_a_model_that_scores_like_the_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::qwen3(), &settings(AdapterKind::Lora));
    merge::merge(&policy, folder.path(), DType::F32).unwrap();
    let source = crate::Source::open(folder.path().to_str().unwrap(), true).unwrap();
    let model = Model::open(&source, &Device::Cpu).unwrap();
    let base = Policy::open(Arc::new(model), None, PolicySettings::default()).unwrap();
    let (adapted, merged) = (logprobs(&policy, &View::Policy), logprobs(&base, &View::Policy));
    for (adapted, merged) in adapted.iter().flatten().zip(merged.iter().flatten()) {
        assert!((adapted - merged).abs() < 1e-5);
    }
}

#[test]
fn a_merge_into_bf16_rounds_the_merged_weights() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(tiny::llama(), &settings(AdapterKind::Lora));
    merge::merge(&policy, folder.path(), DType::BF16).unwrap();
    let stored = candle_core::safetensors::load(folder.path().join("model.safetensors"), &Device::Cpu).unwrap();
    assert_eq!(stored.len(), families::weight_shapes(&tiny::llama()).len());
    for (name, stored) in stored {
        assert_eq!(stored.dtype(), DType::BF16);
        let wanted = merge::merge_weight(policy.model(), policy.adapter(), policy.edits(), &name).unwrap();
        let wanted = wanted.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
        let difference = (stored.to_dtype(DType::F32).unwrap() - wanted).unwrap().abs().unwrap();
        assert_eq!(difference.max_all().unwrap().to_scalar::<f32>().unwrap(), 0.0, "{name}");
    }
}
