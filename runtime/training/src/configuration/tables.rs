//! The tables of a run file: every key, its meaning, default and range.

mod train;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunebox_compute::precision::Base;

use super::limits::LimitsTable;
pub use train::{AdapterTable, AllLinear, ComputeChoice, KindChoice, Targets, TrainTable};

use crate::runs::FOLDER;

/// A run file, as it stands in `run.toml`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "tunebox run file")]
pub struct RunFile {
    /// What is trained.
    pub model: ModelTable,
    /// What it learns from.
    pub data: DataTable,
    /// How it learns.
    pub method: MethodTable,
    /// What judges completions, for methods that learn from rewards: one `[[verifier]]` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verifier: Vec<VerifierTable>,
    /// The loop, the optimiser and the adapter.
    #[serde(default)]
    pub train: TrainTable,
    /// What the method may use up.
    #[serde(default)]
    pub limits: LimitsTable,
    /// Where the run goes.
    #[serde(default)]
    pub run: RunTable,
}

/// `[model]`: what is trained.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ModelTable {
    /// A folder in Hugging Face's layout, a `.gguf` file, or a name on the hub.
    pub path: String,
    /// A folder with an adapter in PEFT's layout to continue from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Where the weights come from, if not from the model's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialise: Option<Initialise>,
    /// What the frozen matrices of the model's blocks are kept in; as in its files unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<BasePrecision>,
    /// The revision of a hub name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Where weights come from that are not in the model's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initialise {
    /// Drawn from the seed; the folder holds a configuration and a tokenizer.
    Random,
}

/// What the matrices of a frozen base are kept in, other than in its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BasePrecision {
    /// 4 bits with double quantisation, made while the model is read, for adapters on a base of unquantised weights.
    Nf4,
}

impl BasePrecision {
    /// How weights are kept that are asked for so; as in the model's files where nothing is asked for.
    #[must_use]
    pub fn base(asked: Option<Self>) -> Base {
        match asked {
            None => Base::Stored,
            Some(Self::Nf4) => Base::Nf4,
        }
    }
}

/// `[data]`: what it learns from.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DataTable {
    /// A JSONL file: one record a line.
    pub path: String,
    /// A JSONL file that is scored now and then and never learned from: the negative log-likelihood of a target token, of
    /// pairs that of the better answer, whatever the method's loss is; how often answers to prompts pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// Tokens of the longest example; what is longer loses its end.
    #[serde(default = "max_length")]
    #[schemars(range(min = 2, max = 1_048_576))]
    pub max_length: u32,
    /// Fill batches with as many examples as fit into batch × max-length tokens.
    #[serde(default)]
    pub packing: bool,
    /// Leave lines out that cannot be used, and say which, instead of stopping.
    #[serde(default)]
    pub skip_bad: bool,
    /// A new order every epoch, drawn from the seed.
    #[serde(default = "yes")]
    pub shuffle: bool,
    /// Which answers of a conversation are learned.
    #[serde(default)]
    pub answers: AnswersChoice,
}

/// Which answers of a conversation are learned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnswersChoice {
    /// Every message of the assistant.
    #[default]
    All,
    /// Only the last one.
    Last,
}

/// `[method]`: how it learns. Every further key is a setting of the method.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MethodTable {
    /// A built-in method, a method folder, a `.wasm` file, or a package that was pulled: `NAME@VERSION`, or as it was
    /// pulled, `registry/namespace/name:VERSION`.
    pub r#use: String,
    /// Interfaces that a method only gets by name: `weights` to edit the model, `text` to read and write text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// The method's own settings, checked against its manifest.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// `[[verifier]]`: what judges completions. Every further key is a setting of the verifier.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct VerifierTable {
    /// A built-in verifier, a verifier folder, a `.wasm` file, or a package that was pulled: `NAME@VERSION`, or as it was
    /// pulled, `registry/namespace/name:VERSION`.
    pub r#use: String,
    /// What metrics call it; the verifier's own name unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its part in the reward: what its verdicts are multiplied with.
    #[serde(default = "one")]
    #[schemars(range(min = -1_000_000.0, max = 1_000_000.0))]
    pub weight: f64,
    /// The field of a record that it gets as the reference answer.
    #[serde(default = "answer")]
    pub answer: String,
    /// The verifier's own settings, checked against its manifest.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// An interface that a method only gets by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// Reading and editing the weights.
    Weights,
    /// Turning tokens into text and text into tokens.
    Text,
}

impl Grant {
    /// The interface's name in the contract.
    #[must_use]
    pub fn interface(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Text => "text",
        }
    }
}

/// `[run]`: where the run goes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RunTable {
    /// The name of the run's folder; the method's name and a number unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The folder that holds the runs.
    pub folder: String,
}

impl Default for RunTable {
    fn default() -> Self {
        Self { name: None, folder: FOLDER.into() }
    }
}

fn max_length() -> u32 {
    1024
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn answer() -> String {
    "answer".into()
}
