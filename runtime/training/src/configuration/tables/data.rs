//! `[data]`: the training and validation data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tunebox_model::chat::Answers;

/// `[data]`: the training and validation data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DataTable {
    /// Training data, required unless `files` is given: a file (JSON, JSONL, CSV, TSV or Parquet; plain text in `.txt`
    /// or `.md`, one document a file; all but Parquet also with gzip or zstd), or a folder of files in the layout of
    /// Hugging Face data sets. A file or folder on the hub is `hf://datasets/OWNER/NAME[@REVISION][/PATH]`, here and in
    /// the keys below.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Training data of several files or folders, in the place of `path`: each a path, or a table with `path` and
    /// `weight`, how often its records count in an epoch. To mix files by probabilities, as `interleave_datasets` does,
    /// take p × records of all files ÷ records of this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DataFile>,
    /// Split of the files in a folder of training data; `train` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Columns of other names by the field that they are read as, such as `prompt = "question"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map: BTreeMap<String, String>,
    /// Validation data: a file, a folder whose split `validation` is read, or how much of the training data is held
    /// back: a share below 1, or from 1 on a number of records, drawn by `train.seed`; equal records count once. It is
    /// scored every `train.validate-every` updates and never trained on. The score is the validation loss, the mean
    /// loss of a target token (of pairs: of the chosen answer), or for prompts the pass rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ValidationData>")]
    pub validation: Option<ValidationData>,
    /// Maximum length of an example in tokens; longer ones are cut at the end, plain texts split (`long-texts`).
    #[serde(default = "default_max_length")]
    #[schemars(range(min = 2, max = 1_048_576))]
    pub max_length: u32,
    /// What happens to plain text of more than `max-length` tokens.
    #[serde(default, skip_serializing_if = "LongTexts::is_split")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = "split"))]
    pub long_texts: LongTexts,
    /// Pack as many examples into a micro-batch as fit into `batch` × `max-length` tokens.
    #[serde(default)]
    pub packing: bool,
    /// Skip invalid records and report them, instead of stopping at the first.
    #[serde(default)]
    pub skip_bad: bool,
    /// Shuffle the examples every epoch, in an order drawn from `train.seed`.
    #[serde(default = "default_true")]
    pub shuffle: bool,
    /// Answers of a conversation that are trained on.
    #[serde(default)]
    pub answers: Answers,
}

/// What happens to plain text that is longer than an example may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LongTexts {
    /// It is split into consecutive pieces, each an example, so that every token is learned once.
    #[default]
    Split,
    /// It is cut at the end, as other examples are.
    Cut,
}

impl LongTexts {
    /// Whether long texts are split.
    #[must_use]
    pub fn is_split(&self) -> bool {
        *self == Self::Split
    }
}

/// Where the validation data comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ValidationData {
    /// The path of a file or folder.
    Path(String),
    /// How much of the training data is held back: a share below 1, or from 1 on a number of records.
    HeldBack(#[schemars(extend("exclusiveMinimum" = 0.0))] f64),
}

impl ValidationData {
    /// The path as it is written; `None` if training data is held back.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            Self::HeldBack(_) => None,
        }
    }

    /// The path, for changing it; `None` if training data is held back.
    pub(in crate::configuration) fn path_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Path(path) => Some(path),
            Self::HeldBack(_) => None,
        }
    }
}

/// A file or folder of training data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DataFile {
    /// Its path; every record counts once in an epoch.
    Path(String),
    /// Its path and weight.
    Weighted(WeightedFile),
}

/// A file or folder of training data with a weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WeightedFile {
    /// Path of the file or folder.
    pub path: String,
    /// How often every record counts in an epoch; of a fraction, so large a share of the records, drawn by
    /// `train.seed`.
    #[serde(default = "super::default_weight")]
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub weight: f64,
}

impl DataFile {
    /// The path as it is written.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Path(path) | Self::Weighted(WeightedFile { path, .. }) => path,
        }
    }

    /// The path, for changing it.
    pub(in crate::configuration) fn path_mut(&mut self) -> &mut String {
        match self {
            Self::Path(path) | Self::Weighted(WeightedFile { path, .. }) => path,
        }
    }

    /// How often every record counts in an epoch.
    #[must_use]
    pub fn weight(&self) -> f64 {
        match self {
            Self::Path(_) => 1.0,
            Self::Weighted(file) => file.weight,
        }
    }
}

/// The default of `data.max-length`, in tokens.
fn default_max_length() -> u32 {
    1024
}

/// The default of settings that are on unless given.
fn default_true() -> bool {
    true
}
