//! Adapters on a quantized base: gradients and merged weights match those of an `f32` base with the same numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QTensor};
use tunebox_compute::Device;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::precision::Base;
use tunebox_compute::weight::{Format, Packed, Weight};

use super::gradients::seeds;
use crate::adapter::AdapterKind;
use crate::families::weight_shapes;
use crate::generate::{Sampling, generate};
use crate::merge;
use crate::policy::{Policy, PolicySettings, View};
use crate::tiny::{self, numbers, wide};
use crate::{Model, Weights};

/// A model whose matrices, embedding and head included, are in one of GGUF's formats.
fn quantized(format: Format, theirs: GgmlDType) -> Arc<Model> {
    let plain = tiny::model(wide(), 1);
    let weights = weight_shapes(&wide()).into_iter().map(|(name, shape)| {
        let tensor = plain.weights.get(&name).unwrap();
        let &[rows, columns] = shape.as_slice() else { return (name, Weight::from(tensor)) };
        let bytes = QTensor::quantize(&tensor, theirs).unwrap().data().unwrap().into_owned();
        (name, Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into()))
    });
    model(weights.collect())
}

fn model(weights: BTreeMap<String, Weight>) -> Arc<Model> {
    let weights = Weights::from_tensors(weights, &wide(), &Device::Cpu).unwrap();
    Arc::new(Model::from_parts("quantized", wide(), weights))
}

/// The model with the same weights in `f32`.
fn widened(model: &Model) -> Arc<Model> {
    let weights = Weights::from_tensors(tiny::tensors(model), &wide(), &Device::Cpu).unwrap();
    Arc::new(Model::from_parts("widened", wide(), weights))
}

fn stirred(model: &Arc<Model>, kind: AdapterKind) -> Policy {
    tiny::trained(model.clone(), &tiny::adapter(kind), PolicySettings::default())
}

/// The flat gradient of one loss.
fn gradient(model: &Arc<Model>, kind: AdapterKind) -> Vec<f32> {
    let policy = stirred(model, kind);
    let rows = tiny::rows();
    let taps = TapSet::of(&[Tap::Entropy, Tap::MeanLogprob]);
    let mut scored = policy.score(&View::Policy, &rows, taps, 1.0, true).unwrap();
    policy.backward(&mut scored, &seeds(&rows)).unwrap();
    let parameters = policy.parameters();
    (0..parameters.slots().len()).flat_map(|slot| numbers(&parameters.gradient(slot).unwrap())).collect()
}

fn check(name: &str, model: &Arc<Model>) {
    let plain = widened(model);
    for kind in [AdapterKind::Lora, AdapterKind::Dora] {
        let apart = tiny::distance(&gradient(&plain, kind), &gradient(model, kind));
        assert!(apart < 1e-5, "{name}, {kind:?}: {apart:.1e}");
    }
    let (found, wanted) = (stirred(model, AdapterKind::Lora), stirred(&plain, AdapterKind::Lora));
    for weight in ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"] {
        let merged = |policy: &Policy| {
            numbers(&merge::merge_weight(policy.model(), policy.adapter(), policy.edits(), weight).unwrap())
        };
        assert_eq!(merged(&found), merged(&wanted), "{name}: `{weight}` merged");
    }
}

#[test]
fn an_adapter_on_a_gguf_base_has_the_gradients_of_the_dequantized_model() {
    for (format, theirs) in [
        (Format::Q4_0, GgmlDType::Q4_0),
        (Format::Q4_1, GgmlDType::Q4_1),
        (Format::Q5_0, GgmlDType::Q5_0),
        (Format::Q5_1, GgmlDType::Q5_1),
        (Format::Q8_0, GgmlDType::Q8_0),
        (Format::Q4_K, GgmlDType::Q4K),
        (Format::Q5_K, GgmlDType::Q5K),
        (Format::Q6_K, GgmlDType::Q6K),
    ] {
        check(&format!("{format:?}"), &quantized(format, theirs));
    }
}

/// Generation rounds activations to 16 bits where the processor multiplies quantized weights directly; scoring does
/// not.
#[test]
fn a_quantized_base_writes_with_the_log_probabilities_of_scoring() {
    for (format, theirs) in
        [(Format::Q5_0, GgmlDType::Q5_0), (Format::Q4_K, GgmlDType::Q4K), (Format::Q6_K, GgmlDType::Q6K)]
    {
        let policy = stirred(&quantized(format, theirs), AdapterKind::Lora);
        let sampling = Sampling { max_tokens: 12, seed: 7, ..Sampling::default() };
        let prompts = [vec![5, 6, 7, 8, 9, 10], vec![11], vec![12, 13, 14]];
        let written = generate(&policy, &View::Policy, &prompts, &sampling, &mut |_, _| true).unwrap();
        for (number, (prompt, completion)) in prompts.iter().zip(&written).enumerate() {
            let alone = Sampling { first_prompt: number as u64, ..sampling.clone() };
            let alone = generate(&policy, &View::Policy, std::slice::from_ref(prompt), &alone, &mut |_, _| true);
            assert_eq!(&alone.unwrap()[0], completion, "{format:?}: alone and among others");
            let scored = tiny::logprobs_of(&policy, &View::Policy, &tiny::answer(prompt, &completion.ids), 1.0);
            for (written, scored) in completion.logprobs.iter().zip(&scored[prompt.len()..]) {
                assert!((written - scored).abs() < 3e-4, "{format:?}: {written} written, {scored} scored");
            }
        }
    }
}

#[test]
fn an_adapter_on_an_nf4_base_has_the_gradients_of_the_dequantized_model() {
    let plain = tiny::model(wide(), 1);
    let weights = Weights::from_tensors(tiny::tensors(&plain), &wide(), &Device::Cpu).unwrap();
    let weights = weights.with_precision(Base::Nf4).unwrap();
    for name in plain.weights.names() {
        let of_block = name.starts_with("model.layers.") && plain.weights.shape(name).unwrap().len() == 2;
        let packed = matches!(weights.weight(name).unwrap(), Weight::Packed(_));
        assert_eq!(packed, of_block, "`{name}`");
    }
    check("NF4", &Arc::new(Model::from_parts("nf4", wide(), weights)));
}
