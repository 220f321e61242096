//! A model: its configuration, weights, tokenizer and chat template, opened from wherever they lie.
//! Leaves running it to `decoder`, and what is learned on it to `adapter`.

use std::path::{Path, PathBuf};

use tunebox_compute::Device;
use tunebox_compute::precision::PrecisionRequest;

use crate::chat::ChatTemplate;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::TensorFacts;
use crate::files;
use crate::source::{Form, Source};
use crate::tokenizer::Tokenizer;
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

    /// Opens a model with another precision: block matrices quantised one by one while they are read, or activations of
    /// another type.
    ///
    /// # Errors
    /// When [`Model::open`] fails, the weights cannot be stored so, or the device does not compute so.
    pub fn open_in(source: &Source, device: &Device, asked: impl Into<PrecisionRequest>) -> Result<Self> {
        let (mut model, text) = Self::shape(source, device)?;
        model.weights = model.weights.kept_in(asked)?;
        // A large vocabulary takes as long as the weights.
        let (weights, text) = rayon::join(|| model.weights.load(), || text.read());
        weights?;
        Ok(model.with(text?))
    }

    /// Opens a model without reading its weights: each is read when it is first asked for. Reads tokenizer and
    /// template.
    ///
    /// # Errors
    /// When [`Model::open`] fails.
    pub fn inspect(source: &Source, device: &Device) -> Result<Self> {
        let (model, text) = Self::shape(source, device)?;
        Ok(model.with(text.read()?))
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

    /// Sets the model's source, and reads tokenizer and chat template from a folder.
    pub(crate) fn with_text(mut self, source: Source, folder: &Path) -> Result<Self> {
        self.source = Some(source);
        Ok(self.with(TextFiles::Folder(folder.to_path_buf()).read()?))
    }

    /// Sets tokenizer and chat template.
    fn with(mut self, (tokenizer, template): Text) -> Self {
        (self.tokenizer, self.template) = (tokenizer, template);
        self
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

    /// Opens a model's configuration and weight files. Returns the model, whose weights are not read yet, and where its
    /// tokenizer and template are.
    fn shape(source: &Source, device: &Device) -> Result<(Self, TextFiles)> {
        let (configuration, weights, text) = match source.form() {
            Form::Folder { path, weights } => {
                let configuration = Self::read_configuration(path)?;
                let weights = Weights::from_folder(path, weights, &configuration, device)?;
                (configuration, weights, TextFiles::Folder(path.clone()))
            }
            Form::Gguf { path } => {
                let mut header = Header::read(path)?;
                let configuration = Configuration::from_gguf(&header.metadata, facts(&header)?)?;
                let metadata = std::mem::take(&mut header.metadata);
                let weights = Weights::from_gguf(path, header, &configuration, device)?;
                (configuration, weights, TextFiles::Gguf(metadata))
            }
        };
        let mut model = Self::from_parts(source.name(), configuration, weights);
        model.source = Some(source.clone());
        Ok((model, text))
    }
}

/// A tokenizer and a chat template, where there are any.
type Text = (Option<Tokenizer>, Option<ChatTemplate>);

/// Where tokenizer and template are kept.
enum TextFiles {
    Folder(PathBuf),
    Gguf(Metadata),
}

impl TextFiles {
    /// Reads tokenizer and chat template; both are `None` if the model has no tokenizer.
    fn read(&self) -> Result<Text> {
        match self {
            Self::Folder(folder) if folder.join("tokenizer.json").is_file() => {
                let tokenizer = Tokenizer::from_folder(folder)?;
                let template = ChatTemplate::from_folder(folder, &tokenizer)?;
                Ok((Some(tokenizer), template))
            }
            Self::Gguf(metadata) if metadata.value("tokenizer.ggml.model").is_some() => {
                let tokenizer = Tokenizer::from_gguf(metadata)?;
                let template = ChatTemplate::from_gguf(metadata, &tokenizer)?;
                Ok((Some(tokenizer), template))
            }
            _ => Ok((None, None)),
        }
    }
}

/// The factors of the rotation frequencies in a GGUF file, for short texts and for long ones.
const SHORT_FACTORS: &str = "rope_factors_short.weight";
const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Collects what a GGUF file tells only by its tensors: vocabulary size, tied head, biases, and rotation factors.
fn facts(header: &Header) -> Result<TensorFacts> {
    let path = header.metadata.path();
    let rows = header.tensors.get("token_embd.weight").and_then(|location| location.shape.first());
    let read = |name: &str| -> Result<Option<Vec<f64>>> {
        let Some(location) = header.tensors.get(name) else { return Ok(None) };
        Ok(Some(location.read_f32()?.into_iter().map(f64::from).collect()))
    };
    Ok(TensorFacts {
        vocabulary: rows.copied().unwrap_or(0),
        tied: !header.tensors.contains_key("output.weight"),
        attention_bias: header.tensors.contains_key("blk.0.attn_q.bias"),
        output_bias: header.tensors.contains_key("blk.0.attn_output.bias"),
        feed_forward_bias: header.tensors.contains_key("blk.0.ffn_down.bias"),
        rope_divisors: read("rope_freqs.weight")?,
        rope_factors: both(path, read(SHORT_FACTORS)?, read(LONG_FACTORS)?)?,
    })
}

/// The short and the long rotation factors, or `None` without either. Errors: only one of the two is there.
fn both(path: &Path, short: Option<Vec<f64>>, long: Option<Vec<f64>>) -> Result<Option<[Vec<f64>; 2]>> {
    let missing = |name: &str| Err(Error::TensorMissing { name: name.into(), place: path.display().to_string() });
    match (short, long) {
        (Some(short), Some(long)) => Ok(Some([short, long])),
        (None, None) => Ok(None),
        (short, _) => missing(if short.is_some() { LONG_FACTORS } else { SHORT_FACTORS }),
    }
}
