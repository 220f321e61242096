//! Implements `wit/sample.wit`: one function for each of the interface, in its order.
//!
//! Limits are checked before the model samples anything: the largest possible numbers of rows, tokens and bytes
//! are charged first, and the tokens and bytes that were not used are given back.

use std::sync::Arc;

use tunebox_compute::budget::Reservation;
use tunebox_model::generate::{BATCH, Sampling};
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;

use super::data::row_bytes;
use super::reward::DECODING_COPIES;
use crate::bindings::sample::{Host, HostCompletions, HostSampler};
use crate::completions::Completions;
use crate::figures::group_digits;
use crate::printable::printable;
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result, ensure};
use crate::state::{Answer, CompletionsEntry, DEVICE, Handle, HostContext, RowsEntry, SamplerEntry, State, ViewEntry};

/// Bytes of a token of a completion while it is held: id (4), target mark (1), log-probability (4).
const TOKEN_BYTES: u64 = 9;

/// The default of `max-tokens`, which is that of TRL. A run may allow fewer.
pub const NEW_TOKENS: u32 = 256;

/// Bytes of a completion beside its tokens: three lists, its prompt's number, and how it ended.
const COMPLETION_BYTES: u64 = 256;

/// The most stop texts of a sampler.
const STOPS: usize = 8;

/// The most bytes of a stop text.
const STOP_BYTES: usize = 64;

/// Bytes of a stop text while it is held, and of its list.
const TEXT_BYTES: u64 = 128;

