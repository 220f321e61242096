//! `[train]`: the loop, the optimiser and the adapter.
//!
//! Where a default is not zero it comes from the reference trainers: AdamW as in torch,
//! 2e-4 for adapters and 2e-5 for all weights, clipping at 1, a linear schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tunebox_compute::precision::Compute;

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
