//! `adapter_config.json` as PEFT writes it, against a small model.

use std::sync::LazyLock;

use tunebox_compute::Device;
use tunebox_model::Model;
use tunebox_model::adapter::Adapter;

use crate::Target;
use crate::scratch::with_file;

pub(super) const TARGET: Target = Target { name: "adapter", run, longest: 4 << 10, quick: 3_000 };

/// Two layers, four numbers wide.
static MODEL: LazyLock<Option<Model>> = LazyLock::new(|| {
    let json = r#"{"model_type": "llama", "vocab_size": 4, "hidden_size": 4, "intermediate_size": 4,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 16,
        "tie_word_embeddings": true}"#;
    with_file("config.json", json.as_bytes(), |_, folder| Model::random(folder, 1, &Device::Cpu).ok())
});

/// An adapter of zeros could only come from a file of values, and there is none: always an error, and soon.
fn run(bytes: &[u8]) {
    let model = MODEL.as_ref().unwrap_or_else(|| panic!("the small model is not one"));
    with_file("adapter_config.json", bytes, |_, folder| {
        assert!(Adapter::load(model, folder).is_err(), "an adapter without numbers was loaded");
    });
}
