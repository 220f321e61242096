//! One verifier of a run: its verdicts on the completions of a call, and how often it may fail.

use std::borrow::Cow;
use std::time::Instant;

use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_model::tokenizer::Tokenizer;
use tunebox_sandbox::{DECODED_BYTES, Verdict};

use super::judging::Judging;
use super::{Answer, Counts, TOLERATED_FAILURES};
use crate::error::Error;
use crate::plan::verifier::PlannedVerifier;

/// Decodes the completions of one call for its verifiers. The first ones are decoded once and kept, up to
/// [`DECODED_BYTES`]; the others are decoded for each verifier, so that the memory of all does not grow with their
/// number.
pub(super) struct Texts<'a> {
    tokenizer: &'a Tokenizer,
    /// The texts of the first completions, in order.
    decoded: Vec<String>,
    /// Bytes of `decoded`.
    bytes: usize,
}

impl<'a> Texts<'a> {
    /// The texts of one call, none of which is decoded yet.
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, decoded: Vec::new(), bytes: 0 }
    }

    /// Returns the text of completion number `number` (from 0) of this call, whose token ids are `ids`, without special
    /// tokens. Keeps a newly decoded text if all texts before it are kept and the kept texts then have at most
    /// [`DECODED_BYTES`].
    fn decode(&mut self, number: usize, ids: &[u32]) -> Result<Cow<'_, str>, Error> {
        if number < self.decoded.len() {
            return Ok(Cow::Borrowed(&self.decoded[number]));
        }
        let text = self.tokenizer.decode(ids, true)?;
        if number > self.decoded.len() || self.bytes + text.len() > DECODED_BYTES {
            return Ok(Cow::Owned(text));
        }
        self.bytes += text.len();
        self.decoded.push(text);
        Ok(Cow::Borrowed(&self.decoded[number]))
    }
}

/// A verifier, and its results in the present step.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) weight: f32,
    /// The verdict on a completion on which it fails; `None` for no verdict.
    on_failure: Option<f32>,
    pub(super) judge: Judging,
    pub(super) counts: Counts,
}

impl Entry {
    /// Starts the component once with its settings to check them. Fails if it rejects them or cannot be started, and
    /// for a reward model that is not open.
    pub(super) fn open(planned: &PlannedVerifier) -> Result<Self, Error> {
        let judge = Judging::open(&planned.judge)?;
        let PlannedVerifier { name, weight, on_failure, .. } = planned;
        let (name, weight, on_failure) = (name.clone(), *weight, *on_failure);
        Ok(Self { name, weight, on_failure, judge, counts: Counts::default() })
    }

    /// Judges completions by this verifier; returns one verdict for each, in order. The verdict is NaN if the verifier
    /// abstained, and `on_failure`, or NaN without it, if the verifier failed. Adds every verdict and failure to the
    /// counts. `total` is the number of completions on all ranks. Fails when `end` is reached, and as soon as the
    /// verifier failed too often ([`check_failures`](Self::check_failures)).
    pub(super) fn judge_all(
        &mut self,
        texts: &mut Texts<'_>,
        answers: &[Answer<'_>],
        total: usize,
        end: Option<Instant>,
    ) -> Result<Vec<f32>, Error> {
        let (mut verdicts, mut failed) = (Vec::with_capacity(answers.len()), 0);
        for (number, Answer { question, last_turn, .. }) in answers.iter().enumerate() {
            let verdict = self.judge.verdict(question, &texts.decode(number, last_turn)?, end);
            if end.is_some_and(|end| Instant::now() >= end) {
                return Err(too_long_error(&self.name));
            }
            let is_failure = matches!(verdict, Verdict::Failed(_));
            let found = self.counts.add(verdict);
            if let Some(value) = self.on_failure.filter(|_| is_failure) {
                verdicts.push(self.counts.add(Verdict::Value(value)));
                continue;
            }
            failed += usize::from(is_failure);
            verdicts.push(found);
            self.check_failures(failed, total)?;
        }
        Ok(verdicts)
    }

    /// Fails if the verifier failed on all `total` completions (at least one), or on more than half of them and more
    /// than eight. Never fails for a verifier with a verdict on failures (`on_failure`).
    pub(super) fn check_failures(&self, failed: usize, total: usize) -> Result<(), Error> {
        let too_many = failed > TOLERATED_FAILURES.max(total / 2) || failed == total && total > 0;
        if too_many && self.on_failure.is_none() { Err(self.too_many_failures_error(failed, total)) } else { Ok(()) }
    }

    /// Builds the error about a verifier that failed on `failed` of `total` completions, with the first cause in this
    /// step and the exit code of the sandbox.
    fn too_many_failures_error(&self, failed: usize, total: usize) -> Error {
        let what = format!("the verifier `{}` failed on {failed} of {total} completions", self.name);
        let explanation = Explanation::new("training", what)
            .with_why(self.counts.reason.clone().unwrap_or_default())
            .with_hint("fix the verifier, or give such completions a verdict with `on-failure` in `[[verifier]]`");
        Error::Explained(Box::new(explanation), Exit::Sandbox)
    }
}

/// Builds the error about verifiers that take longer than a step may; `name` is the verifier that judged when the time
/// was over. Exit code of the sandbox.
fn too_long_error(name: &str) -> Error {
    let explanation = Explanation::new("sandbox", "the verifiers took longer than a step may")
        .with_location(format!("at the verifier `{name}`"))
        .with_why("their starts and verdicts together count towards `limits.step-wall-seconds`")
        .with_hint("a verifier that is faster, fewer completions, or a higher `limits.step-wall-seconds`");
    Error::Explained(Box::new(explanation), Exit::Sandbox)
}
