//! A model before any training: the shape from `config.json`, the weights from a seed.
//! For models that are trained from nothing; every other model is opened by [`Model::open`].

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use serde_json::Value;
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};

use crate::configuration::Configuration;
use crate::error::Result;
use crate::families::expected;
use crate::files;
use crate::model::Model;
use crate::source::Source;
use crate::weights::Weights;

/// The standard deviation where `config.json` does not say.
const RANGE: f64 = 0.02;

impl Model {
    /// A model with the shape and tokenizer of a folder and random weights: matrices normal with the deviation
    /// `initializer_range` of `config.json`, norms that change nothing, biases 0. Each matrix draws from a stream of
    /// its own name, so the same seed gives the same weights on every machine.
    ///
    /// # Errors
    /// When the folder has no `config.json`, or its family is not known.
    pub fn random(folder: &Path, seed: u64, device: &Device) -> Result<Self> {
        let source = Source::without_weights(folder)?;
        let configuration = Model::read_configuration(folder)?;
        let config = files::read_json(&folder.join("config.json"))?;
        let deviation = config.get("initializer_range").and_then(Value::as_f64).unwrap_or(RANGE) as f32;
        let tensors: Result<BTreeMap<String, Tensor>> = expected(&configuration)
            .into_par_iter()
            .map(|(name, shape)| {
                let values = values(&name, &shape, deviation, seed, &configuration);
                Ok((name, Tensor::from_vec(values, shape, &Device::Cpu)?))
            })
            .collect();
        let weights = Weights::from_tensors(tensors?, &configuration, device)?;
        Self::from_parts(source.name(), configuration, weights).with_folder(source)
    }
}

/// The initial values of a weight: biases 0, norms 1 (0 for norms by 1 + weight), matrices normal with this deviation,
/// from a stream named after the weight.
fn values(name: &str, shape: &[usize], deviation: f32, seed: u64, configuration: &Configuration) -> Vec<f32> {
    let count = shape.iter().product();
    if name.ends_with(".bias") {
        return vec![0.0; count];
    }
    if shape.len() == 1 {
        return vec![if configuration.unit_offset_norm { 0.0 } else { 1.0 }; count];
    }
    let mut stream = Stream::new(seed, &format!("initial {name}"));
    (0..count).map(|_| stream.normal() * deviation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_weights_and_another_seed_others() {
        let folder = tempfile::tempdir().unwrap();
        let config = serde_json::json!({
            "model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "initializer_range": 0.5, "tie_word_embeddings": true,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let open = |seed| {
            let model = Model::random(folder.path(), seed, &Device::Cpu).unwrap();
            let weight = model.weights.get("model.layers.0.mlp.up_proj.weight").unwrap();
            weight.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let first = open(1);
        let spread = (first.iter().map(|value| value * value).sum::<f32>() / first.len() as f32).sqrt();
        assert!((spread - 0.5).abs() < 0.1, "{spread}");
        assert_eq!(first, open(1));
        assert_ne!(first, open(2));
    }
}
