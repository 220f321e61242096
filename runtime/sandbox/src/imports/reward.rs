//! Implements `wit/reward.wit`: one function for each of the interface, in its order.
//!
//! The method passes handles and gets numbers; prompts, completions and answers as text stay
//! on the host.

use std::sync::Arc;

use tunebox_compute::Tensor;
use tunebox_model::Policy;

use crate::bindings::reward::Host;
use crate::completions::{Completions, DECODED_BYTES};
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result, ensure};
use crate::state::{Answer, BatchEntry, CompletionsEntry, DEVICE, Handle, HostContext, State};

/// How many times its size a text takes while it is decoded: its tokens, results of the decoding steps, and the text.
pub(super) const DECODING_COPIES: u64 = 3;

impl Host for HostContext<'_> {
    /// Counts the call and returns the names of the run's verifiers, in the order of the columns of `judge`.
    fn verifiers(&mut self) -> wasmtime::Result<Vec<String>> {
        self.enter("reward.verifiers")?;
        Ok(self.train_state().hooks.verifiers().into_iter().map(|(name, _)| name).collect())
    }

    /// Returns a handle of the weights of the run's verifiers, in the order of their names: `[verifiers]`, `f32`;
    /// `unsupported` if the run has none.
    fn weights(&mut self) -> Answer {
        self.enter("reward.weights")?;
        let weights: Vec<f32> = self.weighted_verifiers()?.into_iter().map(|(_, weight)| weight).collect();
        self.push_list(&weights)
    }

    /// Has every verifier judge every completion and returns a handle of the verdicts: `[rows, verifiers]`, `f32`, NaN
    /// where a verifier gave none or an infinite one. The environment of the run, if it has one, counts as the last
    /// verifier, and its rewards as verdicts. Charges work and counts verdicts for every entry. Reserves bytes for the
    /// longest text of a completion, and for the texts that are kept for the next verifier, until all are judged.
    ///
    /// Errors: `unsupported` if the run has no verifier; `invalid-argument` if the completions do not continue all
    /// prompts of one side of the batch, or the batch has no prompts as text; the error of the run's `judge` hook. Past
    /// `step_wall_seconds` ends the method.
    fn judge(&mut self, batch: Handle<BatchEntry>, completions: Handle<CompletionsEntry>) -> Answer {
        self.enter("reward.judge")?;
        let columns = self.weighted_verifiers()?.len();
        let batch = self.table.get(&batch)?.0.clone();
        let written = self.table.get(&completions)?.0.clone();
        let foreign = || Refusal::argument("these completions do not continue the prompts of this batch");
        let questions = batch.questions_of(&written.prompts).ok_or_else(foreign)?;
        let rows = written.rows.count();
        let entries = rows as u64 * columns as u64;
        self.meters.charge_units(entries)?;
        self.meters.count_verdicts(entries)?;
        let texts = max_text_bytes(&self.train_state().policy, &written);
        let texts = self.reserve(
            texts.saturating_mul(DECODING_COPIES) + texts.saturating_mul(rows as u64).min(DECODED_BYTES as u64),
        )?;
        let reservation = self.reserve(4 * entries)?;
        let end = self.meters.deadline();
        let judged = {
            let train_state = &mut *self.train_state();
            train_state.hooks.judge(&train_state.policy, questions, &written, end)
        };
        drop(texts);
        self.meters.check_time()?;
        let mut verdicts = judged?;
        let found = verdicts.len() as u64;
        let message = || format!("{found} verdicts came back for {entries} entries");
        ensure(found == entries, || Refusal::new(ErrorCode::Internal, message()))?;
        // An infinite verdict would spoil every mean that it enters: it counts as none.
        verdicts.iter_mut().filter(|verdict| !verdict.is_finite()).for_each(|verdict| *verdict = f32::NAN);
        let tensor = Tensor::from_vec(verdicts, (rows, columns), &DEVICE)?;
        self.push_tensor(tensor, Arc::new(reservation))
    }
}

/// Returns the most bytes that the text of one of these completions can have; 0 for a model without a tokenizer.
fn max_text_bytes(policy: &Policy, written: &Completions) -> u64 {
    let longest = (0..written.rows.count()).map(|row| written.completion(row).len()).max().unwrap_or(0);
    policy.model().tokenizer().map_or(0, |tokenizer| tokenizer.most_decoded(longest))
}

impl State {
    /// Returns the names and weights of the run's verifiers; `unsupported` if there are none.
    fn weighted_verifiers(&self) -> Result<Vec<(String, f32)>> {
        let verifiers = self.train_state().hooks.verifiers();
        let message = "the run lists no verifier; `run.toml` needs a `[[verifier]]` with `use = \"…\"`";
        ensure(!verifiers.is_empty(), || Refusal::new(ErrorCode::Unsupported, message))?;
        Ok(verifiers)
    }
}
