//! The run's part of a train state: optimizer, schedule, verifiers, and the cache of the reference's scores.
//!
//! An update clips the gradient, takes the learning rate of its step and rejects a gradient that is not finite. The
//! loop of the run decides when an update is due, or a method that asks for one.

pub(crate) mod directions;
pub(crate) mod initial_state;
pub(crate) mod reference;

use std::sync::Arc;
use std::time::Instant;

use tunebox_compute::Error as ComputeError;
use tunebox_compute::fused::Tap;
use tunebox_compute::optimizer::{Optimizer, OptimizerSettings};
use tunebox_compute::random::Stream;
use tunebox_compute::schedule::Schedule;
use tunebox_model::error::Error;
use tunebox_model::generate::{Completion, Sampling};
use tunebox_model::policy::{Policy, Scored, TapRequest, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Completions, Question, RunHooks, ScoreRequest};

use self::reference::ReferenceCache;
use crate::environment::Environment;
use crate::length::Length;
use crate::observer::Sample;
use crate::verifiers::{Answer, Verifiers, pick_samples};

/// The model under training in a run.
pub type TrainState = tunebox_sandbox::TrainState<Trainer>;

/// A session of the sandbox whose hooks are a run's [`Trainer`].
pub(crate) type Session = tunebox_sandbox::Session<Trainer>;

/// The learning rate over a run, and how gradients are clipped.
#[derive(Debug, Clone)]
pub(crate) struct LearningRate {
    /// The peak rate.
    pub peak: f64,
    /// How the rate changes with the steps.
    pub schedule: Schedule,
    /// Steps over which the rate rises from 0. A warmup given as a share of the run is computed from the run's first
    /// length.
    pub warmup: u64,
    /// Steps of the run.
    pub length: Length,
    /// The largest gradient norm, to which larger gradients are scaled down; 0 disables clipping.
    pub clip: f64,
    /// Skip an update whose gradient is not finite, instead of failing.
    pub skip_non_finite: bool,
}

impl LearningRate {
    /// Returns the learning rate of step `step` (from 0): the peak times the schedule's factor for that step, in a run
    /// of as many steps as are planned then.
    pub(crate) fn at(&self, step: u64) -> f64 {
        self.peak * self.schedule.factor(step, self.warmup, self.length.planned_at(step))
    }
}

/// The results of the updates of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Progress {
    /// The norm of the last gradient, before clipping.
    pub(crate) norm: f64,
    /// Number of updates.
    pub(crate) updates: u32,
    /// Number of updates skipped because their gradient was not finite.
    pub(crate) skipped: u32,
}

/// The verifiers, and counts of the completions sampled and judged in the present step.
#[derive(Default)]
pub(crate) struct RewardState {
    /// The run's verifiers.
    pub(crate) verifiers: Verifiers,
    /// The most new tokens of a completion.
    pub(crate) max_new_tokens: u32,
    /// The run's seed.
    seed: u64,
    /// Calls of `generate` in the present step.
    calls: u64,
    /// Tokens sampled in the present step.
    pub(crate) sampled_tokens: u64,
    /// The error of the verifiers or the environment in the present step.
    pub(crate) failure: Option<crate::error::Error>,
    /// Steps between those whose completions are shown; 0 shows none.
    pub(crate) show_every: u32,
    /// Completions of the present step to show.
    pub(crate) samples: Vec<Sample>,
}

impl RewardState {
    /// Creates the state before the first step, with all counts 0. `seed` is the seed of the run; `max_new_tokens` is
    /// the most new tokens of a completion.
    pub(crate) fn new(verifiers: Verifiers, max_new_tokens: u32, seed: u64) -> Self {
        Self { verifiers, max_new_tokens, seed, ..Self::default() }
    }

    /// Sets the counts of calls and sampled tokens to 0, removes the recorded error and the completions to show, and
    /// clears every verifier's results.
    fn begin_step(&mut self) {
        (self.calls, self.sampled_tokens, self.failure) = (0, 0, None);
        self.samples.clear();
        self.verifiers.begin_step();
    }
}

/// The state of a run beside the policy. Implements the hooks ([`RunHooks`]) through which a session uses it.
pub struct Trainer {
    /// The optimizer; `None` if the method updates the parameters itself.
    pub(crate) optimizer: Option<Optimizer>,
    /// Updates that the method made itself, in the whole run.
    pub(crate) own_updates: u64,
    /// Verifiers and sampling.
    pub(crate) rewards: RewardState,
    /// Known scores of the reference; `None` scores every row anew.
    pub(crate) references: Option<ReferenceCache>,
    learning_rate: LearningRate,
    step: u64,
    /// The results of the updates of the present step.
    pub(crate) progress: Progress,
    /// Which quantity of the present step was not finite: `loss` or `gradient`.
    pub(crate) non_finite: Option<&'static str>,
}

