//! Model families against `candle-transformers`, a second implementation in Rust that shares no code with the decoder:
//! the same safetensors files, the same log-probabilities.
//!
//! Left to the golden files of transformers, because candle 0.11 differs from it there: windows (one token wider, and in
//! every layer of Gemma 2), the scale of Gemma's attention (from the width of a head, not from `query_pre_attn_scalar`),
//! Granite's multipliers (it has none), LongRoPE (multiplies where it should divide), and the rotation scalings YaRN
//! and linear.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_nn::VarBuilder;
use candle_transformers::models::{
    gemma2, gemma3, glm4_new, granite, llama, mistral, mixtral, olmo2, phi3, qwen2, qwen3, qwen3_moe, smol::smollm3,
};
use serde_json::{Value, json};
use tunebox_compute::{DType, Device, Tensor};

use super::{largest_difference, open, policy, score};
use crate::support::tiny_models::{Golden, write_folder};

/// The largest difference allowed in a log-probability of a tiny model; both sides compute in `f32`.
const TOLERANCE: f64 = 1e-4;

/// The largest difference allowed in a log-probability of a real model: hundreds of products of thousands of numbers each.
const REAL_TOLERANCE: f64 = 5e-3;

/// The variable that names a folder of model folders.
const MODELS: &str = "TUNEBOX_MODELS";

/// A model of candle: the logits `[.., vocabulary]` after one more token `[1, 1]` at a position.
type Step = Box<dyn FnMut(&Tensor, usize) -> candle_core::Result<Tensor>>;

/// The model that candle makes of a folder. Errors: candle does not have the family, or cannot read its configuration.
fn candle_model(folder: &Path) -> Result<Step, String> {
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let family = config["model_type"].as_str().unwrap_or_default().to_owned();
    build(&family, config, || weights(folder))
}

/// The tensors of all safetensors files of a folder, as `f32`.
fn weights(folder: &Path) -> VarBuilder<'static> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    let tensors: HashMap<String, Tensor> =
        files.flat_map(|path| candle_core::safetensors::load(path, &Device::Cpu).unwrap()).collect();
    VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu)
}

fn build(family: &str, config: Value, weights: impl FnOnce() -> VarBuilder<'static>) -> Result<Step, String> {
    fn read<T: serde::de::DeserializeOwned>(config: Value) -> Result<T, String> {
        serde_json::from_value(config).map_err(|error| format!("candle cannot read its `config.json`: {error}"))
    }
    macro_rules! model {
        ($config:ty, $new:expr) => {{
            let config = read::<$config>(config)?;
            let mut model = $new(&config, weights()).map_err(|error| error.to_string())?;
            Box::new(move |ids: &Tensor, at: usize| model.forward(ids, at)) as Step
        }};
    }
    Ok(match family {
        "llama" => {
            let config = read::<llama::LlamaConfig>(config)?.into_config(false);
            let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
            let model = llama::Llama::load(weights(), &config).map_err(|error| error.to_string())?;
            Box::new(move |ids, at| model.forward(ids, at, &mut cache))
        }
        "glm4" => model!(glm4_new::Config, glm4_new::ModelForCausalLM::new),
        "granite" => {
            let config = read::<granite::GraniteConfig>(config)?.into_config(false);
            let mut cache = granite::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
            let model = granite::Granite::load(weights(), &config).map_err(|error| error.to_string())?;
            Box::new(move |ids, at| model.forward(ids, at, &mut cache))
        }
        "mistral" => model!(mistral::Config, mistral::Model::new),
        "qwen2" => model!(qwen2::Config, qwen2::ModelForCausalLM::new),
        "qwen3" => model!(qwen3::Config, qwen3::ModelForCausalLM::new),
        "qwen3_moe" => model!(qwen3_moe::Config, qwen3_moe::ModelForCausalLM::new),
        "mixtral" => model!(mixtral::Config, mixtral::Model::new),
        "olmo2" => model!(olmo2::Config, olmo2::Model::new),
        "smollm3" => model!(smollm3::Config, smollm3::ModelForCausalLM::new),
        "phi3" => model!(phi3::Config, phi3::Model::new),
        "gemma2" => model!(gemma2::Config, |config, weights| gemma2::Model::new(false, config, weights)),
        "gemma3_text" => model!(gemma3::Config, |config, weights| gemma3::Model::new(false, config, weights)),
        _ => return Err(format!("candle has no family `{family}`")),
    })
}

/// The log-probability of each token after the first.
fn candle_logprobs(model: &mut Step, ids: &[u32]) -> Vec<f64> {
    let pairs = ids.windows(2).enumerate();
    let logprob = |(at, pair): (usize, &[u32])| {
        let logits = model(&Tensor::new(&[[pair[0]]], &Device::Cpu).unwrap(), at).unwrap();
        let logits = logits.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
        let logprobs = candle_nn::ops::log_softmax(&logits, 0).unwrap();
        logprobs.get(pair[1] as usize).unwrap().to_scalar::<f64>().unwrap()
    };
    pairs.map(logprob).collect()
}

