//! Reads which kind of classifier the `config.json` of a reward model describes. Every number that becomes a size or an
//! index is bounded here, before anything is allocated for it.

use std::ops::RangeInclusive;
use std::path::Path;

use candle_transformers::models::debertav2;
use serde_json::Value;
use tunebox_foundation::explain::Explanation;

use super::{MAX_DECODER_TOKENS, MAX_ENCODER_TOKENS, deberta, decoder, modern_bert};
use crate::configuration::Configuration;
use crate::error::Result;
use crate::fields::Fields;

/// The ending of the names of sequence classifiers in transformers.
const SUFFIX: &str = "ForSequenceClassification";

/// The widths that an encoder may have.
const WIDTHS: RangeInclusive<usize> = 1..=1 << 16;

/// A kind of classifier and its sizes.
pub(crate) enum Classifier {
    Deberta(Box<debertav2::Config>),
    ModernBert(Box<modern_bert::Settings>),
    Decoder(Box<Configuration>),
}

impl Classifier {
    /// Reads a parsed `config.json`; `file` names it in errors. Errors: another architecture than those of reward
    /// models, another number of labels than one, or a setting that is missing or cannot be run.
    pub(crate) fn read(config: &Value, file: &Path) -> Result<Self> {
        let fields = Fields::new(config, file)?;
        let architectures: Vec<&str> = fields.list("architectures")?.unwrap_or_default();
        let found = architectures.first().copied().unwrap_or("none");
        let Some(family) = found.strip_suffix(SUFFIX) else { return Err(wrong_architecture(found, file)) };
        check_labels(&fields, file)?;
        match family {
            "DebertaV2" => Ok(Self::Deberta(Box::new(deberta::read(&fields)?))),
            "ModernBert" => Ok(Self::ModernBert(Box::new(modern_bert::Settings::read(&fields)?))),
            _ => {
                let configuration = Configuration::from_hugging_face(config, file);
                let configuration = configuration.map_err(|error| match fields.get("model_type") {
                    Ok(Some(kind)) if !Configuration::is_known(kind) => wrong_architecture(found, file),
                    _ => error,
                })?;
                // There is no output head, and with a tied one no weight is asked for.
                Ok(Self::Decoder(Box::new(Configuration { tied: true, ..configuration })))
            }
        }
    }

    /// The most tokens of a text that the model reads.
    pub(super) fn max_tokens(&self) -> usize {
        match self {
            Self::Deberta(config) => config.max_position_embeddings.min(MAX_ENCODER_TOKENS),
            Self::ModernBert(settings) => settings.config.max_position_embeddings.min(MAX_ENCODER_TOKENS),
            Self::Decoder(configuration) => configuration.max_positions.clamp(1, MAX_DECODER_TOKENS),
        }
    }

    /// The names and shapes of the model's weights.
    pub(super) fn weight_shapes(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            Self::Deberta(config) => deberta::weight_shapes(config),
            Self::ModernBert(settings) => modern_bert::weight_shapes(&settings.config),
            Self::Decoder(configuration) => decoder::weight_shapes(configuration),
        }
    }
}

/// Checks that a `config.json` has one label: by `num_labels`, else by the entries of `id2label`; without both, models
/// have two.
fn check_labels(fields: &Fields<'_>, file: &Path) -> Result<()> {
    let listed = fields.object("id2label")?.map(|labels| labels.keys().count());
    let labels: usize = fields.get("num_labels")?.or(listed).unwrap_or(2);
    if labels == 1 {
        return Ok(());
    }
    let why = format!("it sorts texts into {labels} classes, and the one logit of a reward model is the verdict");
    Err(not_a_reward_model(file, why, "give a model that was trained with `num_labels=1`"))
}

/// The error about a `config.json` that names another architecture than those of reward models.
fn wrong_architecture(found: &str, file: &Path) -> crate::Error {
    let why = format!("its architecture is `{found}`");
    let hint = "a reward model is a `DebertaV2ForSequenceClassification`, a `ModernBertForSequenceClassification`, or such \
                a class of a decoder that tunebox runs, such as `Qwen2ForSequenceClassification`";
    not_a_reward_model(file, why, hint)
}

/// The error about the folder of `file` that is no reward model. Has no location, so that a run file can add its own.
fn not_a_reward_model(file: &Path, why: String, hint: &str) -> crate::Error {
    let folder = file.parent().unwrap_or(file).display();
    let what = format!("`{folder}` is not a reward model");
    Explanation::new("model", what).with_why(why).with_hint(hint).into()
}

/// Reads a whole number, such as a size, that must lie in `range`. A missing key has the value `default`; without one,
/// it is an error.
pub(super) fn size(
    fields: &Fields<'_>,
    key: &str,
    default: Option<usize>,
    range: RangeInclusive<usize>,
) -> Result<usize> {
    let found: usize = fields.get_or(key, default)?;
    if range.contains(&found) {
        return Ok(found);
    }
    Err(fields.value_error(key, &format!("a number from {} to {}", range.start(), range.end())))
}

/// Reads a finite number that must be at least `least`. A missing key has the value `default`; without one, it is an
/// error.
pub(super) fn number(fields: &Fields<'_>, key: &str, default: Option<f64>, least: f64) -> Result<f64> {
    let found: f64 = fields.get_or(key, default)?;
    if found.is_finite() && found >= least {
        return Ok(found);
    }
    Err(fields.value_error(key, &format!("a finite number of at least {least}")))
}

/// The sizes that all encoders have.
pub(super) struct Sizes {
    pub(super) vocabulary: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) intermediate: usize,
    pub(super) positions: usize,
}

impl Sizes {
    /// Reads the sizes of an encoder. Errors: one is missing, 0 or larger than that of any real model, or the heads do
    /// not divide the hidden width.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self> {
        let sizes = Self {
            vocabulary: size(fields, "vocab_size", None, 1..=1 << 24)?,
            hidden: size(fields, "hidden_size", None, WIDTHS)?,
            layers: size(fields, "num_hidden_layers", None, 1..=256)?,
            heads: size(fields, "num_attention_heads", None, 1..=128)?,
            intermediate: size(fields, "intermediate_size", None, WIDTHS)?,
            positions: size(fields, "max_position_embeddings", None, 16..=1 << 17)?,
        };
        if !sizes.hidden.is_multiple_of(sizes.heads) {
            return Err(fields.value_error("num_attention_heads", "a number that divides `hidden_size`"));
        }
        Ok(sizes)
    }
}
