//! Test support: small models with random weights, one for each family feature, and policies and rows for them.

mod policies;

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_compute::fused::Activation;
use tunebox_compute::precision::{Compute, PrecisionRequest};
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::explain::Explain;

use crate::configuration::{BlockNorms, Configuration, ExpertNames, Experts, LayerKind, RopeScaling, RopeSetting};
use crate::families;
use crate::rows::Rows;
use crate::{Model, Weights};
pub(crate) use policies::{
    adapter, bits, distance, largest, logprobs, logprobs_of, numbers, plain, policy, stir, trained,
};

/// A plain Llama whose head dimension is not hidden / heads, and with an output head of its own.
pub(crate) fn llama() -> Configuration {
    Configuration {
        intermediate: 24,
        kv_heads: 2,
        vocabulary: 40,
        norm_epsilon: 1e-5,
        attention_scale: 8f32.powf(-0.5),
        max_positions: 128,
        ropes: vec![RopeSetting::plain(10_000.0)],
        eos: vec![1],
        ..Configuration::plain("llama", 16, 2, 4, 8)
    }
}

/// Sides that are whole blocks of every quantized format.
pub(crate) fn wide() -> Configuration {
    Configuration { hidden: 256, intermediate: 512, heads: 4, kv_heads: 2, head_dim: 64, ..llama() }
}

/// Biases on query, key and value, and a tied head.
pub(crate) fn qwen2() -> Configuration {
    Configuration { family: "qwen2".into(), attention_bias: true, tied: true, ..llama() }
}

/// Norms on the heads of queries and keys.
pub(crate) fn qwen3() -> Configuration {
    Configuration { family: "qwen3".into(), query_key_norm: true, ..llama() }
}

/// Four experts, two of them for each token, with weights of sum 1, under names of their own.
pub(crate) fn mixtral() -> Configuration {
    let experts = Experts { count: 4, active: 2, intermediate: 24, normalized: true };
    let expert_names = ExpertNames::MIXTRAL;
    Configuration { family: "mixtral".into(), experts: Some(experts), expert_names, ..llama() }
}

/// Six experts, two of them for each token, with weights of sum 1.
pub(crate) fn qwen3_moe() -> Configuration {
    let experts = Experts { count: 6, active: 2, intermediate: 20, normalized: true };
    Configuration { family: "qwen3_moe".into(), experts: Some(experts), ..qwen3() }
}

/// Five experts, three of them for each token, and norms over all features of queries and keys.
pub(crate) fn olmoe() -> Configuration {
    let experts = Experts { count: 5, active: 3, intermediate: 24, normalized: false };
    Configuration { family: "olmoe".into(), experts: Some(experts), joint_query_key_norm: true, ..qwen3() }
}

/// Norms of what attention and feed-forward add to the residual stream, and over all features of queries and keys.
pub(crate) fn olmo2() -> Configuration {
    // What a fresh block adds is small, and a norm of it would enlarge the rounding of f32.
    let norm_epsilon = 0.1;
    Configuration {
        family: "olmo2".into(),
        joint_query_key_norm: true,
        norms: BlockNorms::OUTPUTS,
        norm_epsilon,
        ..qwen3()
    }
}

/// Three local layers and a global one, whose rotation is scaled.
pub(crate) fn olmo3() -> Configuration {
    let attention_factor = 1.0 + 0.1 * 4f64.ln();
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original: 32,
        beta_fast: 4.0,
        beta_slow: 1.0,
        attention_factor,
        truncate: true,
    };
    let local = LayerKind { window: Some(5), rope: Some(1) };
    Configuration {
        family: "olmo3".into(),
        layers: 4,
        layer_kinds: vec![local, local, local, LayerKind::FULL],
        ropes: vec![RopeSetting { theta: 1e4, scaling }, RopeSetting::plain(1e4)],
        ..olmo2()
    }
}

/// Multipliers on embeddings, scores, what is added to the residual stream, and logits.
pub(crate) fn granite() -> Configuration {
    Configuration {
        family: "granite".into(),
        tied: true,
        embedding_scale: 3.0,
        attention_scale: 0.2,
        residual_scale: 0.6,
        logit_divisor: 0.8,
        ..llama()
    }
}

