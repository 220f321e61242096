//! A policy over a tiny Llama with random weights, made in memory.

use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_model::adapter::AdapterSettings;
use tunebox_model::{Model, Policy, PolicySettings};

/// A model of hidden size 3, with a fresh adapter. With `dropout`, rows that are scored for learning go through the model
/// at once; without, scores that are asked for one after another share a pass.
pub(crate) fn tiny_policy(layers: usize, vocabulary: usize, dropout: f64) -> Policy {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "vocab_size": vocabulary, "hidden_size": 3, "intermediate_size": 3,
        "num_hidden_layers": layers, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": true,
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    // Every character is a token; other characters than these letters are `a`.
    let letters: serde_json::Map<String, serde_json::Value> =
        ('a'..='p').zip(0..).map(|(letter, id): (char, u32)| (letter.to_string(), id.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?s)."}, "behavior": "Isolated", "invert": false},
        "model": {"type": "WordLevel", "vocab": letters, "unk_token": "a"},
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let model = Arc::new(Model::random(folder.path(), 1, &Device::Cpu).unwrap());
    let adapter = AdapterSettings { rank: 1, dropout, ..AdapterSettings::default() };
    Policy::new(model, &adapter, PolicySettings::default()).unwrap()
}
