//! Scores of rows that a method requested, with their results.

use std::sync::Arc;

use candle_core::{Tensor, Var};
use tunebox_compute::budget::Reservation;
use tunebox_compute::fused::{Tap, Taps};
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;

use crate::bindings::types;
use crate::refusal::{Refusal, Result, ensure};
use crate::run_hooks::ScoreRequest;

/// Whether the pass of some scores has run, and its result.
enum Outcome {
    /// The pass has not run yet.
    Waiting,
    /// The pass ran and returned these taps. `pass` is its number in `State::passes`.
    Scored { taps: Taps<Tensor>, pass: u64 },
    /// The pass failed with this error.
    Failed(types::Error),
}

/// Scores that a method requested, with their taps once the pass has run.
pub(crate) struct ScoreRecord {
    pub(crate) request: ScoreRequest,
    pub(crate) rows: Arc<Rows>,
    outcome: Outcome,
    /// The policy's update count when the scores were requested.
    pub(crate) generation: u64,
    /// The reservation of the taps' bytes.
    pub(crate) bytes: Arc<Reservation>,
    /// The reservation of what the pass saves for a backward pass, beside its numbers.
    _saved: Reservation,
    /// Whether the method still has the handle.
    pub(crate) has_handle: bool,
    /// Whether a gradient went through the scores.
    learned_from: bool,
}

impl ScoreRecord {
    /// Creates scores whose pass has not run and whose handle the method holds. `generation` is the policy's update
    /// count; `bytes` is the reservation for the taps, `saved` that for what the pass saves, beside its numbers.
    pub(crate) fn new(
        request: ScoreRequest,
        rows: Arc<Rows>,
        generation: u64,
        [bytes, saved]: [Reservation; 2],
    ) -> Self {
        Self {
            request,
            rows,
            outcome: Outcome::Waiting,
            generation,
            bytes: Arc::new(bytes),
            _saved: saved,
            has_handle: true,
            learned_from: false,
        }
    }

    /// Returns the shape of every tap: `[rows, width]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows.count(), self.rows.width()]
    }

    /// Whether the scores' pass through the model has not run yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.outcome, Outcome::Waiting)
    }

    /// Stores the taps that pass number `pass` returned. Taps of scores for learning become variables, the leaves of
    /// the graph of a loss; also taps through which no gradient goes, so that a loss that depends on one is refused.
    /// Only stepwise taps ([`Tap::is_stepwise`]) stay constants.
    pub(super) fn set_taps(&mut self, mut taps: Taps<Tensor>, pass: u64) -> Result<()> {
        for (_, tensor) in taps.iter_mut().filter(|(tap, _)| self.request.learning && !tap.is_stepwise()) {
            *tensor = Var::from_tensor(&tensor.detach())?.into_inner();
        }
        self.outcome = Outcome::Scored { taps, pass };
        Ok(())
    }

    /// Stores the error with which the scores' pass failed; reading a tap returns it.
    pub(super) fn set_error(&mut self, error: types::Error) {
        self.outcome = Outcome::Failed(error);
    }

    /// Returns the number of the pass that made the taps; `None` if it has not run or failed.
    pub(super) fn pass(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Scored { pass, .. } => Some(pass),
            Outcome::Waiting | Outcome::Failed(_) => None,
        }
    }

    /// Whether a loss may depend on these scores after their handle is dropped: they are for learning and their pass
    /// ran without error.
    pub(crate) fn can_be_learned_from(&self) -> bool {
        self.request.learning && self.pass().is_some()
    }

    /// Returns all taps of these scores. Errors: that of the failed pass; `invalid-argument` if the pass has not run.
    fn taps(&self) -> Result<&Taps<Tensor>> {
        match &self.outcome {
            Outcome::Scored { taps, .. } => Ok(taps),
            Outcome::Failed(error) => Err(Refusal::Error(error.clone())),
            Outcome::Waiting => Err(missing_scores_error()),
        }
    }

    /// Returns the error of the failed pass, or `invalid-argument` if the pass has not run; `Ok` if there are taps.
    pub(crate) fn check_scored(&self) -> Result<()> {
        self.taps().map(|_| ())
    }

    /// Returns one tap, `[rows, width]`. Errors: `invalid-argument` if the tap was not requested or the pass has not
    /// run; the error of the pass if it failed.
    pub(crate) fn tap(&self, tap: Tap) -> Result<&Tensor> {
        let name = tap.name();
        let missing = || Refusal::argument(format!("the tap `{name}` was not asked for when the rows were scored"));
        self.taps()?.get(tap).ok_or_else(missing)
    }

    /// Checks that no gradient went through these scores, which would count twice. Errors: `invalid-argument`.
    pub(super) fn check_unlearned(&self) -> Result<()> {
        let again = "a gradient went through these scores already, a second one would count twice; add the losses to one \
                     loss, or score the rows again";
        ensure(!self.learned_from, || Refusal::argument(again))
    }

    /// Notes that a gradient goes through these scores.
    pub(super) fn mark_learned(&mut self) {
        self.learned_from = true;
    }

    /// Checks that a gradient may go through these scores. Errors: `invalid-argument` if they are not of the policy, or
    /// the weights have changed since, that is, the scores are not of the update count `generation`.
    pub(crate) fn check_current(&self, generation: u64) -> Result<()> {
        let other = "only scores of the policy take a gradient, these are of another view";
        ensure(self.request.view == View::Policy, || Refusal::argument(other))?;
        let updated = "the weights were updated after these scores were made; score the rows again";
        ensure(self.generation == generation, || Refusal::argument(updated))
    }

    /// Returns the taps that are leaves of the graph of a loss: those of scores for learning, except stepwise ones.
    /// None before their pass ran.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (Tap, &Tensor)> {
        let taps = match &self.outcome {
            Outcome::Scored { taps, .. } if self.request.learning => Some(taps),
            _ => None,
        };
        taps.into_iter().flat_map(Taps::iter).filter(|(tap, _)| !tap.is_stepwise())
    }
}

/// Creates the `invalid-argument` error for a loss on scores that the host no longer holds: those of an earlier step.
pub(crate) fn missing_scores_error() -> Refusal {
    Refusal::argument("these scores are gone")
}
