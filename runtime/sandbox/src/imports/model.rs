//! Implements `wit/model.wit`: one function for each of the interface, in its order.
//!
//! The train state runs the passes; this file checks arguments, charges the taps, and records what a gradient
//! will need.

use std::sync::Arc;

use tunebox_compute::fused::Tap;
use tunebox_model::policy::{DivergenceTo, TapRequest, View};
use tunebox_model::rows::Rows;

use super::check_tensor_name;
use super::data::row_bytes;
use crate::bindings::model::{Host, HostScores, HostTaps, HostView};
use crate::printable::printable;
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result, ensure};
use crate::run_hooks::ScoreRequest;
use crate::scores::{ScoreRecord, missing_scores_error, saved_block_bytes};
use crate::state::{Answer, Handle, HostContext, RowsEntry, ScoresEntry, State, TapsEntry, ViewEntry};

/// The most token ids of one call of `next-token`.
const MAX_IDS: usize = 4_096;

impl HostView for HostContext<'_> {
    /// Deletes the handle; a snapshot stays. Not counted as a call.
    fn drop(&mut self, this: Handle<ViewEntry>) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl HostTaps for HostContext<'_> {
    /// Returns a handle of a set of taps with the log-probabilities alone.
    fn new(&mut self) -> wasmtime::Result<Handle<TapsEntry>> {
        self.enter("model.taps.constructor")?;
        Ok(self.table.push(TapsEntry::default()).map_err(Refusal::from)?)
    }

    /// Adds the entropy to the set.
    fn entropy(&mut self, this: Handle<TapsEntry>) -> wasmtime::Result<()> {
        self.add_tap("model.taps.entropy", &this, Tap::Entropy)
    }

    /// Adds log Σ p² to the set.
    fn log_sum_square(&mut self, this: Handle<TapsEntry>) -> wasmtime::Result<()> {
        self.add_tap("model.taps.log-sum-square", &this, Tap::LogSumSquare)
    }

    /// Adds the mean logit to the set.
    fn mean_logit(&mut self, this: Handle<TapsEntry>) -> wasmtime::Result<()> {
        self.add_tap("model.taps.mean-logit", &this, Tap::MeanLogit)
    }

    /// Adds the mean log-probability to the set.
    fn mean_logprob(&mut self, this: Handle<TapsEntry>) -> wasmtime::Result<()> {
        self.add_tap("model.taps.mean-logprob", &this, Tap::MeanLogprob)
    }

    /// Adds the tap to the set that is 1 where no token is more likely than the target token, else 0.
    fn top_one(&mut self, this: Handle<TapsEntry>) -> wasmtime::Result<()> {
        self.add_tap("model.taps.top-one", &this, Tap::TopOne)
    }

    /// Adds the divergence to a view with this β to the set, in place of an earlier one. Errors: `invalid-argument` for
    /// a β outside 0 to 1.
    fn divergence(&mut self, this: Handle<TapsEntry>, view: Handle<ViewEntry>, beta: f32) -> Result<()> {
        self.enter("model.taps.divergence")?;
        let shown = printable(&beta.to_string(), 32);
        ensure((0.0..=1.0).contains(&beta), || Refusal::argument(format!("`beta` is {shown}; it must be 0 to 1")))?;
        let view = self.table.get(&view)?.0.clone();
        self.table.get_mut(&this)?.divergence = Some(DivergenceTo { view, beta });
        Ok(())
    }

    /// Deletes the handle. Not counted as a call.
    fn drop(&mut self, this: Handle<TapsEntry>) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl HostScores for HostContext<'_> {
    /// Returns a handle of the log-probability of each target token: `[rows, width]`, `f32`, 0 off the targets. Runs
    /// the scoring passes that were deferred first. Ends the method if the pass of the scores failed, for want of a
    /// `result` in WIT.
    fn logprob(&mut self, this: Handle<ScoresEntry>) -> wasmtime::Result<Handle> {
        Ok(self.push_tap("model.scores.logprob", &this, Tap::Logprob)?)
    }

    /// Returns a handle of the entropy in nats of the distribution that predicts each target token: `[rows, width]`,
    /// `f32`, 0 off the targets. Runs the scoring passes that were deferred first. Errors: `invalid-argument` if the
    /// scores were requested without this tap; the model's error if their pass failed.
    fn entropy(&mut self, this: Handle<ScoresEntry>) -> Answer {
        self.push_tap("model.scores.entropy", &this, Tap::Entropy)
    }

    /// Returns a handle of log Σ p² of the distribution p that predicts each target token: `[rows, width]`, `f32`, 0
    /// off the targets. Runs the scoring passes that were deferred first. Errors: `invalid-argument` if the scores were
    /// requested without this tap; the model's error if their pass failed.
    fn log_sum_square(&mut self, this: Handle<ScoresEntry>) -> Answer {
        self.push_tap("model.scores.log-sum-square", &this, Tap::LogSumSquare)
    }

    /// Returns a handle of the mean logit over the vocabulary for each target token: `[rows, width]`, `f32`, 0 off the
    /// targets. Runs the scoring passes that were deferred first. Errors: `invalid-argument` if the scores were
    /// requested without this tap; the model's error if their pass failed.
    fn mean_logit(&mut self, this: Handle<ScoresEntry>) -> Answer {
        self.push_tap("model.scores.mean-logit", &this, Tap::MeanLogit)
    }

    /// Returns a handle of the mean log-probability over the vocabulary for each target token: `[rows, width]`, `f32`,
    /// 0 off the targets. Runs the scoring passes that were deferred first. Errors: `invalid-argument` if the scores
    /// were requested without this tap; the model's error if their pass failed.
    fn mean_logprob(&mut self, this: Handle<ScoresEntry>) -> Answer {
        self.push_tap("model.scores.mean-logprob", &this, Tap::MeanLogprob)
    }

    /// Returns a handle of a tensor `[rows, width]`, `f32`, that is 1 where no token is more likely than the target
    /// token, else 0. Runs the scoring passes that were deferred first. Errors: `invalid-argument` if the scores were
    /// requested without this tap; the model's error if their pass failed.
    fn top_one(&mut self, this: Handle<ScoresEntry>) -> Answer {
        self.push_tap("model.scores.top-one", &this, Tap::TopOne)
    }

    /// Returns a handle of the divergence in nats of the distribution that predicts each target token to that of the
    /// other view: `[rows, width]`, `f32`, 0 off the targets. Runs the scoring passes that were deferred first. Errors:
    /// `invalid-argument` if the scores were requested without this tap; the model's error if their pass failed.
    fn divergence(&mut self, this: Handle<ScoresEntry>) -> Answer {
        self.push_tap("model.scores.divergence", &this, Tap::Divergence)
    }

    /// Deletes the handle. Also frees the scores, unless they are for learning and their pass ran: a loss may depend on
    /// those until the call ends. Not counted as a call.
    fn drop(&mut self, this: Handle<ScoresEntry>) -> wasmtime::Result<()> {
        let ScoresEntry(number) = self.table.delete(this)?;
        if let Some(record) = self.scores.get_mut(&number) {
            record.has_handle = false;
            // A loss of this step may still depend on taps of scores for learning, but on no others.
            if !record.can_be_learned_from() {
                self.release_score(number);
            }
        }
        Ok(())
    }
}

