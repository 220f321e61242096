//! The run's environment: answers completions, so that they go on over several turns, and gives each episode its
//! reward.
//!
//! An environment that traps or takes too long ends the episode without a reward, which is counted and reported once a
//! step. One that fails on most completions ends the run, which would learn from noise.

use std::collections::BTreeMap;
use std::time::Instant;

use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_model::chat::Continuation;
use tunebox_model::generate::{BATCH, Completion, Reply, Sampling, Turns, generate_turns};
use tunebox_model::{Model, Policy, View};
use tunebox_sandbox::{Question, Responder, Response, Turn, Verdict};

use crate::configuration::EnvironmentTable;
use crate::error::Error;
use crate::plan::PlannedEnvironment;
use crate::verifiers::{Counts, TOLERATED_FAILURES};

/// The run's environment.
pub struct Environment {
    pub(crate) name: String,
    /// Its table in the run file.
    pub(crate) table: EnvironmentTable,
    /// The most bytes of a message.
    message_bytes: usize,
    responder: Responder,
    continuation: Continuation,
    /// Its results in the present step.
    pub(crate) counts: Counts,
}

impl Environment {
    /// Starts the environment once with its settings to check them, and drops the instance: the first answer of a call
    /// makes a new one. `model` is the model that the environment will answer.
    ///
    /// # Errors
    /// An environment that rejects its settings or cannot be started, and a model whose chat template does not show
    /// which tokens continue a chat after an answer.
    pub fn open(planned: &PlannedEnvironment, model: &Model) -> Result<Self, Error> {
        let mut responder = Responder::new(planned.admitted.clone(), &planned.settings)?;
        responder.drop_instance();
        Ok(Self {
            name: planned.name.clone(),
            table: planned.table.clone(),
            message_bytes: planned.message_bytes,
            responder,
            continuation: Continuation::of(model)?,
            counts: Counts::default(),
        })
    }

    /// Returns the most turns of the model in an episode, and the most bytes of a message of the environment.
    pub(crate) fn bounds(&self) -> (u32, usize) {
        (self.table.max_turns, self.message_bytes)
    }

    /// Samples completions of every prompt, and has the environment answer each that ends by itself, until the
    /// environment ends the episode, the model had its turns or wrote `sampling.max_tokens` tokens, or the completion
    /// has `room` tokens, messages included. `questions` has one entry for each prompt. Drops the environment's
    /// instance afterwards, so that no state reaches the next call. `end` is when answers must be complete. `total` is
    /// the number of completions on all ranks.
    ///
    /// # Errors
    /// A failed generation. An environment, as soon as it failed on more than half of `total` completions and more than
    /// eight. Answers that are not complete at `end`.
    pub(crate) fn generate(
        &mut self,
        (policy, view): (&Policy, &View),
        (prompts, questions): (&[Vec<u32>], &[&Question]),
        (sampling, room): (&Sampling, usize),
        total: usize,
        end: Option<Instant>,
    ) -> Result<Vec<Completion>, Error> {
        let mut episodes = Episodes {
            environment: self,
            model: policy.model(),
            questions,
            each: sampling.completions,
            completions: total,
            end,
            open: BTreeMap::new(),
            failed: 0,
            failure: None,
        };
        let mut reply = |number: usize, completion: &Completion| episodes.reply(number, completion);
        let generated = generate_turns(policy, view, prompts, sampling, Turns { room, reply: &mut reply });
        let failure = episodes.failure.take();
        self.responder.drop_instance();
        match failure {
            Some(error) => Err(error),
            None => Ok(generated?),
        }
    }

    /// Builds the error about an environment that failed on `failed` of `total` completions, with the first cause in
    /// this step and the exit code of the sandbox.
    pub(crate) fn too_many_failures_error(&self, failed: usize, total: usize) -> Error {
        let what = format!("the environment `{}` failed on {failed} of {total} completions", self.name);
        let explanation = Explanation::new("training", what)
            .with_why(self.counts.reason.clone().unwrap_or_default())
            .with_hint("fix the environment; `tunebox test` in its folder runs its own tests");
        Error::Explained(Box::new(explanation), Exit::Sandbox)
    }

