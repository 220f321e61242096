//! The run's verifiers at work: every completion before every one of them.
//!
//! A verifier that traps or takes too long could not judge, which counts and is told once a step; one that
//! fails on most completions ends the run, since what would be learned then is noise.

use tunebox_sandbox::{Judge, Question, Verdict};

use crate::error::Error;
use crate::plan::PlannedVerifier;

/// Failures of one verifier in one call that are always put up with.
const PATIENCE: usize = 8;

/// A completion as text, with what it answers.
pub struct Asked<'a> {
    /// What was asked, and the record's further fields.
    pub question: &'a Question,
    /// What was written.
    pub completion: String,
}

/// One verifier.
struct Seat {
    name: String,
    weight: f32,
    /// The field of the record that it gets as the answer.
    field: String,
    judge: Judge,
    account: Account,
}

/// What a verifier did in one step.
#[derive(Debug, Clone, Default)]
struct Account {
    values: Vec<f64>,
    failed: usize,
    reason: Option<String>,
}

/// The run's verifiers.
#[derive(Default)]
pub struct Panel {
    seats: Vec<Seat>,
}

impl Panel {
    /// Makes the verifiers and gives them their settings.
    ///
    /// # Errors
    /// When one refuses its settings or does not come up.
    pub fn open(planned: &[PlannedVerifier]) -> Result<Self, Error> {
        let seat = |planned: &PlannedVerifier| {
            Ok(Seat {
                name: planned.name.clone(),
                weight: planned.weight,
                field: planned.field.clone(),
                judge: Judge::new(planned.admitted.clone(), &planned.settings)?,
                account: Account::default(),
            })
        };
        Ok(Self { seats: planned.iter().map(seat).collect::<Result<_, Error>>()? })
    }

    /// Names and weights, in the order of the verdicts.
    #[must_use]
    pub fn names_and_weights(&self) -> Vec<(String, f32)> {
        self.seats.iter().map(|seat| (seat.name.clone(), seat.weight)).collect()
    }

    /// What every verifier says of every completion, a row a completion; NaN where it could not judge.
    ///
    /// # Errors
    /// [`Error::Verifier`] when one failed on more than half of them.
    pub fn verdicts(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<f32>>, Error> {
        let mut rows = vec![Vec::with_capacity(self.seats.len()); asked.len()];
        for seat in &mut self.seats {
            // What a verifier remembers must not reach the next step: a resumed run would differ.
            seat.judge.forget();
            let mut failed = 0;
            for (row, one) in rows.iter_mut().zip(asked) {
                let answer = one.question.fields.get(&seat.field).map_or("", String::as_str);
                let verdict = seat.judge.verdict(&one.question.prompt, &one.completion, answer);
                failed += usize::from(matches!(verdict, Verdict::Failed(_)));
                row.push(seat.account.take(verdict));
            }
            if failed > PATIENCE.max(asked.len() / 2) || failed == asked.len() && failed > 0 {
                let reason = seat.account.reason.clone().unwrap_or_default();
                return Err(Error::Verifier { verifier: seat.name.clone(), failed, of: asked.len(), reason });
            }
        }
        Ok(rows)
    }

    /// Begins a step: the accounts of the one before are forgotten.
    pub(crate) fn begin(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.account = Account::default());
    }

    /// Mean and spread of every verifier's verdicts in the present step, and how many calls failed.
    pub(crate) fn numbers(&self) -> Vec<(String, f64)> {
        let mut numbers = Vec::new();
        for seat in &self.seats {
            let (name, values) = (&seat.name, &seat.account.values);
            let count = values.len() as f64;
            if values.is_empty() && seat.account.failed == 0 {
                continue;
            }
            let mean = values.iter().sum::<f64>() / count;
            let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            numbers.extend([(format!("reward-{name}-mean"), mean), (format!("reward-{name}-std"), spread.sqrt())]);
            numbers.push((format!("reward-{name}-failed"), seat.account.failed as f64));
        }
        numbers.retain(|(_, value)| value.is_finite());
        numbers
    }

    /// What failed in the present step, a line a verifier.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let complaint = |seat: &Seat| {
            let reason = seat.account.reason.as_ref()?;
            let (name, failed) = (&seat.name, seat.account.failed);
            Some(format!("the verifier `{name}` could not judge {failed} completions: {reason}"))
        };
        self.seats.iter().filter_map(complaint).collect()
    }
}

impl Account {
    fn take(&mut self, verdict: Verdict) -> f32 {
        match verdict {
            Verdict::Value(value) => {
                self.values.push(f64::from(value));
                value
            }
            Verdict::Abstained => f32::NAN,
            Verdict::Failed(reason) => {
                self.failed += 1;
                self.reason.get_or_insert(reason);
                f32::NAN
            }
        }
    }
}
