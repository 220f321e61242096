//! Sampling completions from the model (`wit/sample.wit`).

use crate::bindings::tunebox::method::sample;
use crate::error::{certain, checked};
use crate::{Result, Rows, Tensor, View};

/// How to sample: temperature 1, no top-k, top-p 1, no min-p, 1 completion, the run's own limit of new tokens.
pub struct Sampler(sample::Sampler);

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

impl Sampler {
    /// The distribution of the model itself.
    pub fn new() -> Self {
        Self(sample::Sampler::new())
    }

    /// Logits are divided by this; 0 takes the likeliest token. Errors: out of range.
    #[track_caller]
    pub fn temperature(self, value: f32) -> Result<Self> {
        checked(self.0.temperature(value)).map(|()| self)
    }

    /// Only the k likeliest tokens; 0 turns it off. Errors: out of range.
    #[track_caller]
    pub fn top_k(self, value: u32) -> Result<Self> {
        checked(self.0.top_k(value)).map(|()| self)
    }

    /// Only the likeliest tokens that hold this share of the probability. Errors: out of range.
    #[track_caller]
    pub fn top_p(self, value: f32) -> Result<Self> {
        checked(self.0.top_p(value)).map(|()| self)
    }

    /// Only tokens with at least this share of the likeliest one's probability. Errors: out of range.
    #[track_caller]
    pub fn min_p(self, value: f32) -> Result<Self> {
        checked(self.0.min_p(value)).map(|()| self)
    }

    /// New tokens at most, the end token included. Errors: 0, and more than the run allows.
    #[track_caller]
    pub fn max_tokens(self, value: u32) -> Result<Self> {
        checked(self.0.max_tokens(value)).map(|()| self)
    }

    /// Completions for each prompt. Errors: 0, and more than the run allows.
    #[track_caller]
    pub fn completions(self, value: u32) -> Result<Self> {
        checked(self.0.completions(value)).map(|()| self)
    }
}

/// Sampled completions; those of one prompt are contiguous.
pub struct Completions(sample::Completions);

impl Completions {
    pub(crate) fn handle(&self) -> &sample::Completions {
        &self.0
    }

    /// Prompt and completion as rows whose mask marks the completion, end token included.
    pub fn rows(&self) -> Rows {
        Rows::from_handle(self.0.rows())
    }

    /// Log-probabilities under the distribution that was sampled from, `[rows, width]`.
    #[track_caller]
    pub fn logprob(&self) -> Tensor {
        Tensor::new(certain(self.0.logprob()))
    }

    /// 1 where a completion ended by itself, 0 where it was cut: `[rows]`.
    #[track_caller]
    pub fn finished(&self) -> Tensor {
        Tensor::new(certain(self.0.finished()))
    }

    /// The number of the prompt that a row continues: `[rows]`, `u32`.
    #[track_caller]
    pub fn group(&self) -> Tensor {
        Tensor::new(certain(self.0.group()))
    }
}

/// Samples completions of every prompt. Costs one pass a new token.
/// Errors: a prompt without tokens; more completions than the run allows.
#[track_caller]
pub fn generate(view: &View, prompts: &Rows, sampler: &Sampler) -> Result<Completions> {
    checked(sample::generate(view.handle(), prompts.handle(), &sampler.0)).map(Completions)
}