    /// Builds the error about an environment that answers for longer than a step may. Exit code of the sandbox.
    fn too_long_error(&self) -> Error {
        let explanation = Explanation::new("sandbox", "the environment took longer than a step may")
            .with_location(format!("at the environment `{}`", self.name))
            .with_why("its starts and answers together count towards `limits.step-wall-seconds`")
            .with_hint("an environment that is faster, fewer completions, or a higher `limits.step-wall-seconds`");
        Error::Explained(Box::new(explanation), Exit::Sandbox)
    }
}

/// The episodes of one call of [`Environment::generate`].
struct Episodes<'a> {
    environment: &'a mut Environment,
    model: &'a Model,
    /// The record of each prompt.
    questions: &'a [&'a Question],
    /// The completions of each prompt.
    each: usize,
    /// The completions of all prompts, on all ranks.
    completions: usize,
    end: Option<Instant>,
    /// The turns so far of the episodes that go on, by the number of their completion.
    open: BTreeMap<usize, Vec<Turn>>,
    /// Completions on which the environment failed.
    failed: usize,
    /// Why the generation must end.
    failure: Option<Error>,
}

impl Episodes<'_> {
    /// Has the environment answer completion number `number`, which ended by itself. Returns the tokens of the
    /// environment's message, or the end of the episode with its reward. Cuts the episode off, without a reward, if it
    /// had its turns or if the environment failed, which is counted. Fails for tokens that cannot be decoded; and, with
    /// the cause in `failure`, for too many failures, and a time that is over.
    fn reply(&mut self, number: usize, completion: &Completion) -> Result<Reply, tunebox_model::Error> {
        // Episodes of earlier batches are over, also those whose last message did not fit.
        self.open.retain(|open, _| open / BATCH == number / BATCH);
        let tokenizer = self.model.tokenizer()?;
        let text = tokenizer.decode(completion.last_turn(), true)?;
        let mut turns = self.open.remove(&number).unwrap_or_default();
        turns.push(Turn::Completion(text));
        let question = self.questions[number / self.each];
        let environment = &mut *self.environment;
        let answer = question.fields.get(&environment.table.answer).map_or("", String::as_str);
        let response = environment.responder.respond(&question.prompt, answer, &turns, self.end);
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return Err(self.fail(Environment::too_long_error));
        }
        let reason = match response {
            Response::End(reward) => return Ok(Reply::End(reward)),
            Response::Message(_) if turns.len().div_ceil(2) >= environment.table.max_turns as usize => {
                return Ok(Reply::Cut);
            }
            Response::Message(message) => match environment.continuation.encode(tokenizer, &message) {
                Ok(ids) => {
                    turns.push(Turn::Message(message));
                    self.open.insert(number, turns);
                    return Ok(Reply::Tokens(ids));
                }
                Err(error) => format!("its message cannot be passed on: {error}"),
            },
            Response::Failed(reason) => reason,
        };
        environment.counts.add(Verdict::Failed(reason));
        self.failed += 1;
        let (failed, of) = (self.failed, self.completions);
        if failed > TOLERATED_FAILURES.max(of / 2) {
            return Err(self.fail(|environment| environment.too_many_failures_error(failed, of)));
        }
        Ok(Reply::Cut)
    }

    /// Keeps the error that `failure` builds as the cause of the end, and returns it as one of the generation.
    fn fail(&mut self, failure: impl FnOnce(&Environment) -> Error) -> tunebox_model::Error {
        let error = failure(self.environment);
        let message = error.to_string();
        self.failure = Some(error);
        tunebox_model::Error::Argument(message)
    }
}
