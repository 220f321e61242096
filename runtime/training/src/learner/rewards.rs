//! Completions of a run, and the verdicts of its verifiers.
//!
//! Seeds come from the run's seed, the step and the number of the call in it, so that a resumed run samples the same
//! completions. They are decoded here for the verifiers; no text reaches the method.

use std::sync::Arc;
use std::time::Instant;

use tunebox_compute::random::Stream;
use tunebox_model::error::Error as ModelError;
use tunebox_model::generate::{self, Completion, generate};
use tunebox_model::policy::{Policy, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Completions, Question, Sampler};

use crate::error::Error;
use crate::verifiers::{Answer, Verifiers};

/// The verifiers, and counts of the completions sampled and judged in the present step.
#[derive(Default)]
pub(crate) struct RewardState {
    /// The run's verifiers.
    pub(crate) verifiers: Verifiers,
    /// New tokens of a completion at most.
    pub(crate) max_new_tokens: u32,
    /// The run's seed.
    seed: u64,
    /// Calls of `generate` in the present step.
    calls: u64,
    /// Tokens sampled in the present step.
    pub(crate) sampled_tokens: u64,
    /// The error of the verifiers in the present step.
    pub(crate) failure: Option<Error>,
}

impl RewardState {
    /// The state before the first step. `seed` is the run's; `max_new_tokens` is the default maximum length of a
    /// completion.
    pub(crate) fn new(verifiers: Verifiers, max_new_tokens: u32, seed: u64) -> Self {
        Self { verifiers, max_new_tokens, seed, ..Self::default() }
    }

    /// Clears the counts and the error of the step before, also those of the verifiers.
    pub(super) fn begin_step(&mut self) {
        (self.calls, self.sampled_tokens, self.failure) = (0, 0, None);
        self.verifiers.begin_step();
    }

    /// Samples completions of prompts with a seed drawn from the run's seed, `step` and the number of the call in the
    /// step; see [`RunHooks::generate`](tunebox_sandbox::RunHooks::generate). Adds their tokens to the step's count.
    pub(super) fn generate(
        &mut self,
        policy: &Policy,
        view: &View,
        prompts: &Arc<Rows>,
        sampler: &Sampler,
        step: u64,
    ) -> Result<Vec<Completion>, ModelError> {
        let stream = format!("sample/{step}/{}", self.calls);
        self.calls += 1;
        let sampling = generate::Sampling {
            temperature: sampler.temperature,
            top_k: sampler.top_k as usize,
            top_p: sampler.top_p,
            min_p: sampler.min_p,
            max_tokens: sampler.max_tokens.unwrap_or(self.max_new_tokens) as usize,
            stop: Vec::new(),
            seed: Stream::new(self.seed, &stream).next_u64(),
            completions: sampler.completions as usize,
            first_prompt: 0,
        };
        let completions = generate(policy, view, &prompts.ids, &sampling, &mut |_, _| true)?;
        self.sampled_tokens += completions.iter().map(|completion| completion.ids.len() as u64).sum::<u64>();
        Ok(completions)
    }

    /// Decodes completions and scores them by every verifier; see
    /// [`RunHooks::judge`](tunebox_sandbox::RunHooks::judge). Returns the verdicts of the first completion by verifier,
    /// then those of the next. Records a failure of the verifiers in `failure`.
    pub(super) fn judge(
        &mut self,
        policy: &Policy,
        questions: &[Question],
        written: &Completions,
        end: Option<Instant>,
    ) -> Result<Vec<f32>, ModelError> {
        let tokenizer = policy.model().tokenizer()?;
        let mut answers = Vec::with_capacity(written.rows.count());
        for (row, group) in written.group.iter().enumerate() {
            let completion = tokenizer.decode(written.completion(row), true)?;
            answers.push(Answer { question: &questions[*group as usize], completion });
        }
        match self.verifiers.verdicts(&answers, end) {
            Ok(verdicts) => Ok(verdicts.concat()),
            Err(error) => {
                let message = error.to_string();
                // Past its end the step has failed by its time, whatever a verifier did.
                self.failure = Some(error).filter(|_| end.is_none_or(|end| Instant::now() < end));
                Err(ModelError::Argument(message))
            }
        }
    }
}
