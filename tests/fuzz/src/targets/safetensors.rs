//! Heads of safetensors files, and the numbers behind them: as weights of a model, as directions.

use std::path::PathBuf;
use std::sync::LazyLock;

use tunebox_compute::Device;
use tunebox_model::vectors::Vectors;
use tunebox_model::{Configuration, Weights};

use crate::Target;
use crate::scratch::with_file;

pub(super) const TARGET: Target = Target { name: "safetensors", run, longest: 8 << 10, quick: 3_000 };

/// The smallest model that there can be.
static CONFIGURATION: LazyLock<Option<Configuration>> = LazyLock::new(|| {
    let json = serde_json::json!({
        "model_type": "llama", "vocab_size": 4, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 16, "tie_word_embeddings": true,
    });
    Configuration::from_hugging_face(&json, &PathBuf::from("config.json")).ok()
});

/// What is read is what the file is long enough for.
fn run(bytes: &[u8]) {
    let configuration = CONFIGURATION.as_ref().unwrap_or_else(|| panic!("the smallest model is not one"));
    with_file("model.safetensors", bytes, |path, folder| {
        if let Ok(weights) = Weights::from_folder(folder, &[path.to_owned()], configuration, &Device::Cpu) {
            assert!(weights.load().is_ok(), "the head promised what the file does not hold");
        }
        if let Ok(vectors) = Vectors::load(path) {
            let held: usize = vectors.layers.values().map(Vec::len).sum();
            assert!(held <= bytes.len(), "{held} numbers from {} bytes", bytes.len());
        }
    });
}