impl HostSampler for HostContext<'_> {
    /// Returns a handle of a sampler with the default settings.
    fn new(&mut self) -> wasmtime::Result<Handle<SamplerEntry>> {
        self.enter("sample.sampler.constructor")?;
        let sampling = Sampling { max_tokens: NEW_TOKENS as usize, ..Sampling::default() };
        Ok(self.table.push(SamplerEntry { sampling, bytes: [None, None] }).map_err(Refusal::from)?)
    }

    /// Sets what the logits are divided by, finite and 0 or more, else `invalid-argument`; 0 takes the likeliest token.
    fn temperature(&mut self, this: Handle<SamplerEntry>, value: f32) -> Result<()> {
        self.enter("sample.sampler.temperature")?;
        check_argument(value.is_finite() && value >= 0.0, "temperature", &value, "0 or more, and finite")?;
        self.table.get_mut(&this)?.sampling.temperature = value;
        Ok(())
    }

    /// Restricts sampling to the `value` likeliest tokens; 0 removes the restriction.
    fn top_k(&mut self, this: Handle<SamplerEntry>, value: u32) -> Result<()> {
        self.enter("sample.sampler.top-k")?;
        self.table.get_mut(&this)?.sampling.top_k = value as usize;
        Ok(())
    }

    /// Restricts sampling to the likeliest tokens that together hold the probability `value`, in (0, 1], else
    /// `invalid-argument`.
    fn top_p(&mut self, this: Handle<SamplerEntry>, value: f32) -> Result<()> {
        self.enter("sample.sampler.top-p")?;
        check_argument(value > 0.0 && value <= 1.0, "top-p", &value, "above 0 and at most 1")?;
        self.table.get_mut(&this)?.sampling.top_p = value;
        Ok(())
    }

    /// Restricts sampling to tokens with at least `value` times the likeliest token's probability; `invalid-argument`
    /// for a value outside [0, 1].
    fn min_p(&mut self, this: Handle<SamplerEntry>, value: f32) -> Result<()> {
        self.enter("sample.sampler.min-p")?;
        check_argument((0.0..=1.0).contains(&value), "min-p", &value, "0 to 1")?;
        self.table.get_mut(&this)?.sampling.min_p = value;
        Ok(())
    }

    /// Sets the most new tokens of a completion, end token included: 1 to the run's own limit, else `invalid-argument`.
    /// In a run that does not sample, every value is an error.
    fn max_tokens(&mut self, this: Handle<SamplerEntry>, value: u32) -> Result<()> {
        self.enter("sample.sampler.max-tokens")?;
        let limit = self.train_state().hooks.max_new_tokens();
        let allowed = format!("1 to {limit}, what the run's `data.max-length` leaves after its longest prompt");
        check_argument((1..=limit).contains(&value), "max-tokens", &value, &allowed)?;
        self.table.get_mut(&this)?.sampling.max_tokens = value as usize;
        Ok(())
    }

    /// Sets the completions for each prompt: 1 to the limit `completions`, else `invalid-argument`.
    fn completions(&mut self, this: Handle<SamplerEntry>, value: u32) -> Result<()> {
        self.enter("sample.sampler.completions")?;
        let limit = self.limits.completions;
        check_argument((1..=limit).contains(&value), "completions", &value, &format!("1 to {limit}"))?;
        self.table.get_mut(&this)?.sampling.completions = value as usize;
        Ok(())
    }

    /// Adds a stop text and reserves its bytes; `invalid-argument` for an empty text, one of more than [`STOP_BYTES`]
    /// bytes, or one more than [`STOPS`] texts.
    fn stop(&mut self, this: Handle<SamplerEntry>, text: String) -> Result<()> {
        self.enter("sample.sampler.stop")?;
        let length = text.len();
        let allowed = || Refusal::argument(format!("a stop text has 1 to {STOP_BYTES} bytes, this has {length}"));
        ensure((1..=STOP_BYTES).contains(&length), allowed)?;
        let texts = self.table.get(&this)?.sampling.stop.len();
        ensure(texts < STOPS, || Refusal::argument(format!("a sampler has at most {STOPS} stop texts")))?;
        let bytes = self.reserve(TEXT_BYTES * (texts as u64 + 1))?;
        let entry = self.table.get_mut(&this)?;
        entry.bytes[1] = Some(bytes);
        entry.sampling.stop.push(text);
        Ok(())
    }

    /// Restricts sampling to these tokens, in place of an earlier list. Charges the work for each and reserves their
    /// bytes; `invalid-argument` for an empty list, one longer than the vocabulary, or a token that is not in it.
    fn allow_tokens(&mut self, this: Handle<SamplerEntry>, mut ids: Vec<u32>) -> Result<()> {
        self.enter("sample.sampler.allow-tokens")?;
        self.meters.charge_units(ids.len() as u64)?;
        let (count, most) = (ids.len(), self.configuration.vocabulary);
        let allowed = || Refusal::argument(format!("1 to {most} tokens are allowed at once, these are {count}"));
        ensure((1..=most).contains(&count), allowed)?;
        self.check_tokens(&ids)?;
        ids.sort_unstable();
        ids.dedup();
        // The list has the room that the method asked for.
        ids.shrink_to_fit();
        let bytes = self.reserve(4 * ids.len() as u64)?;
        let entry = self.table.get_mut(&this)?;
        entry.bytes[0] = Some(bytes);
        entry.sampling.allowed = Some(ids);
        Ok(())
    }

    /// Deletes the handle. Not counted as a call.
    fn drop(&mut self, this: Handle<SamplerEntry>) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl HostCompletions for HostContext<'_> {
    /// Returns a handle of rows of prompt and completion whose targets are the completion's tokens.
    fn rows(&mut self, this: Handle<CompletionsEntry>) -> wasmtime::Result<Handle<RowsEntry>> {
        self.enter("sample.completions.rows")?;
        let rows = self.table.get(&this)?.0.rows.clone();
        Ok(self.push_rows(&rows)?)
    }

    /// Returns a handle of the log-probabilities under the distribution that was sampled from: `[rows, width]`, `f32`,
    /// 0 off the targets.
    fn logprob(&mut self, this: Handle<CompletionsEntry>) -> Answer {
        self.enter("sample.completions.logprob")?;
        let written = self.table.get(&this)?.0.clone();
        let elements = written.rows.count() as u64 * written.rows.width() as u64;
        self.meters.charge_units(elements)?;
        self.push_new_tensor(elements, |_| written.logprob_tensor(&DEVICE))
    }

    /// Returns a handle of a tensor that is 1 where a completion ended by itself, 0 where it was cut: `[rows]`, `f32`.
    fn finished(&mut self, this: Handle<CompletionsEntry>) -> Answer {
        self.enter("sample.completions.finished")?;
        let written = self.table.get(&this)?.0.clone();
        self.meters.charge_units(written.finished.len() as u64)?;
        let flags: Vec<f32> = written.finished.iter().map(|ended| f32::from(u8::from(*ended))).collect();
        self.push_list(&flags)
    }

    /// Returns a handle of the index of the prompt that each row continues: `[rows]`, `u32`.
    fn group(&mut self, this: Handle<CompletionsEntry>) -> Answer {
        self.enter("sample.completions.group")?;
        let written = self.table.get(&this)?.0.clone();
        self.meters.charge_units(written.group.len() as u64)?;
        self.push_list(&written.group)
    }

    /// Deletes the handle. Not counted as a call.
    fn drop(&mut self, this: Handle<CompletionsEntry>) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl Host for HostContext<'_> {
    /// Counts the call and returns the tokens that end a completion, in ascending order.
    fn end_tokens(&mut self) -> wasmtime::Result<Vec<u32>> {
        self.enter("sample.end-tokens")?;
        Ok(self.train_state().policy.model().end_tokens())
    }

    /// Samples completions of each prompt under `view` and returns their handle. Charges tokens, multiply-adds and
    /// bytes at their largest number first; returns unused tokens and bytes afterwards, but not multiply-adds. Charges
    /// the tokens that are decoded to look for stop texts.
    ///
    /// Of the batch's prompts in a run with an environment, this answers the completions: charges the most answers as
    /// verdicts, and tokens of messages as multiply-adds and bytes up to the run's own limit of new tokens. The texts
    /// of the episodes that are open at a time are reserved until all have ended.
    ///
    /// Errors: `invalid-argument` for no prompts, or a prompt without tokens or as long as the model's maximum;
    /// `unsupported` if the run does not sample; `out-of-budget` past the number of completions in one call; the error
    /// of the run's `generate` hook. Past `step_wall_seconds` ends the method. Caches that exceed `activation_bytes` or
    /// the memory that is left end the method.
    fn generate(
        &mut self,
        view: Handle<ViewEntry>,
        prompts: Handle<RowsEntry>,
        sampler: Handle<SamplerEntry>,
    ) -> Answer<CompletionsEntry> {
        self.enter("sample.generate")?;
        let view = self.table.get(&view)?.0.clone();
        let prompts = self.table.get(&prompts)?.0.clone();
        let mut sampling = self.table.get(&sampler)?.sampling.clone();
        let each = self.max_new_tokens(&prompts, &sampling)?;
        sampling.max_tokens = each as usize;
        let rows = self.completion_count(&prompts, &sampling)?;
        self.meters.count_sampled_tokens(rows * u64::from(each))?;
        self.meters.charge_units(rows * u64::from(each) * sampling.decoded_tokens() as u64)?;
        let batch = self.batch.clone();
        let questions = batch.as_ref().and_then(|batch| batch.questions_of(&prompts));
        let episodes = self.charge_episodes(questions.is_some(), rows)?;
        let room = u64::from(episodes.as_ref().map_or(each, |(room, _)| *room));
        let largest = rows * (prompts.width() as u64 + room);
        let multiply_adds = self.multiply_adds(&view, largest);
        self.meters.count_multiply_adds(multiply_adds)?;
        self.check_cache(&view, rows, prompts.width() as u64 + room)?;
        let fixed = row_bytes(prompts.tokens() as u64, prompts.count()) + COMPLETION_BYTES * rows;
        let reservation = self.reserve(TOKEN_BYTES * largest + fixed)?;
        let generated = {
            let train_state = &mut *self.train_state();
            train_state.hooks.generate(&train_state.policy, &view, &prompts, &sampling, questions)
        };
        drop(episodes);
        self.meters.check_time()?;
        let completions = generated?;
        let used: u64 = completions.iter().map(|completion| completion.own_tokens() as u64).sum();
        self.meters.refund_sampled_tokens(rows * u64::from(each) - used.min(rows * u64::from(each)));
        let written = Completions::new(prompts, completions)?;
        let held = TOKEN_BYTES * written.rows.tokens() as u64;
        let written = written.with_reservation(reservation.shrunk_to(held + fixed));
        Ok(self.table.push(CompletionsEntry(Arc::new(written)))?)
    }
}

