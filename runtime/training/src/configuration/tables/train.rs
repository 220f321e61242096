//! `[train]`: the training loop, the optimizer and the adapter.
//!
//! Defaults other than zero are those of the reference trainers: AdamW, SGD and Muon as in PyTorch, Lion as of its
//! authors, for AdamW the rates of `Shape::usual_rate`, clipping at 1, a linear schedule.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tunebox_compute::optimizer::OptimizerKind;
use tunebox_compute::precision::Compute;
use tunebox_compute::schedule::Warmup;
use tunebox_model::adapter::{AdapterKind, Initialization, Targets};

/// `[train]`: the training loop, the optimizer and the adapter.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TrainTable {
    /// Number of weight updates; overrides `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub steps: Option<u32>,
    /// Number of passes over the data; 1 unless `steps` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub epochs: Option<u32>,
    /// Examples in a micro-batch.
    #[schemars(range(min = 1, max = 65_536))]
    pub batch: u32,
    /// Micro-batches per weight update.
    #[schemars(range(min = 1, max = 65_536))]
    pub accumulation: u32,
    /// Optimizer, which updates the trained numbers.
    pub optimizer: OptimizerKind,
    /// Peak learning rate. AdamW's default on answers is 2e-4 (adapter) or 2e-5 (all weights), on preferences, labels
    /// and rewards 1e-5 or 1e-6; other optimizers have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 10.0))]
    pub rate: Option<f64>,
    /// Learning-rate schedule: `linear`, `cosine`, `cosine-with-restarts:COUNT`, `linear-with-min-rate:SHARE`,
    /// `cosine-with-min-rate:SHARE` and `cosine-warmup-with-min-rate:SHARE` (of the peak; 0.1 unless given),
    /// `polynomial:POWER`, `inverse-sqrt`, `constant`, `constant-with-warmup`, or `warmup-stable-decay:SHARE` (of all
    /// updates, in which the rate falls; 0.1 unless given).
    pub schedule: String,
    /// Lowest learning rate of a schedule with `min-rate` in its name, in the place of its share of the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 10.0))]
    pub min_rate: Option<f64>,
    /// Updates over which the learning rate rises from 0. A number below 1 is a share of the updates that the run is
    /// first planned for, rounded up.
    pub warmup: Warmup,
    /// Weight decay, times the learning rate; for `sgd` a part of the gradient instead.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub weight_decay: f64,
    /// Share of the first moment that an update keeps; for `lion`, of the momentum in the direction. 0.9 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub beta1: Option<f64>,
    /// Share of the second moment that an update keeps, 0.999 unless given; for `lion`, of the momentum, 0.99 unless
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub beta2: Option<f64>,
    /// Number that AdamW adds to the root of the second moment; 1e-8 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1.0))]
    pub epsilon: Option<f64>,
    /// Share of the momentum that an update keeps; 0.95 for `muon` and 0 for `sgd` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub momentum: Option<f64>,
    /// Nesterov's variant of the momentum; on for `muon` and off for `sgd` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nesterov: Option<bool>,
    /// Learning rate of the factors B of a low-rank adapter, as a multiple of `rate` (LoRA+).
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1_000.0))]
    pub b_rate_ratio: f64,
    /// Uniform noise on the embeddings of the tokens while training, within ± this number ÷ √(tokens × hidden size) of
    /// each row (NEFTune, Jain et al. 2023; its authors take 5 to 15); none unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1_000.0))]
    pub neftune_alpha: Option<f64>,
    /// Maximum norm of the gradient; 0 disables clipping.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub clip: f64,
    /// Seed of every random number of the run.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    pub seed: u64,
    /// Updates between checkpoints; a tenth of the run, at least 5 and at most 100, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub save_every: Option<u32>,
    /// Number of checkpoints to keep, beside that of the best validation; older ones are deleted. Unless given, 3
    /// during the run, and after its end none, or the last if the loss was still falling: only with a checkpoint can a
    /// finished run be resumed with more steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub keep: Option<u32>,
    /// Updates between the rows on a terminal; `metrics.jsonl` has a row for every update.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub log_every: u32,
    /// Updates between completions shown with their rewards, for methods that learn from rewards; 0 shows none, and no
    /// answers before and after in the report.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub show_completions: u32,
    /// Updates between two scores of the validation data; a tenth of the run, at least 5 and at most 100, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub validate_every: Option<u32>,
    /// Write the artifact from the weights with the best validation score instead of the last ones: the lowest loss, or
    /// for prompts the highest pass rate. Unless given, on where there is validation data, except for pairs and labeled
    /// answers, whose methods do not lower that loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<bool>,
    /// Scores of the validation data in a row without a better one after which the run ends; never unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub patience: Option<u32>,
    /// Completions of every validation prompt, for methods that learn from prompts: k of pass@k.
    #[schemars(range(min = 1, max = 4096))]
    pub validate_completions: u32,
    /// Recompute activations in the backward pass instead of keeping them: less memory, about 25 % slower.
    pub recompute: bool,
    /// Cache the log-probabilities of the reference for rows that come again, in memory and in the run's folder.
    pub cache_reference: bool,
    /// Skip an update whose gradient is not finite, instead of stopping.
    pub skip_non_finite: bool,
    /// Device that computes: `cpu`, `cuda`, `cuda:N`, `metal` or `auto`.
    pub device: String,
    /// Number format of activations; sums and trained numbers are `f32` in any case.
    pub compute: Compute,
    /// The adapter that is trained.
    pub adapter: AdapterTable,
}