impl Host for HostContext<'_> {
    /// Returns a handle of a view of the weights under training.
    fn policy(&mut self) -> wasmtime::Result<Handle<ViewEntry>> {
        self.enter("model.policy")?;
        Ok(self.table.push(ViewEntry(View::Policy)).map_err(Refusal::from)?)
    }

    /// Returns a handle of a view of the weights before training. Every run of this host keeps them, so there is no
    /// `unsupported` error.
    fn reference(&mut self) -> Answer<ViewEntry> {
        self.enter("model.reference")?;
        Ok(self.table.push(ViewEntry(View::Reference))?)
    }

    /// Makes a frozen copy of the trained weights under a name, replacing one of that name, and returns a handle of its
    /// view. Counts one pass, and first runs the scoring passes that were deferred. A copy that exceeds
    /// `activation_bytes` or the memory that is left ends the method.
    ///
    /// Errors: `invalid-argument` for an empty, long or reserved name, `out-of-budget` past the number of snapshots of
    /// the run, `unsupported` if all weights are trained.
    fn snapshot(&mut self, name: String) -> Answer<ViewEntry> {
        self.enter("model.snapshot")?;
        let longest = self.limits.name_bytes;
        let allowed = || Refusal::argument(format!("a snapshot's name has 1 to {longest} bytes"));
        ensure((1..=longest).contains(&name.len()), allowed)?;
        check_tensor_name(&name)?;
        let most = self.limits.snapshots;
        let fits = {
            let snapshots = &self.train_state().snapshots;
            snapshots.contains_key(&name) || snapshots.len() < most
        };
        let full = || Refusal::new(ErrorCode::OutOfBudget, format!("a run keeps at most {most} snapshots"));
        ensure(fits, full)?;
        // Not a pass, but copying the trained parameters takes as long as a small one.
        self.count_pass(&View::Policy, 1)?;
        self.run_pending_scores()?;
        let bytes = self.train_state().policy.snapshot_bytes();
        self.check_kept(bytes)?;
        self.train_state().snapshot(&name)?;
        Ok(self.table.push(ViewEntry(View::Snapshot(name)))?)
    }

    /// Requests scores of rows under a view, without saving activations for a backward pass; see
    /// [`State::request_scores`].
    fn score(
        &mut self,
        view: Handle<ViewEntry>,
        rows: Handle<RowsEntry>,
        taps: Option<Handle<TapsEntry>>,
        temperature: f32,
    ) -> Answer<ScoresEntry> {
        self.enter("model.score")?;
        let view = self.table.get(&view)?.0.clone();
        self.request_scores(&view, &rows, taps, temperature, false)
    }

    /// Requests scores of rows under the policy, saving the activations for a backward pass; see
    /// [`State::request_scores`].
    fn score_for_learning(
        &mut self,
        rows: Handle<RowsEntry>,
        taps: Option<Handle<TapsEntry>>,
        temperature: f32,
    ) -> Answer<ScoresEntry> {
        self.enter("model.score-for-learning")?;
        self.request_scores(&View::Policy, &rows, taps, temperature, true)
    }

    /// Runs one forward pass and returns a handle of the log-probability of each token of `ids` as the one after the
    /// end of each row: `[rows, ids]`, `f32`, without gradient.
    ///
    /// Errors: `invalid-argument` for no rows, an empty row, no ids, more than `MAX_IDS`, or an id outside the
    /// vocabulary. Too little memory for the pass ends the method.
    fn next_token(&mut self, view: Handle<ViewEntry>, rows: Handle<RowsEntry>, ids: Vec<u32>) -> Answer {
        self.enter("model.next-token")?;
        let view = self.table.get(&view)?.0.clone();
        let rows = self.nonempty_rows(&rows)?;
        let allowed = || Refusal::argument(format!("1 to {MAX_IDS} tokens are asked for, these are {}", ids.len()));
        ensure((1..=MAX_IDS).contains(&ids.len()), allowed)?;
        self.check_tokens(&ids)?;
        let elements = rows.count() as u64 * ids.len() as u64;
        let logits = rows.count() as u64 * self.configuration_of(&view).vocabulary as u64;
        self.meters.charge_units(elements + logits)?;
        self.count_pass(&view, rows.tokens())?;
        self.check_pass_memory(&view, &rows, false)?;
        self.push_new_tensor(elements, |state| state.train_state().policy.next_token(&view, &rows, &ids))
    }

    /// Runs two forward passes and returns a handle of the KL divergence, in nats, of the next-token distributions
    /// after the end of each row, from `view` (p) to `other` (q): `[rows]`, `f32`, without gradient.
    ///
    /// Errors: `invalid-argument` for no rows or an empty row. Too little memory for a pass ends the method.
    fn divergence(&mut self, view: Handle<ViewEntry>, other: Handle<ViewEntry>, rows: Handle<RowsEntry>) -> Answer {
        self.enter("model.divergence")?;
        let (view, other) = (self.table.get(&view)?.0.clone(), self.table.get(&other)?.0.clone());
        let rows = self.nonempty_rows(&rows)?;
        let words = self.configuration_of(&view).vocabulary.max(self.configuration_of(&other).vocabulary);
        self.meters.charge_units(rows.count() as u64 * words as u64)?;
        for view in [&view, &other] {
            self.count_pass(view, rows.tokens())?;
            self.check_pass_memory(view, &rows, false)?;
        }
        self.push_new_tensor(rows.count() as u64, |state| state.train_state().policy.divergence(&view, &other, &rows))
    }
}