impl State {
    /// Returns the most new tokens of a completion: the sampler's setting, at most the run's own limit. Not reduced for
    /// prompts near the model's maximum length, whose completions end earlier.
    ///
    /// Errors: `invalid-argument` for no prompts, a prompt without tokens or one as long as the model's maximum;
    /// `unsupported` if the run does not sample.
    fn max_new_tokens(&self, prompts: &Rows, sampling: &Sampling) -> Result<u32> {
        ensure(prompts.count() > 0, || Refusal::argument("there are no prompts to continue"))?;
        if let Some(empty) = prompts.ids.iter().position(Vec::is_empty) {
            return Err(Refusal::argument(format!("prompt `{empty}` has no token; a completion starts from one")));
        }
        let limit = self.train_state().hooks.max_new_tokens();
        let denied = || Refusal::new(ErrorCode::Unsupported, "this run does not let the model write");
        ensure(limit > 0, denied)?;
        let (width, most) = (prompts.width(), self.configuration.max_positions);
        let message = || format!("a prompt has {width} tokens, the model takes {most} with what follows");
        ensure(width < most, || Refusal::argument(message()))?;
        Ok(u32::try_from(sampling.max_tokens).map_or(limit, |most| most.min(limit)))
    }

    /// Charges what the run's environment may take to answer `rows` completions: its answers as verdicts, and the bytes
    /// of the texts of the episodes that are open at a time. Returns the most tokens of a completion, messages
    /// included, and the reservation of the texts. `None`, and nothing is charged, if the run has no environment or the
    /// prompts are not those of the batch (`of_batch`).
    fn charge_episodes(&mut self, of_batch: bool, rows: u64) -> Result<Option<(u32, Reservation)>> {
        let (environment, room, most_decoded) = {
            let train_state = &*self.train_state();
            let (hooks, room) = (&train_state.hooks, train_state.hooks.max_new_tokens());
            let tokenizer = train_state.policy.model().tokenizer();
            (hooks.environment(), room, tokenizer.map_or(0, |tokenizer| tokenizer.most_decoded(room as usize)))
        };
        let Some((answers, message_bytes)) = environment.filter(|_| of_batch) else { return Ok(None) };
        self.meters.count_verdicts(rows.saturating_mul(answers.into()))?;
        let episode = most_decoded.saturating_add(u64::from(answers).saturating_mul(message_bytes as u64));
        let decoding = most_decoded.saturating_mul(DECODING_COPIES);
        let texts = self.reserve(episode.saturating_mul(rows.min(BATCH as u64)).saturating_add(decoding))?;
        Ok(Some((room, texts)))
    }

