//! Sampling completions from the model (`wit/sample.wit`).
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch) -> Result<()> {
//! let sampler = Sampler::new().completions(8)?.temperature(0.7)?.max_tokens(256)?;
//! let completions = generate(&policy(), &batch.rows("prompt")?, &sampler)?;
//! let rows = completions.rows(); // prompts and completions; the completions are the targets
//! let old = completions.logprob(); // [rows, width], when they were sampled
//! metric("finished", completions.finished().mean(All));
//! metric("length", rows.lengths().mean(All));
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::sample;
use crate::error::{certain, checked};
use crate::{Result, Rows, Tensor, View};

/// How to sample: temperature 1, no top-k, top-p 1, no min-p, 1 completion, 256 new tokens or the run's own limit if that is
/// less.
pub struct Sampler(sample::Sampler);

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

impl Sampler {
    /// Creates a sampler of the model's own distribution: temperature 1 and no filter.
    pub fn new() -> Self {
        Self(sample::Sampler::new())
    }

    /// Sets the divisor of the logits; 0 always takes the most likely token. Errors: out of range.
    #[track_caller]
    pub fn temperature(self, value: f32) -> Result<Self> {
        checked(self.0.temperature(value)).map(|()| self)
    }

    /// Samples only from the k most likely tokens; 0 turns this off. Errors: out of range.
    #[track_caller]
    pub fn top_k(self, value: u32) -> Result<Self> {
        checked(self.0.top_k(value)).map(|()| self)
    }

    /// Samples only from the most likely tokens that together have this probability. Errors: out of range.
    #[track_caller]
    pub fn top_p(self, value: f32) -> Result<Self> {
        checked(self.0.top_p(value)).map(|()| self)
    }

    /// Samples only from tokens with at least this fraction of the highest token probability. Errors: out of range.
    #[track_caller]
    pub fn min_p(self, value: f32) -> Result<Self> {
        checked(self.0.min_p(value)).map(|()| self)
    }

    /// Sets the maximum number of new tokens, the end token included. Errors: 0, and more than the run allows.
    #[track_caller]
    pub fn max_tokens(self, value: u32) -> Result<Self> {
        checked(self.0.max_tokens(value)).map(|()| self)
    }

    /// Adds a text that ends a completion as soon as the completion contains it; at most 8, of 64 bytes each. Errors: out of
    /// range.
    #[track_caller]
    pub fn stop(self, text: &str) -> Result<Self> {
        checked(self.0.stop(text)).map(|()| self)
    }

    /// Samples only from these tokens, in place of an earlier list; a completion ends by itself only if [`end_tokens`] are
    /// among them. Errors: no token, or one that is not in the vocabulary.
    #[track_caller]
    pub fn allow_tokens(self, ids: &[u32]) -> Result<Self> {
        checked(self.0.allow_tokens(ids)).map(|()| self)
    }

    /// Sets the number of completions for each prompt. Errors: 0, and more than the run allows.
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

    /// Prompt and completion of each sample as rows whose mask marks the completion, end token included.
    pub fn rows(&self) -> Rows {
        Rows::from_handle(self.0.rows())
    }

    /// Log-probabilities of the tokens under the distribution that was sampled from, `[rows, width]`.
    #[track_caller]
    pub fn logprob(&self) -> Tensor {
        Tensor::new(certain(self.0.logprob()))
    }

    /// 1 where a completion ended by itself, 0 where the token limit cut it: `[rows]`.
    #[track_caller]
    pub fn finished(&self) -> Tensor {
        Tensor::new(certain(self.0.finished()))
    }

    /// The number of the prompt that each row continues, from 0: `[rows]`, `u32`.
    #[track_caller]
    pub fn group(&self) -> Tensor {
        Tensor::new(certain(self.0.group()))
    }
}

/// The tokens that end a completion, in ascending order.
pub fn end_tokens() -> Vec<u32> {
    sample::end_tokens()
}

/// Samples completions of every prompt. Costs one pass a new token.
/// Errors: a prompt without tokens; more completions than the run allows.
#[track_caller]
pub fn generate(view: &View, prompts: &Rows, sampler: &Sampler) -> Result<Completions> {
    checked(sample::generate(view.handle(), prompts.handle(), &sampler.0)).map(Completions)
}