/// `config.json` of a tiny model of each family, with every key that candle requires.
fn configurations() -> Vec<Value> {
    let shared = json!({
        "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 272, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        "eos_token_id": 1, "bos_token_id": 2, "hidden_act": "silu", "rope_theta": 10000.0,
    });
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64});
    let gemma = json!({"hidden_activation": "gelu_pytorch_tanh", "head_dim": 32, "query_pre_attn_scalar": 32,
        "attention_bias": false, "sliding_window": 256});
    let gemma2 = json!({"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0});
    let gemma3 = json!({"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 2,
        "final_logit_softcapping": 20.0});
    let qwen = json!({"sliding_window": 4096, "max_window_layers": 28, "use_sliding_window": false, "rope_theta": 1e6});
    let experts = |normalized: bool| {
        json!({"num_experts_per_tok": 3, "moe_intermediate_size": 40, "norm_topk_prob": normalized, "decoder_sparse_step": 1,
            "tie_word_embeddings": false, "head_dim": 24, "attention_bias": false})
    };
    let families = [
        ("llama", vec![json!({"tie_word_embeddings": false})]),
        ("llama", vec![json!({"tie_word_embeddings": true, "rope_scaling": llama3})]),
        ("mistral", vec![json!({"tie_word_embeddings": false, "head_dim": 32, "sliding_window": null})]),
        ("qwen2", vec![qwen.clone(), json!({"tie_word_embeddings": true})]),
        ("qwen3_moe", vec![qwen.clone(), experts(true), json!({"num_experts": 10})]),
        ("qwen3_moe", vec![qwen.clone(), experts(false), json!({"num_experts": 6})]),
        ("qwen3", vec![qwen, json!({"tie_word_embeddings": false, "head_dim": 32, "attention_bias": false})]),
        (
            "mixtral",
            vec![json!({"tie_word_embeddings": false, "num_local_experts": 6, "num_experts_per_tok": 2,
            "sliding_window": 4096, "use_flash_attn": false})],
        ),
        (
            "glm4",
            vec![json!({"tie_word_embeddings": false, "head_dim": 32, "partial_rotary_factor": 0.5,
            "attention_bias": true})],
        ),
        // Candle has no multipliers.
        ("granite", vec![json!({"tie_word_embeddings": false, "attention_multiplier": 0.25})]),
        ("olmo2", vec![json!({"tie_word_embeddings": false, "attention_bias": false})]),
        ("smollm3", vec![json!({"num_hidden_layers": 5, "no_rope_layer_interval": 4, "tie_word_embeddings": true})]),
        ("phi3", vec![json!({"tie_word_embeddings": false, "num_key_value_heads": 4})]),
        ("phi3", vec![json!({"tie_word_embeddings": true, "partial_rotary_factor": 0.75})]),
        ("gemma2", vec![gemma.clone(), gemma2]),
        ("gemma3_text", vec![gemma, gemma3]),
    ];
    let configuration = |(family, keys): (&str, Vec<Value>)| {
        let mut config = shared.clone();
        config["model_type"] = family.into();
        for (key, value) in keys.iter().flat_map(|keys| keys.as_object().unwrap()) {
            config[key] = value.clone();
        }
        config
    };
    families.into_iter().map(configuration).collect()
}

#[test]
fn every_family_gives_the_log_probabilities_of_candle() {
    for config in configurations() {
        let golden = Golden { config, ..Golden::named("llama3") };
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &golden.config, &golden.weights());
        let wanted = candle_logprobs(&mut candle_model(folder.path()).unwrap(), &golden.ids);
        let gap = largest_difference(&score(&policy(open(folder.path()).unwrap()), &golden.ids), &wanted);
        assert!(gap < TOLERANCE, "log-probabilities differ by {gap:.2e}: {}", golden.config);
    }
}

/// The model folders in the folder that [`MODELS`] names.
fn real_models() -> Vec<PathBuf> {
    let Some(models) = std::env::var_os(MODELS) else {
        panic!("absent `{MODELS}`: it names no folder of model folders")
    };
    let folders = std::fs::read_dir(&models).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("config.json").is_file()).collect()
}

#[test]
#[ignore = "needs TUNEBOX_MODELS"]
fn real_models_give_the_log_probabilities_of_candle() {
    for folder in real_models() {
        let mut reference = candle_model(&folder).unwrap();
        let model = open(&folder).unwrap();
        let text = "The quick brown fox jumps over the lazy dog, and 17 + 25 is 42.";
        let ids = model.tokenizer().unwrap().encode(text, true).unwrap();
        let gap = largest_difference(&score(&policy(model), &ids), &candle_logprobs(&mut reference, &ids));
        assert!(gap < REAL_TOLERANCE, "{}: log-probabilities differ by {gap:.2e}", folder.display());
    }
}
