//! Reward models: sequence classifiers with one label, whose logit says how good a completion is.
//!
//! A classifier is an encoder (DeBERTa-v2, ModernBERT) that `candle-transformers` computes on the CPU, or a decoder of
//! one of our families with a row of weights in the place of its output head. Texts are scored one at a time and
//! without padding, so that a score does not depend on other texts.

mod configuration;
mod deberta;
mod decoder;
mod modern_bert;
mod tensors;
mod text;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use tunebox_compute::Device;
use tunebox_compute::precision::Compute;
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::panics::catch_panic;
use tunebox_foundation::paths;

use crate::error::{Error, Result};
use crate::files;
use crate::hub::{Hub, Name};
use crate::source::{COMPANIONS, Source, digest};
use crate::watchdog::Work;
use configuration::Classifier;
use deberta::Deberta;
use decoder::Decoder;
use modern_bert::ModernBert;
use text::TextEncoder;

/// The most tokens of a text that an encoder reads, whatever its configuration says: its attention holds a number for
/// each pair of them.
const MAX_ENCODER_TOKENS: usize = 2048;

/// The most tokens of a text that a decoder reads.
const MAX_DECODER_TOKENS: usize = 1 << 15;

/// A sequence classifier with one label, on its device. It does not change after it is opened.
pub struct RewardModel {
    text: TextEncoder,
    network: Network,
}

/// What computes the logit.
enum Network {
    Deberta(Box<Deberta>),
    ModernBert(Box<ModernBert>),
    Decoder(Box<Decoder>),
}

impl RewardModel {
    /// Opens a reward model: reads its weights, its tokenizer and its chat template, if it has one. An encoder is put
    /// on the CPU in `f32`; a decoder on `device`, where it computes in the number format `compute`.
    ///
    /// # Errors
    /// When it is no sequence classifier of a known kind with one label, a setting has a value that cannot be run, a
    /// file is missing or broken, or a weight is missing, of another shape or not finite.
    pub fn open(source: &Source, device: &Device, compute: Compute) -> Result<Self> {
        let folder = source.path();
        let classifier = read_classifier(folder)?;
        let text = TextEncoder::open(folder, classifier.max_tokens())?;
        let network = match classifier {
            Classifier::Deberta(config) => Network::Deberta(Box::new(Deberta::open(*config, source)?)),
            Classifier::ModernBert(config) => Network::ModernBert(Box::new(ModernBert::open(*config, source)?)),
            Classifier::Decoder(configuration) => {
                Network::Decoder(Box::new(Decoder::open(*configuration, source, device, compute)?))
            }
        };
        Ok(Self { text, network })
    }

    /// Makes the chat template's `strftime_now` return a fixed time, in seconds since 1970 UTC.
    #[must_use]
    pub fn with_clock(self, seconds: i64) -> Self {
        Self { text: self.text.with_clock(seconds), ..self }
    }

    /// Computes the logit of a completion. The text is the conversation of both, if the model has a chat template, else
    /// the pair of both texts; it is cut at its end to the tokens that the model reads. The result may be NaN or
    /// infinite.
    ///
    /// # Errors
    /// When a text cannot be encoded, a token is not in the model's vocabulary, candle panics, or, for a decoder,
    /// `deadline` has passed. An encoder ignores `deadline`.
    pub fn score(&self, prompt: &str, completion: &str, deadline: Option<Instant>) -> Result<f32> {
        let tokens = self.text.encode(prompt, completion)?;
        let logit = || match &self.network {
            Network::Deberta(deberta) => deberta.logit(&tokens),
            Network::ModernBert(modern_bert) => modern_bert.logit(&tokens),
            Network::Decoder(decoder) => decoder.logit(tokens.ids.clone(), deadline),
        };
        catch_panic(logit).map_err(|panic| Error::Argument(format!("the reward model fails: {panic}")))?
    }

    /// Estimates the bytes that the model takes on `device` for scoring texts of at most `tokens` tokens: its weights
    /// and the temporary tensors of a pass. 0 for an encoder on another device than the CPU, since it is not there.
    #[must_use]
    pub fn device_bytes(&self, device: &Device, tokens: usize) -> u64 {
        let tokens = tokens.min(self.text.max_tokens) as u64;
        match &self.network {
            Network::Decoder(decoder) => decoder.bytes(tokens),
            _ if !device.is_cpu() => 0,
            Network::Deberta(deberta) => deberta.bytes(tokens),
            Network::ModernBert(modern_bert) => modern_bert.bytes(tokens),
        }
    }
}

/// Finds a reward model by its folder, or its name on the hub (`owner/model`, maybe with `@revision`), from which
/// missing files are downloaded. Checks its `config.json`, and reads no weights.
///
/// # Errors
/// When `name` is neither a folder with `config.json`, `tokenizer.json` and safetensors weights nor a name on the hub,
/// its `config.json` is not that of a reward model, or [`Hub::fetch`] fails.
pub fn find_reward_model(name: &str, hub: &Hub) -> Result<Source> {
    const PARTS: &str =
        "a reward model is a folder with `config.json`, `tokenizer.json` and safetensors weights, or a hub name";
    let refuse = |what: String, why: &str, hint: String| {
        Err(Explanation::new("model", what).with_why(why).with_hint(hint).into())
    };
    let path = match (Path::new(name), Name::parse(name, None)) {
        (path, _) if path.exists() => path.to_path_buf(),
        (_, Some(wanted)) => hub.fetch_checked(&wanted, check_configuration)?,
        (path, None) => {
            let hint = paths::did_you_mean(path).unwrap_or_else(|| PARTS.into());
            return refuse(format!("there is no reward model `{name}`"), "nothing is at this path", hint);
        }
    };
    let missing = ["config.json", "tokenizer.json"].into_iter().find(|file| !path.join(file).is_file());
    if let Some(file) = missing {
        return refuse(format!("`{name}` is not a reward model"), &format!("it has no `{file}`"), PARTS.into());
    }
    check_configuration(&path)?;
    Source::of_folder(name, &path)
}

/// The sha256, in hexadecimal, over everything that a reward model's scores depend on: `config.json`, the files of its
/// tokenizer and chat template that exist, and its weights.
///
/// # Errors
/// When a file cannot be read.
pub fn reward_digest(source: &Source) -> Result<String> {
    let beside = ["config.json"].into_iter().chain(COMPANIONS).map(|name| source.path().join(name));
    let files: Vec<PathBuf> =
        beside.filter(|file| file.is_file()).chain(source.weight_files().iter().cloned()).collect();
    digest(&files)
}

/// The names and shapes of the weights that a reward model with this `config.json` has; `file` names it in errors.
///
/// # Errors
/// When it is not the configuration of a reward model, or a setting has a value that cannot be run.
pub fn reward_weight_shapes(config: &Value, file: &Path) -> Result<Vec<(String, Vec<usize>)>> {
    Ok(Classifier::read(config, file)?.weight_shapes())
}

/// Fails if the `config.json` in a folder is not that of a reward model that can be run. Reads no weights.
pub(crate) fn check_configuration(folder: &Path) -> Result<()> {
    read_classifier(folder).map(drop)
}

/// Reads the classifier's kind and sizes from the `config.json` in a folder.
fn read_classifier(folder: &Path) -> Result<Classifier> {
    let path = folder.join("config.json");
    let work = Work::on_file("reading the configuration of the reward model", &path);
    let _mark = work.begin();
    Classifier::read(&files::read_json(&path)?, &path)
}
