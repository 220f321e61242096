//! The run's verifiers: each judges every completion, or what the model wrote last if an environment answered it.
//!
//! A verifier that traps or takes too long gives no verdict, which is counted and reported once a step. One that fails
//! on most completions ends the run, which would learn from noise.

mod entry;
mod judging;
mod samples;
mod sharing;

use std::time::{Duration, Instant};

use tunebox_foundation::format::seven_digits;
use tunebox_model::generate::{Completion, Sampling, check_prompts, generate};
use tunebox_model::tokenizer::Tokenizer;
use tunebox_model::{Policy, RankGroup, View};
use tunebox_sandbox::{Question, Verdict};

use crate::environment::Environment;
use crate::error::Error;
use crate::plan::verifier::PlannedVerifier;
use entry::{Entry, Texts};
pub(crate) use samples::{pick_samples, sample_of};
pub(crate) use sharing::Counts;
use sharing::share_work;

/// Failures of one verifier, or of the environment, in one call that never end the run.
pub(crate) const TOLERATED_FAILURES: usize = 8;

/// The message about completions without a reward.
pub(crate) const NO_VERDICT: &str = "no verifier gave a verdict on any completion: do the records have the fields that the \
                                     verifiers read, such as `answer`?";

/// A completion to judge.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// The prompt, and the further fields of the record.
    pub question: &'a Question,
    /// The completion's tokens, those of the environment's messages included.
    pub ids: &'a [u32],
    /// The tokens after the last message: what verifiers judge. All tokens if the run has no environment.
    pub last_turn: &'a [u32],
    /// The reward that the environment gave.
    pub reward: Option<f32>,
}

/// The run's verifiers, and its environment, which counts as the last of them.
#[derive(Default)]
pub struct Verifiers {
    entries: Vec<Entry>,
    /// The environment that answers completions and gives rewards.
    environment: Option<Environment>,
    /// The seconds that one call of [`Verifiers::verdicts`] outside of a step may take.
    seconds: f64,
}

impl Verifiers {
    /// Starts each component once with its settings to check them, and drops the instance: the first verdict of a call
    /// makes a new one. `seconds`: how long one call of [`Verifiers::verdicts`] outside of a step may take.
    ///
    /// # Errors
    /// A verifier that rejects its settings or cannot be started, and a reward model that is not open.
    pub fn open(planned: &[PlannedVerifier], seconds: f64) -> Result<Self, Error> {
        let entries = planned.iter().map(Entry::open).collect::<Result<_, Error>>()?;
        Ok(Self { entries, environment: None, seconds })
    }

    /// Sets the run's environment; `None` for a run without one.
    #[must_use]
    pub fn with_environment(mut self, environment: Option<Environment>) -> Self {
        self.environment = environment;
        self
    }

    /// Returns the run's environment; `None` if it has none.
    pub(crate) fn environment(&self) -> Option<&Environment> {
        self.environment.as_ref()
    }

    /// Returns the name and the weight in the reward of every verifier and of the environment, in the order in which
    /// [`Verifiers::verdicts`] lists their verdicts.
    #[must_use]
    pub fn names_and_weights(&self) -> Vec<(String, f32)> {
        let verifiers = self.entries.iter().map(|entry| (entry.name.clone(), entry.weight));
        let environment = self.environment.iter().map(|given| (given.name.clone(), given.table.weight as f32));
        verifiers.chain(environment).collect()
    }

    /// Samples `sampling.completions` completions of every prompt. If the run has an environment and `questions` are
    /// given (one for each prompt), the environment answers the completions, and an episode with its messages has at
    /// most `room` tokens; else `room` is not used. The prompts are divided among the ranks of the policy, and every
    /// rank returns all completions, in the order of the prompts.
    ///
    /// # Errors
    /// A failed generation; those of the environment ([`Environment::generate`]), and an environment that failed on all
    /// completions; a time limit that has passed: that of the present step, or outside of a step the seconds given to
    /// [`Verifiers::open`].
    pub(crate) fn generate(
        &mut self,
        (policy, view): (&Policy, &View),
        prompts: &[Vec<u32>],
        questions: Option<&[&Question]>,
        (sampling, room): (&Sampling, usize),
    ) -> Result<Vec<Completion>, Error> {
        let end = policy.deadline().or_else(|| self.deadline_outside_step());
        if policy.ranks().are_several() {
            // A prompt that is refused is refused on every rank, with the same words.
            check_prompts(&policy.model_of(view).configuration, prompts)?;
        }
        let written = sampling.completions * sampling.max_tokens;
        let weights: Vec<usize> = prompts.iter().map(|prompt| prompt.len() + written).collect();
        let (all, before) = (weights.len() * sampling.completions, self.environment_failures());
        let completions = share_work(policy.ranks(), "generate", &weights, self, |verifiers, own| {
            let prompts = &prompts[own.clone()];
            let first_prompt = sampling.first_prompt + own.start as u64;
            let sampling = Sampling { first_prompt, ..sampling.clone() };
            match (&mut verifiers.environment, questions.map(|questions| &questions[own])) {
                (Some(environment), Some(questions)) => {
                    environment.generate((policy, view), (prompts, questions), (&sampling, room), all, end)
                }
                _ => Ok(generate(policy, view, prompts, &sampling, &mut |_, _| true)?),
            }
        })?;
        let failed = self.environment_failures() - before;
        match &self.environment {
            Some(environment) if failed > 0 && failed == all => Err(environment.too_many_failures_error(failed, all)),
            _ => Ok(completions),
        }
    }

    /// The completions on which the environment failed in the present step; 0 without one.
    fn environment_failures(&self) -> usize {
        self.environment.as_ref().map_or(0, |environment| environment.counts.failed)
    }

