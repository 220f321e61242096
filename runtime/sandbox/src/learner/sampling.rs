//! The part of a learner behind `sample` and `reward`: it lets the model write, and has it judged.
//!
//! A learner that does neither keeps the defaults, and a method that asks is told so.

use std::sync::Arc;

use tunebox_model::error::Error;
use tunebox_model::generate::Completion;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;

use crate::batch::Question;
use crate::written::Written;

/// How completions are sampled; every number is in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    /// Logits are divided by this; 0 takes the likeliest token.
    pub temperature: f32,
    /// Only the k likeliest tokens; 0 turns it off.
    pub top_k: u32,
    /// Only the likeliest tokens that hold this share of the probability, in (0, 1].
    pub top_p: f32,
    /// Only tokens with at least this share of the likeliest one's probability, in [0, 1].
    pub min_p: f32,
    /// New tokens at most, the end token included; the run's own limit when none is given.
    pub max_tokens: Option<u32>,
    /// Completions for each prompt.
    pub completions: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, max_tokens: None, completions: 1 }
    }
}

/// Writing and judging. Implement it empty for a learner that does neither.
pub trait Sampling {
    /// New tokens that a completion of this run may have at most; at least 1 where the model writes.
    fn new_tokens(&self) -> u32 {
        0
    }

    /// Tokens of the longest row that the model takes.
    fn positions(&self) -> u32 {
        u32::MAX
    }

    /// Multiply-adds of a pass over so many tokens, near enough; 0 where there is no model to pass through.
    fn multiply_adds(&self, _tokens: u64) -> u64 {
        0
    }

    /// Bytes of the caches that so many sequences of so many tokens are written with, at once.
    fn cache_bytes(&self, _sequences: u64, _tokens: u64) -> u64 {
        0
    }

    /// Writes `sampler.completions` completions for each prompt, contiguous in the result, with
    /// streams of their own per (run seed, update, prompt, completion).
    ///
    /// # Errors
    /// When the prompts or the view do not fit the model, or memory runs out.
    fn generate(&mut self, _view: &View, _prompts: &Arc<Rows>, _sampler: &Sampler) -> Result<Vec<Completion>, Error> {
        Err(Error::Unsupported("this run does not let the model write".into()))
    }

    /// The run's verifiers and their weights, in the order of the columns of `judge`.
    fn verifiers(&self) -> Vec<(String, f32)> {
        Vec::new()
    }

    /// What every verifier says of every completion, `[rows, verifiers]` in row-major order; NaN where
    /// it could not judge. `questions` are those of the batch, one a prompt.
    ///
    /// # Errors
    /// When so many calls failed that the verdicts are worth nothing.
    fn judge(&mut self, _questions: &[Question], _written: &Written) -> Result<Vec<f32>, Error> {
        Err(Error::Unsupported("this run has no verifier".into()))
    }
}
