//! The student writes, and the run's verifiers judge what it wrote.
//!
//! Seeds come from the run's seed, the step and the number of the call in it, so that a resumed run
//! writes the same. Text is made here and goes to the verifiers; nothing of it reaches the method.

use std::sync::Arc;

use tunebox_compute::random::Stream;
use tunebox_model::error::Error as ModelError;
use tunebox_model::generate::{self, Completion, generate};
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Question, Sampler, Sampling, Written};

use super::Student;
use crate::error::Error;
use crate::panel::{Asked, Panel};

/// What a student needs to write and to be judged.
#[derive(Default)]
pub(crate) struct Desk {
    /// The run's verifiers.
    pub(crate) panel: Panel,
    /// New tokens of a completion at most.
    pub(crate) room: u32,
    /// The run's seed.
    pub(crate) seed: u64,
    /// Calls in the present step.
    calls: u64,
    /// Tokens written in the present step.
    written: u64,
    /// Why the verdicts of the present step are worth nothing.
    failure: Option<Error>,
}

impl Desk {
    /// A desk before its first step.
    pub(crate) fn new(panel: Panel, room: u32, seed: u64) -> Self {
        Self { panel, room, seed, ..Self::default() }
    }

    /// Begins a step.
    pub(super) fn begin(&mut self) {
        (self.calls, self.written, self.failure) = (0, 0, None);
        self.panel.begin();
    }

    /// Tokens written in the present step.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Why the verdicts of the present step are worth nothing, if they are.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn next_seed(&mut self, step: u64) -> u64 {
        let name = format!("sample/{step}/{}", self.calls);
        self.calls += 1;
        Stream::new(self.seed, &name).next_u64()
    }
}

impl Sampling for Student {
    fn new_tokens(&self) -> u32 {
        self.desk.room
    }

    fn positions(&self) -> u32 {
        u32::try_from(self.policy.model().configuration.max_positions).unwrap_or(u32::MAX)
    }

    fn multiply_adds(&self, tokens: u64) -> u64 {
        self.policy.model().configuration.weights().saturating_mul(tokens)
    }

    fn cache_bytes(&self, sequences: u64, tokens: u64) -> u64 {
        self.policy.cache_memory(sequences, tokens)
    }

    fn generate(&mut self, view: &View, prompts: &Arc<Rows>, sampler: &Sampler) -> Result<Vec<Completion>, ModelError> {
        let sampling = generate::Sampling {
            temperature: sampler.temperature,
            top_k: sampler.top_k as usize,
            top_p: sampler.top_p,
            min_p: sampler.min_p,
            max_tokens: sampler.max_tokens.unwrap_or(self.desk.room) as usize,
            stop: Vec::new(),
            seed: self.desk.next_seed(self.step),
            completions: sampler.completions as usize,
            first_prompt: 0,
        };
        let completions = generate(&self.policy, view, &prompts.ids, &sampling, &mut |_, _| true)?;
        self.desk.written += completions.iter().map(|completion| completion.ids.len() as u64).sum::<u64>();
        Ok(completions)
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        self.desk.panel.names_and_weights()
    }

    fn judge(&mut self, questions: &[Question], written: &Written) -> Result<Vec<f32>, ModelError> {
        let tokenizer = self.policy.model().tokenizer()?;
        let mut asked = Vec::with_capacity(written.rows.count());
        for (row, group) in written.group.iter().enumerate() {
            let completion = tokenizer.decode(written.completion(row), true)?;
            asked.push(Asked { question: &questions[*group as usize], completion });
        }
        match self.desk.panel.verdicts(&asked) {
            Ok(verdicts) => Ok(verdicts.concat()),
            Err(error) => {
                let message = error.to_string();
                self.desk.failure = Some(error);
                Err(ModelError::Argument(message))
            }
        }
    }
}