    /// When a call outside of a step that begins now must end; `None` if an [`Instant`] cannot hold the time.
    fn deadline_outside_step(&self) -> Option<Instant> {
        Instant::now().checked_add(Duration::try_from_secs_f64(self.seconds).ok()?)
    }

    /// Returns the verdict of every verifier on every completion, as `[completions][verifiers]`. If the run has an
    /// environment, adds a last column with the rewards that it gave, NaN where it gave none. A verdict is NaN if the
    /// verifier abstained, or failed without a value for failures (`on_failure`). `end` is when the time of the present
    /// step is over; `None` outside of a step.
    ///
    /// The completions are divided among `ranks`, and every rank returns all verdicts. Verifiers judge one after the
    /// other, so that the memory of one and the text of one completion are in use at a time. Adds the verdicts and
    /// failures to the counts of the step. Drops every verifier's instance afterwards, so that no state reaches the
    /// next call.
    ///
    /// # Errors
    /// Tokens that cannot be decoded. A verifier without a value for failures that failed on all completions, or as
    /// soon as it failed on more than half of them and more than eight. Verdicts that are not complete at `end`, or
    /// outside of a step after the seconds given to [`Verifiers::open`].
    pub fn verdicts(
        &mut self,
        ranks: &RankGroup,
        tokenizer: &Tokenizer,
        answers: &[Answer<'_>],
        end: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>, Error> {
        let end = end.or_else(|| self.deadline_outside_step());
        let before: Vec<usize> = self.entries.iter().map(|entry| entry.counts.failed).collect();
        let weights: Vec<usize> = answers.iter().map(|answer| answer.last_turn.len() + 1).collect();
        let mut rows = share_work(ranks, "judge", &weights, self, |verifiers, own| {
            let (answers, all) = (&answers[own], weights.len());
            let mut rows = vec![Vec::with_capacity(verifiers.entries.len()); answers.len()];
            let mut texts = Texts::new(tokenizer);
            for entry in &mut verifiers.entries {
                let judged = entry.judge_all(&mut texts, answers, all, end);
                // State of a verifier must not reach the next step: a resumed run would differ.
                entry.judge.drop_instance();
                rows.iter_mut().zip(judged?).for_each(|(row, verdict)| row.push(verdict));
            }
            Ok(rows)
        })?;
        for (entry, before) in self.entries.iter().zip(before) {
            entry.check_failures(entry.counts.failed - before, answers.len())?;
        }
        if let Some(environment) = &mut self.environment {
            for (row, answer) in rows.iter_mut().zip(answers) {
                row.push(environment.counts.add(answer.reward.map_or(Verdict::Abstained, Verdict::Value)));
            }
        }
        Ok(rows)
    }

    /// Clears the counts of the step before, of every verifier and of the environment.
    pub(crate) fn begin_step(&mut self) {
        self.counts_mut().for_each(|counts| *counts = Counts::default());
    }

    /// The counts of every verifier, then those of the environment, for changing them.
    fn counts_mut(&mut self) -> impl Iterator<Item = &mut Counts> {
        let environment = self.environment.iter_mut().map(|environment| &mut environment.counts);
        self.entries.iter_mut().map(|entry| &mut entry.counts).chain(environment)
    }

    /// The name and the counts of every verifier, then those of the environment.
    fn counts(&self) -> impl Iterator<Item = (&String, &Counts)> {
        let environment = self.environment.iter().map(|environment| (&environment.name, &environment.counts));
        self.entries.iter().map(|entry| (&entry.name, &entry.counts)).chain(environment)
    }

    /// Returns, for every verifier that gave a verdict or failed in the present step, and the environment: mean
    /// (`reward-NAME-mean`) and sample standard deviation (`reward-NAME-std`) of its verdicts, and the number of its
    /// failures (`reward-NAME-failed`). Leaves out numbers that are not finite, such as the deviation of one verdict;
    /// rounds the others to seven significant digits.
    pub(crate) fn step_metrics(&self) -> Vec<(String, f64)> {
        let mut numbers = Vec::new();
        for (name, counts) in self.counts() {
            let values = &counts.values;
            let count = values.len() as f64;
            if values.is_empty() && counts.failed == 0 {
                continue;
            }
            let mean = values.iter().sum::<f64>() / count;
            let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            numbers.extend([(format!("reward-{name}-mean"), mean), (format!("reward-{name}-std"), spread.sqrt())]);
            numbers.push((format!("reward-{name}-failed"), counts.failed as f64));
        }
        numbers.retain(|(_, value)| value.is_finite());
        numbers.iter_mut().for_each(|(_, value)| *value = seven_digits(*value));
        numbers
    }

    /// Returns the warnings of the present step: one for each verifier that failed on a completion, and the environment,
    /// with the number of failures and the first cause; and one if all of them abstained on every completion.
    pub(crate) fn step_warnings(&self) -> Vec<String> {
        let verifiers = self.entries.len();
        let warning = |(number, (name, counts)): (usize, (&String, &Counts))| {
            let (reason, failed) = (counts.reason.as_ref()?, counts.failed);
            let (what, work) = if number < verifiers { ("verifier", "judge") } else { ("environment", "answer") };
            Some(format!("the {what} `{name}` could not {work} {failed} completions: {reason}"))
        };
        let mut warnings: Vec<String> = self.counts().enumerate().filter_map(warning).collect();
        let has_result = |(_, counts): (&String, &Counts)| !counts.values.is_empty() || counts.failed > 0;
        if !self.counts().any(has_result) && self.counts().any(|(_, counts)| counts.abstained > 0) {
            warnings.push(NO_VERDICT.to_owned());
        }
        warnings
    }
}