/// Four norms of 1 + weight, two rotations, a window, a scaled embedding.
pub(crate) fn gemma3() -> Configuration {
    Configuration {
        family: "gemma3_text".into(),
        activation: Activation::GeluTanh,
        tied: true,
        query_key_norm: true,
        unit_offset_norm: true,
        norms: BlockNorms::GEMMA,
        embedding_scale: 4.0,
        attention_scale: 0.3,
        layer_kinds: vec![LayerKind { window: Some(3), rope: Some(1) }, LayerKind { window: None, rope: Some(0) }],
        ropes: vec![RopeSetting::plain(1e6), RopeSetting::plain(1e4)],
        ..llama()
    }
}

/// Four norms of 1 + weight, soft caps on scores and logits, a window in every other layer.
pub(crate) fn gemma2() -> Configuration {
    Configuration {
        family: "gemma2".into(),
        query_key_norm: false,
        attention_soft_cap: Some(1.5),
        logit_soft_cap: Some(2.0),
        layer_kinds: vec![LayerKind { window: Some(3), rope: Some(0) }, LayerKind::FULL],
        ropes: vec![RopeSetting::plain(1e4)],
        ..gemma3()
    }
}

/// Biases everywhere, and a layer without positions.
pub(crate) fn biased() -> Configuration {
    Configuration {
        attention_bias: true,
        output_bias: true,
        feed_forward_bias: true,
        layer_kinds: vec![LayerKind { window: None, rope: None }, LayerKind::FULL],
        ..llama()
    }
}

/// Query, key and value in one matrix, gate and up in another.
pub(crate) fn joined() -> Configuration {
    Configuration { fused_query_key_value: true, fused_gate_up: true, ..llama() }
}

/// One matrix for query, key and value, partly rotated heads, and LongRoPE with other frequencies for rows longer than
/// `original` tokens.
pub(crate) fn phi3(original: usize) -> Configuration {
    let scaling = RopeScaling::Long {
        short_factor: vec![1.0, 1.3, 2.0],
        long_factor: vec![1.5, 4.0, 9.0],
        original,
        attention_factor: 1.1,
    };
    Configuration {
        family: "phi3".into(),
        rotated: 6,
        ropes: vec![RopeSetting { theta: 100.0, scaling }],
        layer_kinds: vec![LayerKind { window: Some(7), rope: Some(0) }; 2],
        ..joined()
    }
}

/// Four norms under names of their own, partly rotated heads with adjacent pairs, gate and up in one matrix, and biases
/// on query, key and value.
pub(crate) fn glm4() -> Configuration {
    Configuration {
        family: "glm4".into(),
        rotated: 4,
        adjacent_pairs: true,
        norms: BlockNorms::GLM4,
        fused_gate_up: true,
        attention_bias: true,
        ..llama()
    }
}

/// All test configurations with their names.
pub(crate) fn families() -> Vec<(&'static str, Configuration)> {
    // Soft caps on scores and logits, and a divisor of logits.
    let capped =
        Configuration { attention_soft_cap: Some(1.5), logit_soft_cap: Some(2.0), logit_divisor: 1.4, ..llama() };
    vec![
        ("llama", llama()),
        ("qwen2", qwen2()),
        ("qwen3", qwen3()),
        ("mixtral", mixtral()),
        ("qwen3_moe", qwen3_moe()),
        ("olmoe", olmoe()),
        ("olmo2", olmo2()),
        ("granite", granite()),
        ("gemma2", gemma2()),
        ("gemma3", gemma3()),
        ("capped", capped),
        ("biased", biased()),
        ("joined", joined()),
        ("phi3", phi3(64)),
        ("glm4", glm4()),
    ]
}

/// The test configurations of models without experts, with their names: what edits and accelerators know.
pub(crate) fn dense() -> Vec<(&'static str, Configuration)> {
    families().into_iter().filter(|(_, configuration)| configuration.experts.is_none()).collect()
}

/// A model with random weights, the same for the same configuration and seed.
pub(crate) fn model(configuration: Configuration, seed: u64) -> Arc<Model> {
    let weights = Weights::from_tensors(weights(&configuration, seed), &configuration, &Device::Cpu).unwrap();
    Arc::new(Model::from_parts("tiny", configuration, weights))
}

