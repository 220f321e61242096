//! A model whose activations are given: each token's embedding passes every block unchanged.

use std::collections::BTreeMap;

use tempfile::TempDir;
use tunebox_compute::{Device, Tensor};
use tunebox_model::hub::Hub;
use tunebox_model::{Model, Policy, PolicySettings, Source};
use tunebox_sandbox::{RunHooks, TrainState};

/// The token `I`, which refusals begin with.
pub(crate) const REFUSAL: u32 = 5;

/// Tokens of the model.
const VOCABULARY: usize = 32;

/// A run that offers nothing; holds the model's folder.
pub(crate) struct GivenStream(#[expect(dead_code, reason = "removed when the run ends")] TempDir);

impl RunHooks for GivenStream {
    fn planned_steps(&self) -> u32 {
        10
    }
}

/// A train state of two layers with these embeddings of hidden size 3. Values and up-projections are 0, so that blocks add
/// nothing; the head prefers [`REFUSAL`] where the first number is large.
pub(crate) fn given_stream(embeddings: &BTreeMap<u32, Vec<f32>>) -> TrainState<GivenStream> {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 3, "intermediate_size": 4,
        "num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": false,
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "I": REFUSAL}, "unk_token": "<unk>"},
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    safetensors::serialize_to_file(weights(embeddings), None, &folder.path().join("model.safetensors")).unwrap();
    let hub = Hub::from_environment(true);
    let source = Source::find(&folder.path().to_string_lossy(), None, &hub).unwrap();
    let model = Model::open(&source, &Device::Cpu).unwrap().into();
    let policy = Policy::open(model, None, PolicySettings::default()).unwrap();
    TrainState::new(policy, GivenStream(folder))
}

fn weights(embeddings: &BTreeMap<u32, Vec<f32>>) -> BTreeMap<String, Tensor> {
    let mut embedding = vec![0.0; 3 * VOCABULARY];
    for (token, values) in embeddings {
        embedding[3 * *token as usize..][..3].copy_from_slice(values);
    }
    let mut head = vec![0.0; 3 * VOCABULARY];
    head[3 * REFUSAL as usize] = 5.0;
    let ones = |count: usize| vec![1.0; count];
    let ramp = |count: usize| (0..count).map(|at| 0.1 * (at as f32 + 1.0)).collect::<Vec<f32>>();
    let mut list = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, 3], embedding),
        ("lm_head.weight".to_owned(), vec![VOCABULARY, 3], head),
        ("model.norm.weight".to_owned(), vec![3], ones(3)),
    ];
    for layer in 0..2 {
        let mut add = |name: &str, shape: Vec<usize>, values: Vec<f32>| {
            list.push((format!("model.layers.{layer}.{name}.weight"), shape, values));
        };
        add("input_layernorm", vec![3], ones(3));
        add("post_attention_layernorm", vec![3], ones(3));
        add("self_attn.q_proj", vec![2, 3], ramp(6));
        add("self_attn.k_proj", vec![2, 3], ramp(6));
        add("self_attn.v_proj", vec![2, 3], vec![0.0; 6]);
        add("self_attn.o_proj", vec![3, 2], ramp(6));
        add("mlp.gate_proj", vec![4, 3], ramp(12));
        add("mlp.up_proj", vec![4, 3], vec![0.0; 12]);
        add("mlp.down_proj", vec![3, 4], ramp(12));
    }
    let tensor = |(name, shape, values)| (name, Tensor::from_vec(values, shape, &Device::Cpu).unwrap());
    list.into_iter()
        .map(|(name, shape, values): (String, Vec<usize>, Vec<f32>)| tensor((name, shape, values)))
        .collect()
}
