//! The tiny models of `golden/families.py`, made again: the same weights from the same formula, as files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value as Stored};
use candle_core::quantized::{GgmlDType, QTensor};
use serde_json::Value;
use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::configuration::{Configuration, RopeScaling, RopeSetting};
use tunebox_model::families::weight_shapes;

use super::noise::{noise, weight};

/// One file of `golden/families`.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) config: Value,
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<f64>,
    pub(crate) logprobs_f64: Vec<f64>,
    pub(crate) prompt: usize,
    pub(crate) greedy: Vec<u32>,
    /// The adapter whose gradients the file holds, if it holds any.
    pub(crate) adapter: Option<GoldenAdapter>,
}

/// A low-rank pair on every linear map of the blocks, and what PEFT's gradients are.
pub(crate) struct GoldenAdapter {
    pub(crate) rank: usize,
    pub(crate) alpha: f64,
    /// By PEFT's name of each tensor: the length of its gradient, and the product with noise.
    pub(crate) gradients: BTreeMap<String, [f64; 2]>,
}

impl GoldenAdapter {
    fn read(value: &Value) -> Option<Self> {
        let pair = |pair: &Value| [pair[0].as_f64().unwrap(), pair[1].as_f64().unwrap()];
        let gradients = value["gradients"].as_object()?.iter().map(|(name, one)| (name.clone(), pair(one))).collect();
        let rank = value["rank"].as_u64().unwrap() as usize;
        Some(Self { rank, alpha: value["alpha"].as_f64().unwrap(), gradients })
    }

    /// Writes the adapter as PEFT does, for the shapes that a fresh one has.
    pub(crate) fn write_folder(&self, folder: &Path, fresh: &BTreeMap<String, Vec<usize>>) {
        let names: BTreeSet<&str> = fresh.keys().map(|name| name.rsplit('.').nth(2).unwrap()).collect();
        let settings = serde_json::json!({"peft_type": "LORA", "r": self.rank, "lora_alpha": self.alpha,
            "target_modules": names, "task_type": "CAUSAL_LM", "bias": "none"});
        let values: BTreeMap<_, _> = fresh.iter().map(|(name, shape)| (name, weight(name, shape, false))).collect();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("adapter_config.json"), settings.to_string()).unwrap();
        safetensors::serialize_to_file(values, None, &folder.join("adapter_model.safetensors")).unwrap();
    }
}

/// The noise that a gradient of this name is multiplied by.
pub(crate) fn along(name: &str, count: usize) -> Vec<f32> {
    noise(&format!("along {name}"), count)
}

impl Golden {
    /// All of them, by name.
    pub(crate) fn all() -> Vec<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/families");
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), 19, "a golden file is missing");
        files.iter().map(|path| Self::read(path)).collect()
    }

    /// One of them.
    pub(crate) fn named(name: &str) -> Self {
        Self::all().into_iter().find(|golden| golden.name == name).unwrap()
    }

    fn read(path: &Path) -> Self {
        let value: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let ids = |key: &str| value[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let numbers = |key: &str| value[key].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect();
        Self {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            config: value["config"].clone(),
            ids: ids("ids"),
            logprobs: numbers("logprobs"),
            logprobs_f64: numbers("logprobs_f64"),
            prompt: value["prompt"].as_u64().unwrap() as usize,
            greedy: ids("greedy"),
            adapter: GoldenAdapter::read(&value),
        }
    }

    pub(crate) fn configuration(&self) -> Configuration {
        Configuration::from_hugging_face(&self.config, Path::new("config.json")).unwrap()
    }

    /// The weights by their Hugging Face names, in `f32`.
    pub(crate) fn weights(&self) -> BTreeMap<String, Tensor> {
        let configuration = self.configuration();
        let named = weight_shapes(&configuration).into_iter();
        named.map(|(name, shape)| (name.clone(), weight(&name, &shape, configuration.unit_offset_norm))).collect()
    }
}

/// Writes a folder with `config.json` and one safetensors file.
pub(crate) fn write_folder(folder: &Path, config: &Value, weights: &BTreeMap<String, Tensor>) {
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    safetensors::serialize_to_file(weights.iter(), None, &folder.join("model.safetensors")).unwrap();
}

