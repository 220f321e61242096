//! What a session asks of the run around it: the learning rate, scores and gradients, updates, completions and
//! verdicts.

use std::sync::Arc;
use std::time::Instant;

use tunebox_model::error::Error;
use tunebox_model::generate::{Completion, Sampling};
use tunebox_model::policy::{Policy, Scored, Seeds, TapRequest, View};
use tunebox_model::rows::Rows;

use crate::batch::Question;
use crate::completions::Completions;

/// How rows are scored. Rows of equal requests may go through the model in one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreRequest {
    /// The weights to score with.
    pub view: View,
    /// The outputs computed beside the log-probabilities.
    pub taps: TapRequest,
    /// Logits are divided by this number.
    pub temperature: f32,
    /// Whether to save the activations that a backward pass needs.
    pub learning: bool,
}

/// The part of a run that a method reaches through a session. The policy belongs to the session and is lent to each
/// hook that computes with it.
///
/// A hook that a run leaves out keeps its default: operations return [`Error::Unsupported`], numbers are 0, scores and
/// gradients are the policy's own.
pub trait RunHooks: Send + 'static {
    /// Returns the learning rate of the next update; 0 by default.
    fn learning_rate(&self) -> f64 {
        0.0
    }

    /// Returns the number of finished steps of the run.
    fn position(&self) -> u32 {
        0
    }

    /// Returns the number of steps that the run plans.
    fn planned_steps(&self) -> u32 {
        0
    }

    /// Returns the most new tokens that a completion may have; 0 if the run does not sample.
    fn max_new_tokens(&self) -> u32 {
        0
    }

    /// Returns the most answers that the run's environment gives to a completion, and the most bytes of each; `None` if
    /// the run has no environment.
    fn environment(&self) -> Option<(u32, usize)> {
        None
    }

    /// Returns names and weights of the run's verifiers and, last, of its environment, in the order of the columns of
    /// [`judge`](Self::judge).
    fn verifiers(&self) -> Vec<(String, f32)> {
        Vec::new()
    }

    /// Scores rows under the view, taps and temperature of the request. A run may answer from a cache, bit for bit as
    /// the policy would.
    ///
    /// # Errors
    /// When the rows or the view do not fit the model, or memory runs out.
    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        policy.score(&request.view, rows, request.taps.clone(), request.temperature, request.learning)
    }

    /// Adds the gradient of Σ seed · tap to the policy's flat gradient; seeds and taps are `[rows, width]`. Consumes
    /// the activations that `scored` saved.
    ///
    /// # Errors
    /// When memory runs out or a gradient is not finite.
    fn backward(&mut self, policy: &Policy, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        policy.backward(scored, seeds)
    }

    /// Clips the gradient, updates the weights and clears the gradient; returns the gradient's norm before clipping.
    ///
    /// # Errors
    /// When the gradient is not finite; always in the default.
    fn update(&mut self, _policy: &mut Policy) -> Result<f32, Error> {
        unsupported("this run offers no updates")
    }

    /// Counts an update that the method made itself: clears the gradient of the policy and returns the norm that it
    /// had.
    ///
    /// # Errors
    /// When the device fails; always in the default.
    fn count_update(&mut self, _policy: &mut Policy) -> Result<f32, Error> {
        unsupported("this run offers no updates")
    }

    /// Samples `sampling.completions` completions for each prompt, those of one prompt contiguous, with a seed of
    /// the run in place of `sampling.seed`. `questions` has an entry for each prompt if they are the prompts of the
    /// batch: then the run's environment, if it has one, answers the completions, which have at most
    /// [`max_new_tokens`](Self::max_new_tokens) tokens with its messages.
    ///
    /// # Errors
    /// When the prompts or the view do not fit the model, memory runs out, or the environment failed on so many
    /// completions that the rest is useless; always in the default.
    fn generate(
        &mut self,
        _policy: &Policy,
        _view: &View,
        _prompts: &Arc<Rows>,
        _sampling: &Sampling,
        _questions: Option<&[Question]>,
    ) -> Result<Vec<Completion>, Error> {
        unsupported("this run does not let the model write")
    }

    /// Has every verifier judge every completion: `[completions, verifiers]` in row-major order, NaN where a verifier
    /// returned no verdict. The last column has the rewards of the environment, if the run has one. `questions` has one
    /// entry for each prompt of the batch. `end` is the time at which the step has lasted as long as it may: returns an
    /// error soon after it; `None` for no such time.
    ///
    /// # Errors
    /// When so many calls of a verifier failed that the verdicts are useless, and at `end`; always in the default.
    fn judge(
        &mut self,
        _policy: &Policy,
        _questions: &[Question],
        _written: &Completions,
        _end: Option<Instant>,
    ) -> Result<Vec<f32>, Error> {
        unsupported("this run has no verifier")
    }
}

/// Returns [`Error::Unsupported`] with this message; the default of hooks that a run leaves out.
fn unsupported<T>(message: &str) -> Result<T, Error> {
    Err(Error::Unsupported(message.into()))
}