impl State {
    /// Counts a call of `function`, then adds a tap to the set behind a handle, unless it is in the set. Errors: a
    /// limit is passed, or there is no such handle.
    fn add_tap(&mut self, function: &'static str, taps: &Handle<TapsEntry>, tap: Tap) -> wasmtime::Result<()> {
        self.enter(function)?;
        let set = &mut self.table.get_mut(taps)?.set;
        *set = set.iter().chain([tap]).collect();
        Ok(())
    }

    /// Returns the rows behind a handle; `invalid-argument` if there are no rows or one of them has no token.
    fn nonempty_rows(&self, rows: &Handle<RowsEntry>) -> Result<Arc<Rows>> {
        let rows = self.table.get(rows)?.0.clone();
        ensure(rows.count() > 0, || Refusal::argument("there are no rows to continue"))?;
        match rows.ids.iter().position(Vec::is_empty) {
            Some(row) => Err(Refusal::argument(format!("row {row} is empty, so nothing follows its end"))),
            None => Ok(rows),
        }
    }

    /// Returns `invalid-argument` for the first token id that is not below the vocabulary size of the model under
    /// training.
    pub(crate) fn check_tokens(&self, ids: &[u32]) -> Result<()> {
        let vocabulary = self.configuration.vocabulary;
        match ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => Err(Refusal::argument(format!("token {id} is not in the vocabulary of {vocabulary}"))),
            None => Ok(()),
        }
    }

    /// Counts a call of `function`, runs all scoring passes that were deferred, and returns a handle of one tap:
    /// `[rows, width]`, `f32`, 0 off the target tokens. The handle shares the tap's numbers and their reservation.
    ///
    /// Errors: `invalid-argument` if the tap was not requested with the scores; the model's error if their pass failed.
    fn push_tap(&mut self, function: &'static str, scores: &Handle<ScoresEntry>, tap: Tap) -> Answer {
        self.enter(function)?;
        let record = self.run_and_read_record(scores)?;
        let (tensor, bytes) = (record.tap(tap)?.clone(), Arc::clone(&record.bytes));
        self.push_tensor(tensor, bytes)
    }

    /// Returns the scores behind a handle, whether or not their pass has run; `invalid-argument` if they were freed.
    pub(crate) fn score_record(&self, handle: &Handle<ScoresEntry>) -> Result<&ScoreRecord> {
        let ScoresEntry(number) = self.table.get(handle)?;
        self.scores.get(number).ok_or_else(missing_scores_error)
    }

    /// Runs all scoring passes that were deferred, then returns the scores behind a handle. A failed pass is no error
    /// here; see [`ScoreRecord::check_scored`].
    pub(crate) fn run_and_read_record(&mut self, handle: &Handle<ScoresEntry>) -> Result<&ScoreRecord> {
        self.run_pending_scores()?;
        self.score_record(handle)
    }

    /// Charges work, a pass and the bytes of the taps, and returns a handle of scores. With `learning`, the pass saves
    /// the activations for a backward pass. Logits are divided by `temperature`. Defers the pass if the policy can
    /// share prefixes between rows in one pass; else runs it now, and frees the scores again if it fails.
    ///
    /// Errors: `invalid-argument` for a temperature that is not finite and above 0, or for no rows; the model's error
    /// if the pass ran and failed.
    fn request_scores(
        &mut self,
        view: &View,
        rows: &Handle<RowsEntry>,
        taps: Option<Handle<TapsEntry>>,
        temperature: f32,
        learning: bool,
    ) -> Answer<ScoresEntry> {
        let shown = printable(&temperature.to_string(), 32);
        let other = || Refusal::argument(format!("a temperature is a finite number above 0, this is {shown}"));
        ensure(temperature.is_finite() && temperature > 0.0, other)?;
        let rows = self.table.get(rows)?.0.clone();
        ensure(rows.width() > 0, || Refusal::argument("there are no rows to score"))?;
        let taps = match taps {
            Some(taps) => {
                let TapsEntry { set, divergence } = self.table.get(&taps)?;
                TapRequest::new(*set, divergence.clone())
            }
            None => TapRequest::default(),
        };
        let elements = rows.count() as u64 * rows.width() as u64 * taps.set().iter().count() as u64;
        self.meters.charge_units(elements)?;
        self.count_pass(view, rows.tokens())?;
        self.charge_divergence(view, &taps, &rows)?;
        // A pass joins the rows of several scores, and keeps the copy; it also keeps the patches that are active now.
        let patches = self.patches as u64 * self.patch_bytes();
        let bytes = self.reserve(4 * elements + row_bytes(rows.tokens() as u64, rows.count()) + patches)?;
        let saved = self.reserve(if learning { saved_block_bytes(self.configuration.layers) } else { 0 })?;
        let request = ScoreRequest { view: view.clone(), taps, temperature, learning };
        let (generation, defer) = {
            let policy = &self.train_state().policy;
            (policy.generation(), policy.shares_prefixes(view, learning))
        };
        let record = ScoreRecord::new(request, rows, generation, [bytes, saved]);
        let number = self.next_number();
        let handle = self.table.push(ScoresEntry(number))?;
        self.scores.insert(number, record);
        if !defer && let Err(refusal) = self.run_and_read_record(&handle).and_then(ScoreRecord::check_scored) {
            self.release_score(number);
            self.table.delete(handle)?;
            return Err(refusal);
        }
        Ok(handle)
    }
}

#[cfg(test)]
mod tests;
