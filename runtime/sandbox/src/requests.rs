//! How a method wants rows scored and completions sampled.

use tunebox_compute::fused::TapSet;
use tunebox_model::policy::View;

/// How rows are scored. Rows of equal requests may go through the model in one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreRequest {
    /// The weights that are used.
    pub view: View,
    /// The outputs computed beside the log-probabilities.
    pub taps: TapSet,
    /// Logits are divided by this number.
    pub temperature: f32,
    /// Keeps what a backward pass needs.
    pub learning: bool,
}

/// How completions are sampled; every number is in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    /// Logits are divided by this number; 0 takes the likeliest token.
    pub temperature: f32,
    /// Samples among the k likeliest tokens; 0 turns it off.
    pub top_k: u32,
    /// Samples among the likeliest tokens that together hold this share of the probability, in (0, 1].
    pub top_p: f32,
    /// Samples among tokens with at least this share of the likeliest token's probability, in [0, 1].
    pub min_p: f32,
    /// New tokens at most, the end token included; `None` for the run's limit.
    pub max_tokens: Option<u32>,
    /// Completions for each prompt.
    pub completions: u32,
}

impl Default for Sampler {
    /// Temperature 1, no top-k, top-p or min-p, the run's limit of new tokens, 1 completion a prompt.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, max_tokens: None, completions: 1 }
    }
}
