//! Requests of a method to score rows, with their results.

use std::sync::Arc;

use candle_core::{Tensor, Var};
use tunebox_compute::budget::Reservation;
use tunebox_compute::fused::{Tap, Taps};
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;

use crate::bindings::types;
use crate::refusal::{Refusal, Result, ensure};
use crate::run_hooks::ScoreRequest;

/// The state of a score.
enum Outcome {
    /// Its pass has not run yet.
    Waiting,
    /// It has taps, from the pass of this number.
    Scored { taps: Taps<Tensor>, pass: u64 },
    /// Its pass failed with this error.
    Failed(types::Error),
}

/// Scores that a method requested, with their taps once the pass has run.
pub(crate) struct ScoreRecord {
    pub(crate) asked: ScoreRequest,
    pub(crate) rows: Arc<Rows>,
    outcome: Outcome,
    /// The weights that it was scored with.
    pub(crate) generation: u64,
    /// Bytes of the taps.
    pub(crate) bytes: Arc<Reservation>,
    /// Whether the method still has the handle.
    pub(crate) held: bool,
}

impl ScoreRecord {
    /// Creates scores whose pass has not run and whose handle the method holds. `generation` numbers the present
    /// weights; `bytes` holds the bytes of the taps.
    pub(crate) fn new(asked: ScoreRequest, rows: Arc<Rows>, generation: u64, bytes: Reservation) -> Self {
        Self { asked, rows, outcome: Outcome::Waiting, generation, bytes: Arc::new(bytes), held: true }
    }

    /// Returns the shape of every tap: `[rows, width]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows.count(), self.rows.width()]
    }

    /// Whether the scores' pass through the model has not run yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.outcome, Outcome::Waiting)
    }

    /// Stores the taps that pass `pass` returned. Differentiable taps of scores for learning become leaves of the next
    /// loss.
    pub(super) fn set(&mut self, mut taps: Taps<Tensor>, pass: u64) -> Result<()> {
        for (_, tensor) in taps.iter_mut().filter(|(tap, _)| self.asked.learning && tap.is_differentiable()) {
            *tensor = Var::from_tensor(&tensor.detach())?.into_inner();
        }
        self.outcome = Outcome::Scored { taps, pass };
        Ok(())
    }

    /// Stores the error with which the scores' pass failed; reading a tap returns it.
    pub(super) fn fail(&mut self, error: types::Error) {
        self.outcome = Outcome::Failed(error);
    }

    /// Returns the number of the pass that made the taps; `None` if it has not run or failed.
    pub(super) fn pass(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Scored { pass, .. } => Some(pass),
            Outcome::Waiting | Outcome::Failed(_) => None,
        }
    }

    /// Whether a loss may depend on these scores after their handle is dropped: they are for learning and have taps.
    pub(crate) fn may_be_learned_from(&self) -> bool {
        self.asked.learning && self.pass().is_some()
    }

    /// Returns the taps. Errors: that of the failed pass; `invalid-argument` if the pass has not run.
    fn taps(&self) -> Result<&Taps<Tensor>> {
        match &self.outcome {
            Outcome::Scored { taps, .. } => Ok(taps),
            Outcome::Failed(error) => Err(Refusal::Error(error.clone())),
            Outcome::Waiting => Err(gone()),
        }
    }

    /// Returns the error of the failed pass, or `invalid-argument` if it has not run; `Ok` if there are taps.
    pub(crate) fn check_scored(&self) -> Result<()> {
        self.taps().map(|_| ())
    }

    /// Returns one tap; `invalid-argument` if it was not requested, else errors as in
    /// [`check_scored`](Self::check_scored).
    pub(crate) fn tap(&self, tap: Tap) -> Result<&Tensor> {
        let name = tap.name();
        let missing = || Refusal::argument(format!("the tap `{name}` was not asked for when the rows were scored"));
        self.taps()?.get(tap).ok_or_else(missing)
    }

    /// Checks that a gradient may go through these scores: they are of the policy, and scored with the weights that
    /// `generation` numbers.
    pub(crate) fn check_current(&self, generation: u64) -> Result<()> {
        let other = "only scores of the policy take a gradient, these are of another view";
        ensure(self.asked.view == View::Policy, || Refusal::argument(other))?;
        let updated = "the weights were updated after these scores were made; score the rows again";
        ensure(self.generation == generation, || Refusal::argument(updated))
    }

    /// Returns the taps that a loss may depend on: the differentiable ones of scores for learning; none before their
    /// pass ran.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (Tap, &Tensor)> {
        let taps = match &self.outcome {
            Outcome::Scored { taps, .. } if self.asked.learning => Some(taps),
            _ => None,
        };
        taps.into_iter().flat_map(Taps::iter).filter(|(tap, _)| tap.is_differentiable())
    }
}

/// The refusal for scores whose record, or whose pass, is no longer held.
pub(crate) fn gone() -> Refusal {
    Refusal::argument("these scores are gone")
}