    /// Checks the memory of the key-value caches for `sequences` sequences of `tokens` tokens each. Ends the method if
    /// they and what the model keeps already exceed `activation_bytes` or the memory that is left.
    fn check_cache(&self, view: &View, sequences: u64, tokens: u64) -> Result<()> {
        let cache = self.train_state().policy.cache_memory(view, sequences, tokens);
        Ok(self.check_kept(cache)?)
    }

    /// Returns the number of completions that a call of `generate` samples: prompts times completions for each prompt.
    /// Errors: `out-of-budget` if that is more than the limit `completions`.
    fn completion_count(&self, prompts: &Rows, sampling: &Sampling) -> Result<u64> {
        let rows = (prompts.count() as u64).saturating_mul(sampling.completions as u64);
        let limit = u64::from(self.limits.completions);
        let (count, most) = (group_digits(rows), group_digits(limit));
        let message = || format!("{count} completions in one call, at most {most} are written at once");
        ensure(rows <= limit, || Refusal::new(ErrorCode::OutOfBudget, message()))?;
        Ok(rows)
    }
}

/// Returns `invalid-argument` unless `is_allowed`. `name` and `value` are those of the argument, `allowed` describes
/// its range in the message.
fn check_argument(is_allowed: bool, name: &str, value: &dyn std::fmt::Display, allowed: &str) -> Result<()> {
    let value = printable(&value.to_string(), 48);
    ensure(is_allowed, || Refusal::argument(format!("`{name}` is {value}; it must be {allowed}")))
}
