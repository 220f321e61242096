//! Estimates the time of a run from the seconds that some of its steps, validations, checkpoints and answers took.

use crate::data::{Dataset, Shape};
use crate::plan::PlannedRun;

/// The least finished steps for an estimate: the first one warms up, and one more says nothing about the spread.
const MIN_STEPS: usize = 3;

/// Seconds of the parts of a run that were executed so far.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    /// From the beginning of planning to the first step, without validation and answers.
    pub(crate) start: f64,
    steps: Vec<StepTime>,
    pub(crate) validation: Mean,
    pub(crate) checkpoint: Mean,
    pub(crate) answers: Mean,
    /// The end of the run, with the answers then; `None` before it.
    pub(crate) ending: Option<f64>,
}

/// How long a step took.
#[derive(Debug, Clone, Copy)]
struct StepTime {
    /// Tokens of the step.
    tokens: u64,
    seconds: f64,
    /// The part of `seconds` in which the reference was scored, whose scores are cached for later epochs.
    reference: f64,
}

/// The mean of some numbers of seconds; 0 without numbers.
#[derive(Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    /// Adds a number of seconds.
    pub(crate) fn add(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
    }

    /// Multiplies the seconds by a factor, as if each number had been so many times as large.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.sum *= factor;
    }

    /// The mean in seconds; 0 without numbers.
    fn value(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// How often each part of a run is executed, from its start or from where it resumes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parts {
    /// Steps of the first epoch, in which the reference is scored.
    first_epoch: u64,
    /// Steps of later epochs.
    later: u64,
    validations: u64,
    checkpoints: u64,
    /// How often prompts are answered for the report.
    answers: u64,
    /// Mean tokens of a step; `None` if the step generates tokens, whose number is not known.
    tokens: Option<f64>,
}

impl Parts {
    /// Counts the parts of a planned run from its start or its checkpoint on. With the best validation kept, counts a
    /// checkpoint at every validation. Counts a validation and answers before the first step only if the run begins
    /// there; no answers if completions are not shown.
    pub(crate) fn of(plan: &PlannedRun) -> Self {
        let (train, length) = (&plan.settings.file.train, &plan.learning_rate.length);
        let done = plan.checkpoint.as_ref().map_or(0, |(_, state)| state.step);
        let steps = plan.summary.steps.saturating_sub(done);
        let is_validated = |step: &u64| plan.validation.is_some() && length.is_due(*step, train.validate_every);
        let is_saved = |step: &u64| length.is_due(*step, train.save_every) || (plan.keeps_best && is_validated(step));
        let all = || done + 1..=plan.summary.steps;
        let first_epoch = plan.summary.steps_per_epoch.saturating_sub(done).min(steps);
        let answers = if train.show_completions == 0 { 0 } else { 1 + u64::from(done == 0) };
        Self {
            first_epoch,
            later: steps - first_epoch,
            validations: all().filter(is_validated).count() as u64 + u64::from(done == 0 && plan.validation.is_some()),
            checkpoints: all().filter(is_saved).count() as u64,
            answers,
            tokens: mean_tokens(&plan.data, plan.summary.steps_per_epoch),
        }
    }
}

/// Mean tokens of a step over an epoch of `steps` steps; `None` for prompts, of which completions are generated.
fn mean_tokens(data: &Dataset, steps: u64) -> Option<f64> {
    (data.shape != Shape::Prompts).then(|| data.report.tokens as f64 / steps.max(1) as f64)
}

impl Timing {
    /// Adds a step of so many tokens. `reference` are the seconds of it in which the reference was scored.
    pub(crate) fn add_step(&mut self, tokens: u64, seconds: f64, reference: f64) {
        self.steps.push(StepTime { tokens, seconds, reference });
    }

    /// The number of measured steps.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The sum of the seconds of the measured steps after the first.
    pub(crate) fn warm_seconds(&self) -> f64 {
        self.steps.iter().skip(1).map(|step| step.seconds).sum()
    }

    /// Estimates the seconds of a whole run with these parts: the first step as it was, every other one as the mean of
    /// those after the first, in proportion to the tokens. An end that was not measured counts as a checkpoint and the
    /// answers. `None` before the third step.
    pub(crate) fn estimate(&self, parts: &Parts) -> Option<f64> {
        let warm = self.steps.get(1..).filter(|_| self.steps.len() >= MIN_STEPS)?;
        let sum = |part: fn(&StepTime) -> f64| warm.iter().map(part).sum::<f64>();
        let (seconds, reference) = (sum(|step| step.seconds), sum(|step| step.reference));
        let measured = sum(|step| step.tokens as f64);
        // Of steps without tokens, and of those that generate them, each counts the same.
        let share = match parts.tokens.filter(|_| measured > 0.0) {
            Some(tokens) => tokens / measured,
            None => 1.0 / warm.len() as f64,
        };
        let first = self.steps.first().map_or(0.0, |step| step.seconds);
        let in_first_epoch = parts.first_epoch.saturating_sub(1) as f64 * share * seconds;
        let in_later = parts.later as f64 * share * (seconds - reference);
        let answers = self.answers.value();
        let last_answers = if parts.answers == 0 { 0.0 } else { answers };
        let others = parts.validations as f64 * self.validation.value()
            + parts.checkpoints as f64 * self.checkpoint.value()
            + parts.answers.saturating_sub(1) as f64 * answers
            + self.ending.unwrap_or(self.checkpoint.value() + last_answers);
        Some(self.start + first + in_first_epoch + in_later + others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: Parts =
        Parts { first_epoch: 11, later: 10, validations: 3, checkpoints: 2, answers: 2, tokens: Some(200.0) };

    #[test]
    fn a_run_takes_its_start_its_steps_by_tokens_and_what_comes_between_them() {
        let mut timing = Timing { start: 7.0, ..Timing::default() };
        timing.add_step(100, 5.0, 0.0);
        assert_eq!(timing.estimate(&PARTS), None);
        // 1 s for 100 tokens, of which 0.25 s are the reference's.
        timing.add_step(100, 1.0, 0.25);
        timing.add_step(300, 3.0, 0.75);
        timing.validation.add(4.0);
        timing.checkpoint.add(1.0);
        timing.checkpoint.add(2.0);
        timing.answers.add(0.5);
        let steps = 5.0 + 10.0 * 2.0 + 10.0 * 1.5;
        let others = 3.0 * 4.0 + 3.0 * 1.5 + 2.0 * 0.5;
        let found = timing.estimate(&PARTS).unwrap();
        assert!((found - (7.0 + steps + others)).abs() < 1e-9, "{found}");
        timing.ending = Some(9.0);
        let found = timing.estimate(&PARTS).unwrap();
        assert!((found - (7.0 + steps + others - 2.0 + 9.0)).abs() < 1e-9, "{found}");
    }

    #[test]
    fn steps_that_generate_count_alike() {
        let mut timing = Timing::default();
        for (tokens, seconds) in [(10, 9.0), (100, 2.0), (300, 4.0)] {
            timing.add_step(tokens, seconds, 0.0);
        }
        let found = timing.estimate(&Parts { tokens: None, later: 0, first_epoch: 3, ..PARTS }).unwrap();
        assert!((found - (9.0 + 2.0 * 3.0)).abs() < 1e-9, "{found}");
    }
}
