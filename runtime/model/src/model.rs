//! A base model: its configuration, weights, tokenizer and chat template, read from a folder or a GGUF file, or with
//! random weights from a seed. `decoder` runs it, and `adapter` holds what is trained on it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;
use serde_json::Value;
use tunebox_compute::precision::PrecisionRequest;
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};
use tunebox_foundation::explain::Explanation;

use crate::chat::ChatTemplate;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::{TensorFacts, weight_shapes};
use crate::files;
use crate::source::Source;
use crate::tokenizer::{TURN_ENDS, Tokenizer};
use crate::watchdog::Work;
use crate::weights::Weights;
use crate::weights::gguf::{Header, Metadata};

/// A base model. It does not change after it is opened.
#[derive(Debug)]
pub struct Model {
    /// The sizes and options of its decoder.
    pub configuration: Configuration,
    /// Its weights, by their Hugging Face names.
    pub weights: Weights,
    /// Its tokenizer, if its files have one.
    pub tokenizer: Option<Tokenizer>,
    /// Its chat template, if its files have one or [`set_template`](Self::set_template) gave it one.
    pub template: Option<ChatTemplate>,
    /// Whether the template is not that of the model's files.
    pub has_other_template: bool,
    /// The path or hub name by which the user gave the model.
    pub name: String,
    source: Option<Source>,
    /// What [`Model::residual_scale`] returned first.
    residual_scale: OnceLock<Tensor>,
}

impl Model {
    /// Opens a model, reads its weights onto a device in the default precision, then its tokenizer and chat template,
    /// if its files have them.
    ///
    /// # Errors
    /// When its family is not known, a file is missing or broken, or the weights are not those of its configuration:
    /// one is missing, of another shape or in a format that is not read, or a GGUF file has a tensor of a block that
    /// the model does not use.
    pub fn open(source: &Source, device: &Device) -> Result<Self> {
        Self::open_in(source, device, PrecisionRequest::default())
    }

    /// Opens a model in the precision `asked` and reads all weights onto a device, then tokenizer and chat template.
    /// Quantizes block matrices one by one while they are read, if `asked` says so. Passes compute in the precision's
    /// type of activations.
    ///
    /// # Errors
    /// When [`Model::open`] fails, or a weight cannot be quantized or placed on the device in this precision.
    pub fn open_in(source: &Source, device: &Device, asked: impl Into<PrecisionRequest>) -> Result<Self> {
        let (mut model, metadata) = Self::open_without_weights(source, device)?;
        model.weights = model.weights.with_precision(asked)?;
        model.weights.load()?;
        // Not at the same time: the memory of the process is watched while the tokenizer is read.
        (model.tokenizer, model.template) = read_text(source.path(), metadata.as_ref())?;
        Ok(model)
    }

    /// Opens a model in the default precision without reading its weights: each is read when it is first asked for.
    /// Reads tokenizer and chat template, and checks names and shapes of the weights.
    ///
    /// # Errors
    /// When the headers of the files or the tokenizer make [`Model::open`] fail. A GGUF file with a weight in a format
    /// that is not read opens.
    pub fn inspect(source: &Source, device: &Device) -> Result<Self> {
        let (mut model, metadata) = Self::open_without_weights(source, device)?;
        (model.tokenizer, model.template) = read_text(source.path(), metadata.as_ref())?;
        Ok(model)
    }

    /// A model from its parts, without tokenizer, template and source files.
    #[must_use]
    pub fn from_parts(name: &str, configuration: Configuration, weights: Weights) -> Self {
        let (tokenizer, template, has_other_template) = (None, None, false);
        let (source, residual_scale) = (None, OnceLock::new());
        let name = name.into();
        Self { configuration, weights, tokenizer, template, has_other_template, name, source, residual_scale }
    }

    /// The files that the model was opened from, or that a random model took its shape from; `None` for a model made
    /// from parts.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// The factor on what attention and feed-forward add to the residual stream, once for each feature, `[hidden]`,
    /// `f32`, on the model's device; `None` if it is 1. Copies it there at the first call.
    pub(crate) fn residual_scale(&self) -> Result<Option<Tensor>> {
        let scale = self.configuration.residual_scale;
        if scale == 1.0 {
            return Ok(None);
        }
        if let Some(factors) = self.residual_scale.get() {
            return Ok(Some(factors.clone()));
        }
        let factors = Tensor::full(scale, self.configuration.hidden, &Device::Cpu)?.to_device(self.weights.device())?;
        Ok(Some(self.residual_scale.get_or_init(|| factors).clone()))
    }

