//! A model: its configuration, weights, tokenizer and chat template, opened from wherever they lie.
//! Leaves running it to `decoder`, and what is learned on it to `adapter`.

use std::path::Path;

use tunebox_compute::Device;
use tunebox_compute::precision::PrecisionRequest;

use crate::chat::ChatTemplate;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::TensorFacts;
use crate::files;
use crate::source::Source;
use crate::tokenizer::Tokenizer;
use crate::watchdog::Work;
use crate::weights::Weights;
use crate::weights::gguf::{Header, Metadata};

/// Everything that a base model is. Nothing of it changes after it is opened.
#[derive(Debug)]
pub struct Model {
    /// Its sizes and kinds.
    pub configuration: Configuration,
    /// Its weights, by their Hugging Face names.
    pub weights: Weights,
    /// Its tokenizer, if its files have one.
    pub tokenizer: Option<Tokenizer>,
    /// Its chat template, if its files have one.
    pub template: Option<ChatTemplate>,
    /// The model as the person named it.
    pub name: String,
    source: Option<Source>,
}

impl Model {
    /// Opens a model and reads its weights onto a device, in the default precision.
    ///
    /// # Errors
    /// When its family is not known, a file is missing or broken, or weights and configuration do not fit together.
    pub fn open(source: &Source, device: &Device) -> Result<Self> {
        Self::open_in(source, device, PrecisionRequest::default())
    }

    /// Opens a model with another precision: block matrices quantized one by one while they are read, or activations of
    /// another type.
    ///
    /// # Errors
    /// When [`Model::open`] fails, the weights cannot be stored so, or the device does not compute so.
    pub fn open_in(source: &Source, device: &Device, asked: impl Into<PrecisionRequest>) -> Result<Self> {
        let (mut model, metadata) = Self::shape(source, device)?;
        model.weights = model.weights.kept_in(asked)?;
        model.weights.load()?;
        // Not at the same time: the memory of the process is watched while the tokenizer is read.
        (model.tokenizer, model.template) = read_text(source.path(), metadata.as_ref())?;
        Ok(model)
    }

    /// Opens a model without reading its weights: each is read when it is first asked for. Reads tokenizer and
    /// template.
    ///
    /// # Errors
    /// When [`Model::open`] fails.
    pub fn inspect(source: &Source, device: &Device) -> Result<Self> {
        let (mut model, metadata) = Self::shape(source, device)?;
        (model.tokenizer, model.template) = read_text(source.path(), metadata.as_ref())?;
        Ok(model)
    }

    /// A model from its parts, without tokenizer, template and source files.
    #[must_use]
    pub fn from_parts(name: &str, configuration: Configuration, weights: Weights) -> Self {
        Self { configuration, weights, tokenizer: None, template: None, name: name.into(), source: None }
    }

    /// The files that the model was opened from; `None` for a model made from parts.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// The model's folder; `None` for a GGUF file or a model made from parts.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.source.as_ref().filter(|source| !source.is_gguf()).map(Source::path)
    }

    /// The sha256 over the model's weight files, in hexadecimal; `None` for a model made from parts. Reads all files
    /// the first time.
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

    /// The model's chat template.
    ///
    /// # Errors
    /// When the model's files have none.
    pub fn template(&self) -> Result<&ChatTemplate> {
        let why = "it has no chat template: it was made to continue texts, not to answer";
        let hint = "use the instruct version of the model, or data with `prompt` and `completion`";
        self.template.as_ref().ok_or_else(|| Error::not_a_model(&self.name, why, hint))
    }

    /// Sets the model's source, and reads tokenizer and chat template from its folder.
    pub(crate) fn with_folder(mut self, source: Source) -> Result<Self> {
        (self.tokenizer, self.template) = read_text(source.path(), None)?;
        self.source = Some(source);
        Ok(self)
    }

    /// Reads the configuration of a model folder: `config.json`, and the end tokens of `generation_config.json` if
    /// there is one.
    pub(crate) fn read_configuration(folder: &Path) -> Result<Configuration> {
        let path = folder.join("config.json");
        let mut configuration = Configuration::from_hugging_face(&files::read_json(&path)?, &path)?;
        let path = folder.join("generation_config.json");
        if path.is_file() {
            configuration.add_eos(&files::read_json(&path)?, &path)?;
        }
        Ok(configuration)
    }

    /// Opens a model's configuration and weight files. Returns the model, whose weights are not read yet, and the
    /// metadata of a GGUF file.
    fn shape(source: &Source, device: &Device) -> Result<(Self, Option<Metadata>)> {
        let path = source.path();
        let work = Work::on_file("reading the headers of the model's files", path);
        let _mark = work.begin();
        let (configuration, weights, metadata) = if source.is_gguf() {
            let mut header = Header::read(path)?;
            let configuration = Configuration::from_gguf(&header.metadata, facts(&header)?)?;
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

/// Reads tokenizer and chat template from the metadata of a GGUF file, or from a folder if there is none; both are `None`
/// if the model has no tokenizer.
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

/// The factors of the rotation frequencies in a GGUF file, for short texts and for long ones.
const SHORT_FACTORS: &str = "rope_factors_short.weight";
const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Collects what a GGUF file tells only by its tensors: vocabulary size, tied head, biases, and rotation factors.
/// Errors: the rotation has factors for short sequences alone, or for long ones alone.
fn facts(header: &Header) -> Result<TensorFacts> {
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