/// A model with random weights on a device; bf16 holds the weights exactly, as in most published models.
pub(crate) fn model_on(configuration: Configuration, seed: u64, device: &Device, compute: Compute) -> Arc<Model> {
    let rounded = |(name, weight): (String, Tensor)| (name, weight.to_dtype(DType::BF16).unwrap());
    let weights = weights(&configuration, seed).into_iter().map(rounded).collect();
    let weights = Weights::from_tensors(weights, &configuration, device).unwrap();
    let weights = weights.with_precision(PrecisionRequest { compute, ..PrecisionRequest::default() }).unwrap();
    Arc::new(Model::from_parts("tiny", configuration, weights))
}

/// All weights of a model by name.
pub(crate) fn tensors(model: &Model) -> BTreeMap<String, Tensor> {
    model.weights.names().map(|name| (name.to_owned(), model.weights.get(name).unwrap())).collect()
}

/// Random weights for a configuration: norms near their neutral value, matrices with deviation 1/√in (embeddings 0.6),
/// each from a stream named after the weight.
fn weights(configuration: &Configuration, seed: u64) -> BTreeMap<String, Tensor> {
    let mut weights = BTreeMap::new();
    for (name, shape) in families::weight_shapes(configuration) {
        let mut stream = Stream::new(seed, &name);
        let normals = stream.normals(shape.iter().product());
        let (center, spread) = match (name.contains("norm"), shape.len()) {
            (true, _) if configuration.unit_offset_norm => (0.0, 0.2),
            (true, _) => (1.0, 0.2),
            (false, 1) => (0.0, 0.2),
            _ if name.contains("embed") => (0.0, 0.6),
            _ => (0.0, 1.0 / (shape[1] as f32).sqrt()),
        };
        let values: Vec<f32> = normals.into_iter().map(|draw| center + spread * draw).collect();
        weights.insert(name, Tensor::from_vec(values, shape, &Device::Cpu).unwrap());
    }
    weights
}

/// Some `length` tokens that begin like those of no other `seed`.
pub(crate) fn ids(seed: u32, length: u32) -> impl Iterator<Item = u32> {
    (0..length).map(move |at| 2 + (seed * 11 + at * at * 7 + at) % 37)
}

/// One row, whose targets are the tokens behind the prompt.
pub(crate) fn answer(prompt: &[u32], answer: &[u32]) -> Arc<Rows> {
    let marks = [vec![false; prompt.len()], vec![true; answer.len()]].concat();
    Arc::new(Rows::new(vec![[prompt, answer].concat()], vec![marks]).unwrap())
}

/// Rows of several lengths: targets in the middle, at the end, everywhere, and nowhere.
pub(crate) fn rows() -> Arc<Rows> {
    let mut stream = Stream::new(9, "rows");
    let mut ids = |length: usize| (0..length).map(|_| 2 + stream.below(38) as u32).collect::<Vec<u32>>();
    let marks = |length: usize, wanted: &[usize]| (0..length).map(|at| wanted.contains(&at)).collect::<Vec<bool>>();
    let all: Vec<usize> = (1..6).collect();
    let lists = vec![ids(9), ids(5), ids(6), ids(3)];
    let targets = vec![marks(9, &[3, 4, 6]), marks(5, &[4]), marks(6, &all), marks(3, &[])];
    Arc::new(Rows::new(lists, targets).unwrap())
}

/// Opens a device by name; panics with "absent" if this machine has none: `tests/optional` counts that as skipped.
pub(crate) fn device(name: &str) -> Device {
    let absent = |error: tunebox_compute::Error| panic!("absent `{name}`: {}", error.why().unwrap_or_default());
    tunebox_compute::device::parse(name).unwrap_or_else(absent)
}

/// Defines a module for each place, whose tests call the functions in brackets with what `On::at` makes of the place:
/// of a device, a type of activations and tolerances.
macro_rules! on_each_device {
    (@test $test:ident [$($needs:literal)?]) => {
        #[test]
        $(#[ignore = $needs])?
        fn $test() {
            super::$test(&on());
        }
    };
    (@tests [$($test:ident)*] $needs:tt) => {$(
        $crate::tiny::on_each_device!(@test $test $needs);
    )*};
    ($tests:tt $($place:ident($($on:expr),*) $needs:tt;)*) => {$(
        mod $place {
            use super::*;

            fn on() -> On {
                On::at($($on),*)
            }

            $crate::tiny::on_each_device!(@tests $tests $needs);
        }
    )*};
}
pub(crate) use on_each_device;