impl Default for TrainTable {
    fn default() -> Self {
        Self {
            steps: None,
            epochs: None,
            batch: 4,
            accumulation: 1,
            optimizer: OptimizerKind::AdamW,
            rate: None,
            schedule: "linear".into(),
            min_rate: None,
            warmup: Warmup::default(),
            weight_decay: 0.0,
            beta1: None,
            beta2: None,
            epsilon: None,
            momentum: None,
            nesterov: None,
            b_rate_ratio: 1.0,
            neftune_alpha: None,
            clip: 1.0,
            seed: 42,
            save_every: None,
            keep: None,
            log_every: 10,
            show_completions: 10,
            validate_every: None,
            keep_best: None,
            patience: None,
            validate_completions: 4,
            recompute: false,
            cache_reference: true,
            skip_non_finite: false,
            device: "cpu".into(),
            compute: Compute::Auto,
            adapter: AdapterTable::default(),
        }
    }
}

/// `[train.adapter]`: the adapter that is trained.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AdapterTable {
    /// Kind of adapter, or `full` to train all weights.
    pub kind: AdapterKind,
    /// Rank of the low-rank factors.
    #[schemars(range(min = 1, max = 4096))]
    pub rank: u32,
    /// Numerator of the scale of the adapter; twice the rank unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1_000_000.0))]
    pub alpha: Option<f64>,
    /// First values of the low-rank factors.
    #[serde(skip_serializing_if = "Initialization::is_random")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = "random"))]
    pub initialize: Initialization,
    /// Dropout probability of the adapter's inputs.
    #[schemars(extend("minimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// Modules that get an adapter: `all-linear`, or a list of names such as `q_proj`.
    pub targets: Targets,
    /// Regular expression for the modules that get an adapter, in the place of `targets`. It matches whole paths, such
    /// as `model.layers.0.self_attn.q_proj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pattern: Option<String>,
    /// Layers that get an adapter, counted from 0; all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<u32>>,
    /// Ranks of modules that differ from `rank`, by regular expressions such as `"v_proj"` or `"layers.[0-7].mlp.*"`.
    /// Each matches a module's path, or an end of it after a dot; no two may match the same module.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("additionalProperties" = json!({ "type": "integer", "minimum": 1, "maximum": 4096 })))]
    pub rank_pattern: BTreeMap<String, u32>,
    /// Alphas of modules that differ from `alpha`, by regular expressions as in `rank-pattern`. A module with another
    /// rank keeps `alpha`, or twice `rank`, unless its alpha is given here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("additionalProperties" = json!({ "type": "number", "exclusiveMinimum": 0.0, "maximum": 1e6 })))]
    pub alpha_pattern: BTreeMap<String, f64>,
    /// Modules that are trained whole beside the low-rank factors and saved with the adapter, each by an end of its
    /// path, as in PEFT: `embed_tokens`, `lm_head`, `norm` for all norms, or a linear map, which then gets no factors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules_to_save: Vec<String>,
    /// Train the embedding and the head of a model that ties them as one matrix, if `modules-to-save` names one of
    /// them. Otherwise each that is named becomes a matrix of its own and the other stays frozen, as in PEFT.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = false))]
    pub ensure_weight_tying: bool,
}

impl Default for AdapterTable {
    fn default() -> Self {
        Self {
            kind: AdapterKind::Lora,
            rank: 16,
            alpha: None,
            initialize: Initialization::Random,
            dropout: 0.0,
            targets: Targets::AllLinear,
            target_pattern: None,
            layers: None,
            rank_pattern: BTreeMap::new(),
            alpha_pattern: BTreeMap::new(),
            modules_to_save: Vec::new(),
            ensure_weight_tying: false,
        }
    }
}