    /// The model's folder; `None` for a GGUF file or a model made from parts.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.source.as_ref().filter(|source| !source.is_gguf()).map(Source::path)
    }

    /// The sha256 over the model's weight files, in hexadecimal; `None` for a model made from parts; over `config.json`
    /// for a random model. Reads all files the first time and caches the result.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn digest(&self) -> Result<Option<String>> {
        self.source.as_ref().map(Source::digest).transpose()
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// When the model's files have none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let why = "it has no tokenizer: `tokenizer.json` is missing";
        let hint = "put the `tokenizer.json` that belongs to the model into its folder";
        self.tokenizer.as_ref().ok_or_else(|| Error::not_a_model(&self.name, why, hint))
    }

    /// The tokens that end a completion, of the configuration and of the tokenizer, in ascending order; none if neither
    /// names one.
    #[must_use]
    pub fn end_tokens(&self) -> Vec<u32> {
        let of_tokenizer = self.tokenizer.iter().flat_map(|tokenizer| tokenizer.eos());
        let mut tokens: Vec<u32> = self.configuration.eos.iter().chain(of_tokenizer).copied().collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// The model's chat template.
    ///
    /// # Errors
    /// When the model's files have none.
    pub fn template(&self) -> Result<&ChatTemplate> {
        self.template.as_ref().ok_or_else(|| {
            Explanation::new("model", format!("`{}` has no chat template", self.name))
                .with_why("it was made to continue texts, not to answer")
                .with_hint("use the instruct version of the model; `tunebox generate` continues a text")
                .into()
        })
    }

    /// Gives the model the chat template with this source, in place of that of its files. What the model then writes
    /// (an adapter, a merged model, an export) holds it. Tokens by which the template ends a turn also end a
    /// completion.
    ///
    /// # Errors
    /// A model without a tokenizer, a template that cannot be compiled, and one that ends a turn by the spelling of a
    /// token that the model does not have.
    pub fn set_template(&mut self, source: &str) -> Result<()> {
        let tokenizer = self.tokenizer()?;
        let template = ChatTemplate::parse(source, tokenizer)?;
        let ends: Vec<&str> = TURN_ENDS.into_iter().filter(|end| source.contains(end)).collect();
        let found: Vec<u32> = ends.iter().filter_map(|end| tokenizer.id(end)).collect();
        if let (Some(end), true) = (ends.first(), found.is_empty()) {
            let what = format!("the chat template ends a turn with `{end}`, which is no token of `{}`", self.name);
            let hint = "take a template whose tokens the model has, or an instruct model";
            return Err(Explanation::new("model", what).with_why("no answer would end").with_hint(hint).into());
        }
        let known = &mut self.configuration.eos;
        found.into_iter().for_each(|id| {
            if !known.contains(&id) {
                known.push(id)
            }
        });
        (self.template, self.has_other_template) = (Some(template), true);
        Ok(())
    }

    /// Sets the model's source, which is a folder, and reads tokenizer and chat template from there, if it has a
    /// `tokenizer.json`; else removes both.
    pub(crate) fn with_folder(mut self, source: Source) -> Result<Self> {
        (self.tokenizer, self.template) = read_text(source.path(), None)?;
        self.source = Some(source);
        Ok(self)
    }

    /// Reads the configuration of a model folder: `config.json`, and the end tokens of `generation_config.json` if
    /// there is one. Errors: a file cannot be read or is not JSON, the family is not known, or a setting is missing or
    /// has a value that cannot be run.
    pub(crate) fn read_configuration(folder: &Path) -> Result<Configuration> {
        let path = folder.join("config.json");
        let mut configuration = Configuration::from_hugging_face(&files::read_json(&path)?, &path)?;
        let path = folder.join("generation_config.json");
        if path.is_file() {
            configuration.add_eos(&files::read_json(&path)?, &path)?;
        }
        Ok(configuration)
    }

    /// Opens a model's configuration and weight files, as work that the watchdog limits. Returns the model, whose
    /// weights are not read yet and which has no tokenizer and template yet, and the file's metadata if the model is a
    /// GGUF file, else `None`.
    fn open_without_weights(source: &Source, device: &Device) -> Result<(Self, Option<Metadata>)> {
        let path = source.path();
        let work = Work::on_file("reading the headers of the model's files", path);
        let _mark = work.begin();
        let (configuration, weights, metadata) = if source.is_gguf() {
            let mut header = Header::read(path)?;
            let configuration = Configuration::from_gguf(&header.metadata, tensor_facts(&header)?)?;
            let metadata = std::mem::take(&mut header.metadata);
            let weights = Weights::from_gguf(path, header, &configuration, device)?;
            (configuration, weights, Some(metadata))
        } else {
            let configuration = Self::read_configuration(path)?;
            let weights = Weights::from_folder(path, source.weight_files(), &configuration, device)?;
            (configuration, weights, None)
        };
        let mut model = Self::from_parts(source.name(), configuration, weights);
        model.source = Some(source.clone());
        Ok((model, metadata))
    }
}

/// A tokenizer and a chat template, where there are any.
type Text = (Option<Tokenizer>, Option<ChatTemplate>);