impl Trainer {
    /// Creates a trainer before its first step, without a cache of the reference's scores. Without an optimizer, the
    /// method updates the parameters itself.
    pub(crate) fn new(optimizer: Option<Optimizer>, learning_rate: LearningRate, rewards: RewardState) -> Self {
        let progress = Progress::default();
        Self {
            optimizer,
            own_updates: 0,
            rewards,
            references: None,
            learning_rate,
            step: 0,
            progress,
            non_finite: None,
        }
    }

    /// Whether the completions of the present step are shown: those of the first and the last step, and of every
    /// `show_every`-th. Never if `show_every` is 0.
    fn shows_completions(&self) -> bool {
        let (number, every) = (self.step + 1, u64::from(self.rewards.show_every));
        every > 0 && (number == 1 || number == self.learning_rate.length.steps || number.is_multiple_of(every))
    }

    /// The number of updates in the whole run, by the optimizer or by the method.
    pub(crate) fn updates(&self) -> u64 {
        self.optimizer.as_ref().map_or(self.own_updates, Optimizer::steps)
    }
}

/// Creates a train state outside of a run, for benchmarks: AdamW, a constant learning rate of 1e-4, clipping at 1, no
/// verifiers.
///
/// # Errors
/// An optimizer that cannot be allocated.
pub fn bench_train_state(policy: Policy) -> Result<TrainState, Error> {
    let optimizer = Optimizer::new(OptimizerSettings::default(), policy.parameters())?;
    let schedule = Schedule::CONSTANT;
    let rate = LearningRate {
        peak: 1e-4,
        schedule,
        warmup: 0,
        length: Length { steps: 1, ..Length::default() },
        clip: 1.0,
        skip_non_finite: false,
    };
    Ok(TrainState::new(policy, Trainer::new(Some(optimizer), rate, RewardState::default())))
}

/// Begins step `step` (from 0), whose learning rate applies from then on. Clears the results, errors and completion
/// counts of the previous step, and restarts the numbering of dropout masks. Keeps weights, gradient and update count.
pub(crate) fn begin_step(train_state: &mut TrainState, step: u64) {
    // Dropout masks are counted anew: a run that is resumed after a step without an update draws the same ones.
    train_state.policy.resume_at(train_state.policy.generation());
    let trainer = &mut train_state.hooks;
    trainer.step = step;
    trainer.progress = Progress::default();
    trainer.non_finite = None;
    trainer.rewards.begin_step();
}

impl RunHooks for Trainer {
    /// Returns the learning rate of the present step, which every update in the step uses.
    fn learning_rate(&self) -> f64 {
        self.learning_rate.at(self.step)
    }

    /// Returns the number of the present step, from 0; `u32::MAX` if the number is larger.
    fn position(&self) -> u32 {
        u32::try_from(self.step).unwrap_or(u32::MAX)
    }

    /// Returns the number of steps of the run, as it is planned at the present step; `u32::MAX` if the number is
    /// larger.
    fn planned_steps(&self) -> u32 {
        u32::try_from(self.learning_rate.length.planned_at(self.step)).unwrap_or(u32::MAX)
    }

    /// Returns the most new tokens of a completion: the tokens that the longest prompt of the data leaves of
    /// `data.max-length`.
    fn max_new_tokens(&self) -> u32 {
        self.rewards.max_new_tokens
    }

    /// Returns the most turns of an episode and the most bytes of a message of the run's environment; `None` without
    /// one.
    fn environment(&self) -> Option<(u32, usize)> {
        self.rewards.verifiers.environment().map(Environment::bounds)
    }

    /// Returns the name of every verifier and its weight in the reward, in the order of the run file, then those of the
    /// environment.
    fn verifiers(&self) -> Vec<(String, f32)> {
        self.rewards.verifiers.names_and_weights()
    }

