//! The tables of a run file: every key, its meaning, default and range.
//!
//! Where a default is not zero it comes from the reference trainers: AdamW as in torch,
//! 2e-4 for adapters and 2e-5 for all weights, clipping at 1, a linear schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunebox_compute::precision::{Base, Compute};

use super::limits::LimitsTable;

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
    /// A JSONL file that is scored now and then and never learned from.
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

/// `[train]`: the loop and the optimiser.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TrainTable {
    /// Weight updates; decides when `epochs` is given as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub steps: Option<u32>,
    /// Passes over the data; 1 unless `steps` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub epochs: Option<u32>,
    /// Examples of a micro-batch.
    #[schemars(range(min = 1, max = 65_536))]
    pub batch: u32,
    /// Micro-batches of one weight update.
    #[schemars(range(min = 1, max = 65_536))]
    pub accumulation: u32,
    /// The peak learning rate; 2e-4 for adapters and 2e-5 for all weights unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 10.0))]
    pub rate: Option<f64>,
    /// How the rate moves over the run: `linear`, `cosine`, `constant` and more.
    pub schedule: String,
    /// Updates over which the rate rises from 0.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub warmup: u32,
    /// Decoupled weight decay of AdamW.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub weight_decay: f64,
    /// The largest gradient norm; 0 switches clipping off.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub clip: f64,
    /// Where every random number of the run starts.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    pub seed: u64,
    /// Updates between checkpoints.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub save_every: u32,
    /// Checkpoints to keep.
    #[schemars(range(min = 1, max = 100_000))]
    pub keep: u32,
    /// Updates between the rows on a terminal; `metrics.jsonl` has them all.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub log_every: u32,
    /// Updates between two looks at the validation data.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub validate_every: u32,
    /// Completions of every validation prompt, for methods that answer prompts: k of pass@k.
    #[schemars(range(min = 1, max = 4096))]
    pub validate_completions: u32,
    /// Keep less for the backward pass and compute it again: less memory, some 25 % slower.
    pub recompute: bool,
    /// Keep the log-probabilities of the reference for rows that come again, in memory and in the run's folder.
    pub cache_reference: bool,
    /// Leave an update out when its gradient is not finite, instead of stopping.
    pub skip_non_finite: bool,
    /// Where to compute.
    pub device: String,
    /// What activations are computed in; sums and what is trained are `f32` either way.
    pub compute: ComputeChoice,
    /// What is trained on the model.
    pub adapter: AdapterTable,
}

impl Default for TrainTable {
    fn default() -> Self {
        Self {
            steps: None,
            epochs: None,
            batch: 4,
            accumulation: 1,
            rate: None,
            schedule: "linear".into(),
            warmup: 0,
            weight_decay: 0.0,
            clip: 1.0,
            seed: 42,
            save_every: 100,
            keep: 3,
            log_every: 10,
            validate_every: 100,
            validate_completions: 4,
            recompute: false,
            cache_reference: true,
            skip_non_finite: false,
            device: "cpu".into(),
            compute: ComputeChoice::Auto,
            adapter: AdapterTable::default(),
        }
    }
}

/// What activations are computed in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeChoice {
    /// `f32` on the CPU, `bf16` elsewhere.
    #[default]
    Auto,
    /// 16 bits, 8 of them exponent, on accelerators alone.
    Bf16,
    /// 32 bits.
    F32,
}

impl From<ComputeChoice> for Compute {
    fn from(choice: ComputeChoice) -> Self {
        match choice {
            ComputeChoice::Auto => Self::Auto,
            ComputeChoice::Bf16 => Self::Bf16,
            ComputeChoice::F32 => Self::F32,
        }
    }
}

/// `[train.adapter]`: what is trained on the model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AdapterTable {
    /// The kind of adapter, or all weights.
    pub kind: KindChoice,
    /// The rank of the low-rank factors.
    #[schemars(range(min = 1, max = 4096))]
    pub rank: u32,
    /// The numerator of the scale; twice the rank unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1_000_000.0))]
    pub alpha: Option<f64>,
    /// The share of inputs that the adapter does not see in a step.
    #[schemars(extend("minimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// `all-linear`, or a list of module names such as `q_proj`.
    pub targets: Targets,
    /// The layers that get one, counted from 0; all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<u32>>,
}

impl Default for AdapterTable {
    fn default() -> Self {
        Self {
            kind: KindChoice::Lora,
            rank: 16,
            alpha: None,
            dropout: 0.0,
            targets: Targets::Word(AllLinear::AllLinear),
            layers: None,
        }
    }
}

/// The kind of adapter, or all weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KindChoice {
    /// Low-rank factors, scaled by alpha ÷ rank.
    #[default]
    Lora,
    /// Low-rank factors, scaled by alpha ÷ √rank.
    Rslora,
    /// Low-rank factors and a magnitude for each output.
    Dora,
    /// No adapter: all weights are trained.
    Full,
}

/// Where adapters go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Targets {
    /// Everywhere.
    Word(AllLinear),
    /// On the modules of these names.
    Names(Vec<String>),
}

/// The one word that names all linear layers but the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AllLinear {
    /// Every linear layer of every block.
    AllLinear,
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
        Self { name: None, folder: "runs".into() }
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