/// Reads tokenizer and chat template from the metadata of a GGUF file, or from `folder` if `metadata` is `None`. Both
/// are `None`, without an error, if the metadata has no `tokenizer.ggml.model` or the folder no `tokenizer.json`.
fn read_text(folder: &Path, metadata: Option<&Metadata>) -> Result<Text> {
    let (tokenizer, template) = match metadata {
        Some(metadata) if metadata.value("tokenizer.ggml.model").is_some() => {
            let tokenizer = Tokenizer::from_gguf(metadata)?;
            let template = ChatTemplate::from_gguf(metadata, &tokenizer)?;
            (tokenizer, template)
        }
        None if folder.join("tokenizer.json").is_file() => {
            let tokenizer = Tokenizer::from_folder(folder)?;
            let template = ChatTemplate::from_folder(folder, &tokenizer)?;
            (tokenizer, template)
        }
        _ => return Ok((None, None)),
    };
    Ok((Some(tokenizer), template))
}

/// The GGUF tensor of LongRoPE's factors for short sequences.
const SHORT_FACTORS: &str = "rope_factors_short.weight";
/// The GGUF tensor of LongRoPE's factors for long sequences.
const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Collects what a GGUF file states only through its tensors: the vocabulary size (rows of `token_embd.weight`, 0
/// without it), a tied head (no `output.weight`), biases (`attn_q.bias`, `attn_output.bias` and `ffn_down.bias` of
/// block 0 stand for all), the rotation divisors of `rope_freqs.weight`, and LongRoPE's factors. Errors: the file has
/// the rotation factors for short sequences without those for long ones, or the reverse.
fn tensor_facts(header: &Header) -> Result<TensorFacts> {
    let rows = header.tensors.get("token_embd.weight").and_then(|location| location.shape.first());
    let read = |name: &str| -> Result<Option<Vec<f64>>> {
        let Some(location) = header.tensors.get(name) else { return Ok(None) };
        Ok(Some(location.read_f32()?.into_iter().map(f64::from).collect()))
    };
    let rope_factors = match (read(SHORT_FACTORS)?, read(LONG_FACTORS)?) {
        (Some(short), Some(long)) => Some([short, long]),
        (None, None) => None,
        (short, _) => {
            let name = if short.is_some() { LONG_FACTORS } else { SHORT_FACTORS };
            return Err(Error::missing(format!("tensor `{name}`"), header.metadata.path()));
        }
    };
    Ok(TensorFacts {
        vocabulary: rows.copied().unwrap_or(0),
        tied: !header.tensors.contains_key("output.weight"),
        attention_bias: header.tensors.contains_key("blk.0.attn_q.bias"),
        output_bias: header.tensors.contains_key("blk.0.attn_output.bias"),
        feed_forward_bias: header.tensors.contains_key("blk.0.ffn_down.bias"),
        rope_divisors: read("rope_freqs.weight")?,
        rope_factors,
    })
}

/// The standard deviation of random matrices if `config.json` has no `initializer_range`.
const RANGE: f64 = 0.02;

impl Model {
    /// A model with the configuration, tokenizer and chat template of a folder and random `f32` weights: matrices
    /// normal with the deviation `initializer_range` of `config.json`, or 0.02 without it, norms that only normalize,
    /// biases 0. Each matrix draws from a random stream named after it, so equal seeds give equal weights on every
    /// machine. Does not look at weight files.
    ///
    /// # Errors
    /// When the folder has no `config.json`, its family is not known, a setting is missing or cannot be run, or a file
    /// of the tokenizer or template is broken.
    pub fn random(folder: &Path, seed: u64, device: &Device) -> Result<Self> {
        let source = Source::without_weights(folder)?;
        let configuration = Model::read_configuration(folder)?;
        let config = files::read_json(&folder.join("config.json"))?;
        let deviation = config.get("initializer_range").and_then(Value::as_f64).unwrap_or(RANGE) as f32;
        let tensors: Result<BTreeMap<String, Tensor>> = weight_shapes(&configuration)
            .into_par_iter()
            .map(|(name, shape)| {
                let values = initial_values(&name, &shape, deviation, seed, &configuration);
                Ok((name, Tensor::from_vec(values, shape, &Device::Cpu)?))
            })
            .collect();
        let weights = Weights::from_tensors(tensors?, &configuration, device)?;
        Self::from_parts(source.name(), configuration, weights).with_folder(source)
    }
}

/// Computes the initial values of a weight in row-major order: 0 for a name that ends in `.bias`; for other vectors,
/// the weights of norms, 1, or 0 if the norm's factor is 1 + weight; for matrices, normal values with this deviation,
/// from a random stream named after the weight.
fn initial_values(name: &str, shape: &[usize], deviation: f32, seed: u64, configuration: &Configuration) -> Vec<f32> {
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