/// Writes a folder with `config.json`, two safetensors files and their index.
pub(crate) fn write_shards(folder: &Path, config: &Value, weights: &BTreeMap<String, Tensor>) {
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut map = serde_json::Map::new();
    for shard in 0..2 {
        let file = format!("model-0000{}-of-00002.safetensors", shard + 1);
        let part: BTreeMap<_, _> =
            weights.iter().enumerate().filter(|(at, _)| at % 2 == shard).map(|(_, one)| one).collect();
        safetensors::serialize_to_file(part.clone(), None, &folder.join(&file)).unwrap();
        map.extend(part.keys().map(|name| ((*name).clone(), file.clone().into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// Writes a model as llama.cpp's converter does, in `f32`: other names, Llama's rotation pairs side by side, Gemma's
/// norms with the 1 added, Llama 3's scaling as divisors.
pub(crate) fn write_gguf(path: &Path, golden: &Golden) {
    let configuration = golden.configuration();
    let architecture = match configuration.family.as_str() {
        "gemma3_text" => "gemma3",
        "mistral" | "mixtral" => "llama",
        "qwen3_moe" => "qwen3moe",
        "olmo3" => "olmo2",
        family => family,
    };
    let pairs = matches!(architecture, "llama" | "smollm3" | "granite");
    let mut tensors: Vec<(String, QTensor)> = Vec::new();
    for (name, tensor) in with_stacked_experts(golden.weights()) {
        let tensor = match name.as_str() {
            name if pairs && name.contains(".q_proj.") => side_by_side(&tensor, configuration.heads),
            name if pairs && name.contains(".k_proj.") => side_by_side(&tensor, configuration.kv_heads),
            name if architecture.starts_with("gemma") && name.ends_with("norm.weight") => (tensor + 1.0).unwrap(),
            _ => tensor,
        };
        tensors.push((gguf_name(&name, architecture), QTensor::quantize(&tensor, GgmlDType::F32).unwrap()));
    }
    if let RopeScaling::Llama3 { .. } = configuration.ropes[0].scaling {
        let plain = RopeSetting::plain(configuration.ropes[0].theta).frequencies(configuration.head_dim);
        let scaled = configuration.ropes[0].frequencies(configuration.head_dim);
        let divisors: Vec<f32> = plain.iter().zip(&scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect();
        let divisors = Tensor::new(divisors, &Device::Cpu).unwrap();
        tensors.push(("rope_freqs.weight".into(), QTensor::quantize(&divisors, GgmlDType::F32).unwrap()));
    }
    if let RopeScaling::Long { short_factor, long_factor, .. } = &configuration.ropes[0].scaling {
        for (name, factors) in [("short", short_factor), ("long", long_factor)] {
            let factors = Tensor::new(factors.as_slice(), &Device::Cpu).unwrap().to_dtype(DType::F32).unwrap();
            let factors = QTensor::quantize(&factors, GgmlDType::F32).unwrap();
            tensors.push((format!("rope_factors_{name}.weight"), factors));
        }
    }
    let metadata = metadata(&configuration, architecture);
    let metadata: Vec<(&str, &Stored)> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut std::fs::File::create(path).unwrap(), &metadata, &tensors).unwrap();
}

/// The weights with the matrices of all experts of a block in one tensor: `model.layers.0.mlp.gate_proj_exps.weight`,
/// or for Mixtral `model.layers.0.block_sparse_moe.w1_exps.weight`.
fn with_stacked_experts(weights: BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let mut stacks: BTreeMap<String, BTreeMap<usize, Tensor>> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (name, tensor) in weights {
        let Some((block, rest)) = name.split_once("experts.") else {
            all.insert(name, tensor);
            continue;
        };
        let (expert, map) = rest.split_once('.').unwrap();
        let map = map.trim_end_matches(".weight");
        stacks.entry(format!("{block}{map}_exps.weight")).or_default().insert(expert.parse().unwrap(), tensor);
    }
    for (name, experts) in stacks {
        all.insert(name, Tensor::stack(&experts.into_values().collect::<Vec<_>>(), 0).unwrap());
    }
    all
}

fn size(size: usize) -> Stored {
    Stored::U32(size as u32)
}

fn number(number: f64) -> Stored {
    Stored::F32(number as f32)
}

fn metadata(configuration: &Configuration, architecture: &str) -> Vec<(String, Stored)> {
    let mut list = vec![
        ("embedding_length", size(configuration.hidden)),
        ("block_count", size(configuration.layers)),
        ("feed_forward_length", size(configuration.intermediate)),
        ("attention.head_count", size(configuration.heads)),
        ("attention.head_count_kv", size(configuration.kv_heads)),
        ("attention.key_length", size(configuration.head_dim)),
        ("attention.value_length", size(configuration.head_dim)),
        ("attention.layer_norm_rms_epsilon", number(configuration.norm_epsilon)),
        ("context_length", size(configuration.max_positions)),
        ("rope.dimension_count", size(configuration.rotated)),
        ("rope.freq_base", number(configuration.ropes[0].theta)),
    ];
    if let Some(experts) = configuration.experts {
        list.push(("expert_count", size(experts.count)));
        list.push(("expert_used_count", size(experts.active)));
        list.push(("expert_feed_forward_length", size(experts.intermediate)));
    }
    list.extend(attention(configuration, architecture));
    list.extend(rotation(configuration));
    let mut list: Vec<_> = list.into_iter().map(|(key, value)| (format!("{architecture}.{key}"), value)).collect();
    list.push(("general.architecture".into(), Stored::String(architecture.into())));
    list
}

/// Windows, scales and caps.
fn attention(configuration: &Configuration, architecture: &str) -> Vec<(&'static str, Stored)> {
    let mut list = Vec::new();
    if let Some(window) = configuration.layer_kinds.iter().find_map(|kind| kind.window) {
        list.push(("attention.sliding_window", size(window)));
    }
    if architecture == "gemma3" {
        list.push(("attention.sliding_window_pattern", size(2)));
    }
    // The converter writes no scale: readers know Gemma's by its sizes. Those of these models do not tell it.
    if architecture.starts_with("gemma") {
        list.push(("attention.scale", number(configuration.attention_scale.into())));
    }
    if architecture == "granite" {
        list.push(("embedding_scale", number(configuration.embedding_scale.into())));
        list.push(("attention.scale", number(configuration.attention_scale.into())));
        list.push(("residual_scale", number(configuration.residual_scale.into())));
        list.push(("logit_scale", number(configuration.logit_divisor.into())));
    }
    if let Some(cap) = configuration.attention_soft_cap {
        list.push(("attn_logit_softcapping", number(cap.into())));
    }
    if let Some(cap) = configuration.logit_soft_cap {
        list.push(("final_logit_softcapping", number(cap.into())));
    }
    list
}

/// How the first rotation is stretched.
fn rotation(configuration: &Configuration) -> Vec<(&'static str, Stored)> {
    match configuration.ropes[0].scaling {
        RopeScaling::Linear { factor } => {
            vec![("rope.scaling.type", Stored::String("linear".into())), ("rope.scaling.factor", number(factor))]
        }
        RopeScaling::Yarn { factor, original, beta_fast, .. } => vec![
            ("rope.scaling.yarn_beta_fast", number(beta_fast)),
            ("rope.scaling.type", Stored::String("yarn".into())),
            ("rope.scaling.factor", number(factor)),
            ("rope.scaling.original_context_length", size(original)),
        ],
        RopeScaling::Long { original, attention_factor, .. } => vec![
            ("rope.scaling.original_context_length", size(original)),
            ("rope.scaling.attn_factor", number(attention_factor)),
        ],
        _ => Vec::new(),
    }
}

/// Row `p·d/2 + i` of a head becomes row `2i + p`.
fn side_by_side(tensor: &Tensor, heads: usize) -> Tensor {
    let rows = tensor.dim(0).unwrap();
    let half = rows / heads / 2;
    let order: Vec<u32> = (0..rows)
        .map(|row| {
            let (head, within) = (row / (2 * half), row % (2 * half));
            (head * 2 * half + within % 2 * half + within / 2) as u32
        })
        .collect();
    tensor.index_select(&Tensor::new(order, &Device::Cpu).unwrap(), 0).unwrap()
}

fn gguf_name(name: &str, architecture: &str) -> String {
    let after_attention =
        if architecture.starts_with("gemma") || architecture == "olmo2" { "post_attention_norm" } else { "ffn_norm" };
    let pairs = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("block_sparse_moe.w1_exps", "ffn_gate_exps"),
        ("block_sparse_moe.w3_exps", "ffn_up_exps"),
        ("block_sparse_moe.w2_exps", "ffn_down_exps"),
        ("block_sparse_moe.gate.", "ffn_gate_inp."),
        ("mlp.gate_proj_exps", "ffn_gate_exps"),
        ("mlp.up_proj_exps", "ffn_up_exps"),
        ("mlp.down_proj_exps", "ffn_down_exps"),
        ("mlp.gate.", "ffn_gate_inp."),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", after_attention),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_self_attn_layernorm", "post_attention_norm"),
        ("post_mlp_layernorm", "post_ffw_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
    ];
    pairs.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// The same weights rounded to another type.
pub(crate) fn rounded(weights: &BTreeMap<String, Tensor>, dtype: DType) -> BTreeMap<String, Tensor> {
    weights.iter().map(|(name, tensor)| (name.clone(), tensor.to_dtype(dtype).unwrap())).collect()
}
