//! Merged adapters: the merged weights alone score as the base and its adapter do together.

use std::sync::Arc;

use tunebox_compute::{DType, Device};

use crate::adapter::AdapterKind;
use crate::policy::{Policy, PolicySettings, View};
use crate::{Model, Weights, families, merge, tiny};

#[test]
fn a_merged_model_scores_like_its_adapter() {
    for (name, configuration) in tiny::families() {
        for kind in [AdapterKind::Lora, AdapterKind::RsLora, AdapterKind::Dora, AdapterKind::Full] {
            let policy = tiny::policy(configuration.clone(), &tiny::adapter(kind));
            let merged = merged(&policy);
            let base = Policy::open(Arc::new(merged), None, PolicySettings::default()).unwrap();
            let (adapted, merged) = (tiny::logprobs(&policy, &View::Policy), tiny::logprobs(&base, &View::Policy));
            for (adapted, merged) in adapted.into_iter().zip(merged) {
                assert!((adapted - merged).abs() < 1e-5, "{name}, {kind:?}: {adapted} adapted, {merged} merged");
            }
        }
    }
}

fn merged(policy: &Policy) -> Model {
    let configuration = policy.model().configuration.clone();
    let merge = |(name, _): (String, Vec<usize>)| {
        let weight = merge::merge_weight(policy.model(), policy.adapter(), policy.edits(), &name).unwrap();
        (name, weight)
    };
    let weights = families::weight_shapes(&configuration).into_iter().map(merge).collect();
    let weights = Weights::from_tensors(weights, &configuration, &Device::Cpu).unwrap();
    Model::from_parts("merged", configuration, weights)
}

#[test]
fn a_merged_folder_opens_as_a_model_that_scores_like_the_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let policy = tiny::policy(tiny::qwen3(), &tiny::adapter(AdapterKind::Lora));
    merge::merge(&policy, folder.path(), DType::F32).unwrap();
    let source = crate::Source::open(folder.path().to_str().unwrap(), true).unwrap();
    let model = Model::open(&source, &Device::Cpu).unwrap();
    let base = Policy::open(Arc::new(model), None, PolicySettings::default()).unwrap();
    let (adapted, merged) = (tiny::logprobs(&policy, &View::Policy), tiny::logprobs(&base, &View::Policy));
    assert!(adapted.iter().zip(merged).all(|(adapted, merged)| (adapted - merged).abs() < 1e-5));
}

#[test]
fn a_merge_into_bf16_rounds_the_merged_weights() {
    let folder = tempfile::tempdir().unwrap();
    let policy = tiny::policy(tiny::llama(), &tiny::adapter(AdapterKind::Lora));
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
