//! The tiny reward models of `golden/reward_models.py`, made again as folders.

use std::path::Path;

use candle_core::Tensor;
use serde_json::Value;
use tunebox_model::reward::reward_weight_shapes;

use super::noise::weight;

/// One file of `golden/reward_models`.
pub(crate) fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/reward_models");
    serde_json::from_str(&std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap()).unwrap()
}

/// Writes a reward model of `golden` into `folder`, after `change` changed its tensors.
pub(crate) fn write(folder: &Path, golden: &Value, change: impl Fn(&str, Tensor) -> Tensor) {
    std::fs::create_dir_all(folder).unwrap();
    let config = &golden["config"];
    let unit_offset = config["model_type"] == "gemma2";
    let shapes = reward_weight_shapes(config, Path::new("config.json")).unwrap();
    let tensors = shapes.iter().map(|(name, shape)| (name.clone(), change(name, weight(name, shape, unit_offset))));
    safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors")).unwrap();
    write_texts(folder, golden);
}

/// Writes everything but the weights.
pub(crate) fn write_texts(folder: &Path, golden: &Value) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("config.json"), golden["config"].to_string()).unwrap();
    std::fs::write(folder.join("tokenizer.json"), golden["tokenizer"].to_string()).unwrap();
    if let Some(template) = golden["template"].as_str() {
        std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    }
}
