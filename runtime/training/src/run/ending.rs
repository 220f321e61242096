//! Ends a run: goes back to the weights of the best validation, writes the artifact, and removes what the finished run
//! no longer needs.

use super::start::ActiveRun;
use crate::artifact;
use crate::checkpoint::{self, State};
use crate::error::Error;
use crate::learner::{begin_step, initial_state};
use crate::outcome::{Outcome, is_falling};

impl ActiveRun<'_> {
    /// Whether no step remains: all are done, or as many validations in a row as `train.patience` says brought no
    /// better score.
    pub(super) fn is_at_end(&self) -> bool {
        self.summary.step >= self.plan.summary.steps || self.is_out_of_patience()
    }

    /// Whether as many validations in a row as `train.patience` says brought no better score.
    fn is_out_of_patience(&self) -> bool {
        let patience = self.plan.settings.file.train.patience;
        patience.is_some_and(|patience| self.validations.without_improvement >= patience)
    }

    /// Calls the method's `finish` on the weights that ship, answers prompts if the run may have changed the answers,
    /// writes the artifact, and removes the checkpoints that the finished run does not keep.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let shipped = self.restore_best()?;
        self.close()?;
        if self.has_changed_answers() {
            self.show_answers(shipped);
        }
        let outcome = self.outcome(shipped)?;
        self.metrics.add_outcome(&outcome)?;
        self.summary.written = artifact::write(&self.plan, &self.session.train_state(), &self.metrics, &outcome)?;
        self.remove_checkpoints(&outcome)?;
        self.summary.outcome = Some(outcome);
        Ok(())
    }

    /// Restores the weights, and everything else that the artifact is written from, from the checkpoint of the best
    /// validation, if the run keeps it. Returns its step; the last step if that is the best, if the run keeps no best,
    /// or if no validation followed an update.
    fn restore_best(&mut self) -> Result<u64, Error> {
        let last = self.summary.step;
        let best = self.validations.best.filter(|best| self.plan.keeps_best && best.step != last);
        let Some(step) = best.map(|best| best.step) else { return Ok(last) };
        let folder = checkpoint::folder(&self.plan.folder, step);
        let state = State::read(&folder)?;
        let max_method_bytes = self.plan.method.limits.parameter_state_bytes;
        let mut train_state = self.train_state();
        // The optimizer stays: no update follows, and its state would take its size in memory once more.
        initial_state::reset_weights(&mut train_state)?;
        checkpoint::restore_weights(&folder, &state, &mut train_state, max_method_bytes)?;
        begin_step(&mut train_state, last);
        Ok(step)
    }

    /// Returns how the run ended. `shipped` is the step whose weights ship.
    fn outcome(&self, shipped: u64) -> Result<Outcome, Error> {
        let history = &self.validations;
        let train = &self.plan.settings.file.train;
        let longer = match train.steps {
            Some(steps) => format!("train.steps={}", u64::from(steps) * 2),
            None => format!("train.epochs={}", u64::from(train.epochs.unwrap_or(1)) * 2),
        };
        let falling = self.learns_likelihood() && is_falling(history, &self.metrics.read_rows()?);
        Ok(Outcome {
            steps: self.summary.step,
            planned: self.plan.summary.steps,
            shipped,
            loss: self.last_loss.map(|(loss, _)| loss),
            first: history.first,
            best: history.best,
            last: history.last.filter(|last| last.step > 0),
            patience: train
                .patience
                .filter(|_| self.is_out_of_patience() && self.summary.step < self.plan.summary.steps),
            is_overfitting: history.overfitting().is_some_and(|_| self.learns_likelihood()),
            longer: falling.then_some(longer),
        })
    }

    /// Removes the checkpoints of the finished run. Keeps the last and that of the best validation if the loss was
    /// still falling, so that the run can be resumed with more steps. Removes nothing if `train.keep` is given.
    fn remove_checkpoints(&mut self, outcome: &Outcome) -> Result<(), Error> {
        if self.plan.settings.file.train.keep.is_some() {
            return Ok(());
        }
        if outcome.longer.is_some() {
            return checkpoint::prune(&self.plan.folder, 1);
        }
        self.summary.checkpoint = None;
        checkpoint::remove_all(&self.plan.folder)
    }
}
