//! Requests of a method to score rows, with their results.

use std::sync::Arc;

use candle_core::{Tensor, Var};
use tunebox_compute::fused::{Tap, Taps};
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;

use crate::bindings::types;
use crate::entries::{Charge, Held};
use crate::refusal::Refusal;
use crate::requests::ScoreRequest;

/// The state of a score.
enum Outcome {
    /// Its pass has not run yet.
    Waiting,
    /// It has taps, from the pass of this number.
    Made { taps: Taps<Tensor>, pass: u64 },
    /// Its pass failed with this error.
    Failed(types::Error),
}

/// The taps of a score, with the bytes that they hold.
pub(crate) struct ScoreRecord {
    pub(crate) asked: ScoreRequest,
    pub(crate) rows: Arc<Rows>,
    outcome: Outcome,
    /// The weights that it was scored with.
    pub(crate) generation: u64,
    /// Bytes of the taps.
    pub(crate) charge: Arc<Charge>,
    /// Whether the method still has the handle.
    pub(crate) held: bool,
}

impl ScoreRecord {
    /// A record whose handle the method is about to get.
    pub(crate) fn new(asked: ScoreRequest, rows: Arc<Rows>, generation: u64, charge: Arc<Charge>) -> Self {
        Self { asked, rows, outcome: Outcome::Waiting, generation, charge, held: true }
    }

    /// The shape of every tap.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows.count(), self.rows.width()]
    }

    /// Whether its pass through the model has not run yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.outcome, Outcome::Waiting)
    }

    /// Notes what came out of a pass, by its number. Taps for learning become leaves of the coming loss.
    pub(super) fn set(&mut self, mut taps: Taps<Tensor>, pass: u64) -> Result<(), Refusal> {
        if self.asked.learning {
            learn(&mut taps)?;
        }
        self.outcome = Outcome::Made { taps, pass };
        Ok(())
    }

    /// Notes why there is nothing to look at.
    pub(super) fn fail(&mut self, error: types::Error) {
        self.outcome = Outcome::Failed(error);
    }

    /// The pass that it came from.
    pub(super) fn pass(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Made { pass, .. } => Some(pass),
            Outcome::Waiting | Outcome::Failed(_) => None,
        }
    }

    /// Whether a loss may hang on its taps after the method has let go of it.
    pub(crate) fn may_be_learned_from(&self) -> bool {
        self.asked.learning && self.pass().is_some()
    }

    /// Its taps, or why the model gave none.
    fn taps(&self) -> Result<&Taps<Tensor>, Refusal> {
        match &self.outcome {
            Outcome::Made { taps, .. } => Ok(taps),
            Outcome::Failed(error) => Err(Refusal::Error(error.clone())),
            Outcome::Waiting => Err(Refusal::argument("these scores are gone")),
        }
    }

    /// Whether there is something to look at, or the reason why not.
    pub(crate) fn check_scored(&self) -> Result<(), Refusal> {
        self.taps().map(|_| ())
    }

    /// A tap, ready to hand out. `invalid-argument` when it was not asked for.
    pub(crate) fn tap(&self, tap: Tap) -> Result<Held, Refusal> {
        let name = tap.name();
        let missing = || Refusal::argument(format!("the tap `{name}` was not asked for when the rows were scored"));
        self.taps()?.get(tap).map(|tensor| self.hold(tensor)).ok_or_else(missing)
    }

    fn hold(&self, tensor: &Tensor) -> Held {
        Held { tensor: tensor.clone(), charge: self.charge.clone(), depth: 0 }
    }

    /// Whether the record is still about the weights as they are, seen through the policy.
    pub(crate) fn check_current(&self, generation: u64) -> Result<(), Refusal> {
        if self.asked.view != View::Policy {
            return Err(Refusal::argument("only scores of the policy take a gradient, these are of another view"));
        }
        if self.generation != generation {
            return Err(Refusal::argument(
                "the weights were updated after these scores were made; score the rows again",
            ));
        }
        Ok(())
    }

    /// The taps that a loss may depend on: the differentiable ones of a score for learning; none before its pass.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (Tap, &Tensor)> {
        let taps = match &self.outcome {
            Outcome::Made { taps, .. } if self.asked.learning => Some(taps),
            _ => None,
        };
        taps.into_iter().flat_map(Taps::iter).filter(|(tap, _)| tap.is_differentiable())
    }
}

/// Makes the differentiable taps of a score leaves of the coming loss.
fn learn(taps: &mut Taps<Tensor>) -> Result<(), Refusal> {
    for (tap, tensor) in taps.iter_mut() {
        if tap.is_differentiable() {
            *tensor = leaf(tensor)?;
        }
    }
    Ok(())
}

fn leaf(tensor: &Tensor) -> Result<Tensor, Refusal> {
    Ok(Var::from_tensor(&tensor.detach())?.into_inner())
}