    /// Scores rows. Takes the scores from the cache, if there is one, for requests of the reference at temperature 1
    /// with the default taps. If the log-probabilities are not finite, still returns the scores, and sets `non_finite`
    /// to `loss`, which becomes the error if the step fails.
    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        let ScoreRequest { view, taps, temperature, learning } = request;
        let cacheable = *view == View::Reference && *taps == TapRequest::default() && *temperature == 1.0;
        let scored = match &mut self.references {
            Some(references) if cacheable => references.score(policy, rows)?,
            _ => policy.score(view, rows, taps.clone(), *temperature, *learning)?,
        };
        // Diverged weights are noticed here first; the method only sees that its loss is rejected.
        if !scored.tap(Tap::Logprob)?.sum_all()?.to_scalar::<f32>()?.is_finite() {
            self.non_finite = Some("loss");
        }
        Ok(scored)
    }

    /// Clips the gradient, executes an optimizer step with the rate of the present step, adds 1 to the counts of
    /// updates, and clears the gradient. Returns the norm of the gradient before clipping. A gradient whose norm is not
    /// finite is cleared without changing a weight: with `skip_non_finite` the update counts as skipped and the norm is
    /// returned; else `non_finite` becomes `gradient` and the call fails. Also fails, and changes nothing, if the run
    /// has no optimizer.
    fn update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        let rate = self.learning_rate();
        let parameters = policy.parameters();
        let none = || Error::Unsupported("the method updates the parameters itself".into());
        let norm = self.optimizer.as_mut().ok_or_else(none)?.step(parameters, rate, self.learning_rate.clip)?;
        self.progress.norm = norm;
        parameters.clear_gradients()?;
        if norm.is_finite() {
            policy.note_update();
            self.progress.updates += 1;
            return Ok(norm as f32);
        }
        if self.learning_rate.skip_non_finite {
            self.progress.skipped += 1;
            return Ok(norm as f32);
        }
        self.non_finite = Some("gradient");
        Err(ComputeError::NonFinite(format!("the norm of the gradient is {norm}")).into())
    }

    /// Counts an update that the method made itself: adds 1 to the counts of updates, and clears the gradient. Returns
    /// the norm that the gradient had, which is also the norm that the step reports.
    fn count_update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        let norm = policy.parameters().gradient_norm()?;
        policy.parameters().clear_gradients()?;
        policy.note_update();
        self.progress.norm = norm;
        self.progress.updates += 1;
        self.own_updates += 1;
        Ok(norm as f32)
    }

    /// Samples completions of every prompt. Replaces `sampling.seed` by one drawn from the run's seed, the step and the
    /// number of the call in the step, so that a resumed run samples the same completions. Advances the number of the
    /// call even if sampling fails, and adds the new tokens to the step's count. Fails if the environment fails, and
    /// then records its error as the cause of the failed step, unless the time of the step has passed.
    fn generate(
        &mut self,
        policy: &Policy,
        view: &View,
        prompts: &Arc<Rows>,
        sampling: &Sampling,
        questions: Option<&[Question]>,
    ) -> Result<Vec<Completion>, Error> {
        let RewardState { seed, calls, sampled_tokens, verifiers, failure, max_new_tokens, .. } = &mut self.rewards;
        let stream = format!("sample/{}/{calls}", self.step);
        *calls += 1;
        let sampling = Sampling { seed: Stream::new(*seed, &stream).next_u64(), ..sampling.clone() };
        let questions: Option<Vec<&Question>> = questions.map(|questions| questions.iter().collect());
        let bounds = (&sampling, *max_new_tokens as usize);
        let generated = verifiers.generate((policy, view), &prompts.ids, questions.as_deref(), bounds);
        let completions = match generated {
            Err(crate::error::Error::Model(error)) => return Err(error),
            other => other.map_err(|error| note_failure(failure, error, policy.deadline()))?,
        };
        *sampled_tokens += completions.iter().map(|completion| completion.own_tokens() as u64).sum::<u64>();
        Ok(completions)
    }

    /// Decodes the completions `written` and has every verifier judge each of them; no text reaches the method.
    /// `written.group` gives the index in `questions` of each completion. Returns the verdicts `[completions,
    /// verifiers]`, flat in row-major order, NaN for no verdict. Keeps a few completions of a step in which they are
    /// shown. Fails if the verifiers fail, and then records their error as the cause of the failed step, unless the
    /// time `end` has passed.
    fn judge(
        &mut self,
        policy: &Policy,
        questions: &[Question],
        written: &Completions,
        end: Option<Instant>,
    ) -> Result<Vec<f32>, Error> {
        let tokenizer = policy.model().tokenizer()?;
        let groups = written.group.iter().enumerate();
        let answers: Vec<Answer<'_>> = groups
            .map(|(row, group)| Answer {
                question: &questions[*group as usize],
                ids: written.completion(row),
                last_turn: written.last_turn(row),
                reward: written.rewards[row],
            })
            .collect();
        let RewardState { verifiers, failure, .. } = &mut self.rewards;
        let verdicts = verifiers.verdicts(policy.ranks(), tokenizer, &answers, end);
        let verdicts = match verdicts {
            Err(crate::error::Error::Model(error @ Error::Ranks(_))) => return Err(error),
            other => other.map_err(|error| note_failure(failure, error, end))?,
        };
        if self.shows_completions() && self.rewards.samples.is_empty() {
            let weights = self.rewards.verifiers.names_and_weights();
            self.rewards.samples = pick_samples(tokenizer, &answers, &written.group, &verdicts, &weights)?;
        }
        Ok(verdicts.concat())
    }
}

/// Records the error of a verifier or the environment as the cause of the failed step, unless the time `end` of the
/// step has passed: then the step has failed by its time, whatever they did. Returns the error as one of the model.
fn note_failure(failure: &mut Option<crate::error::Error>, error: crate::error::Error, end: Option<Instant>) -> Error {
    let message = error.to_string();
    *failure = Some(error).filter(|_| end.is_none_or(|end| Instant::now() < end));
    Error::Argument(message)
}

#[cfg(test)]
mod tests;
