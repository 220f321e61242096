//! Generates completions in static batches, with a cache of keys and values.
//!
//! Every completion draws from its own random stream, named by the seed, the index of its prompt and its number among
//! the prompt's completions, so results do not depend on batching. [`generate_turns`] lets a completion go on after a
//! reply to it. Chat templates and text are left to `chat` and `tokenizer`.

mod cache;
mod sample;
mod sequence;
#[cfg(test)]
mod tests;

use std::ops::Range;

use sequence::Sequence;
use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::decoder::head::OutputHead;
use crate::decoder::hook::AnswerMask;
use crate::decoder::network::Network;
use crate::error::{Error, Result};
pub use crate::policy::BATCH;
use crate::policy::{Policy, View};
use tunebox_compute::fused::{KvCache, SampledToken, TapSet};

/// How completions are sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this; 0 takes the likeliest token.
    pub temperature: f32,
    /// Samples from the k likeliest tokens only; 0 turns this off.
    pub top_k: usize,
    /// Samples only from the fewest likeliest tokens that together hold this share of the probability, in (0, 1].
    pub top_p: f32,
    /// Samples only from tokens with at least this share of the likeliest token's probability, in [0, 1].
    pub min_p: f32,
    /// The tokens to sample from, in ascending order; `None` for all. The filters apply to what they leave.
    pub allowed: Option<Vec<u32>>,
    /// The most new tokens of a completion, including the end token; fewer if the model's context ends before.
    pub max_tokens: usize,
    /// Texts that end a completion as soon as it contains one; their tokens stay in [`Completion::ids`].
    pub stop: Vec<String>,
    /// The seed of the random streams.
    pub seed: u64,
    /// The number of completions of each prompt.
    pub completions: usize,
    /// The number of the first prompt in the names of the random streams. If a list of prompts is split over several
    /// calls that each set this to the position of their first prompt, the results are those of one call.
    pub first_prompt: u64,
}

impl Default for Sampling {
    /// One completion of at most 256 tokens for each prompt, at temperature 1, without filters and stop texts, with
    /// seed 42.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            allowed: None,
            max_tokens: 256,
            stop: Vec::new(),
            seed: 42,
            completions: 1,
            first_prompt: 0,
        }
    }
}

impl Sampling {
    /// How many tokens at the end of a completion are decoded after each new token to look for a stop text; 0 without
    /// stop texts.
    #[must_use]
    pub fn decoded_tokens(&self) -> usize {
        // A token is at least a byte long, and a character may lie across four.
        self.stop.iter().map(|stop| stop.len() + 4).max().unwrap_or(0)
    }

    /// Checks that the temperature is finite and not negative, top-p in (0, 1] and min-p in [0, 1]. The error names the
    /// first setting, in this order, that is not.
    fn check(&self) -> Result<()> {
        let Self { temperature, top_p, min_p, .. } = *self;
        let checks = [
            (temperature.is_finite() && temperature >= 0.0, "temperature", temperature, "0 or more"),
            (top_p > 0.0 && top_p <= 1.0, "top-p", top_p, "in (0, 1]"),
            ((0.0..=1.0).contains(&min_p), "min-p", min_p, "in [0, 1]"),
        ];
        match checks.into_iter().find(|(is_right, ..)| !is_right) {
            Some((_, name, found, allowed)) => {
                Err(Error::Argument(format!("sampling `{name}` is `{found}`; it must be {allowed}")))
            }
            None => Ok(()),
        }
    }
}

/// A generated completion of one prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The new tokens, end tokens included, and those of replies.
    pub ids: Vec<u32>,
    /// The log-probability of each new token under the distribution that it was drawn from; at temperature 0, under
    /// the model's own distribution at temperature 1. 0 for the tokens of replies.
    pub logprobs: Vec<f32>,
    /// Whether the completion ended by an end token or a stop text, not by its length or by `on_token`; with replies,
    /// whether a reply ended it.
    pub finished: bool,
    /// The places in `ids` of the tokens of each reply, in order. The model wrote all other tokens, the last one
    /// included.
    pub replies: Vec<Range<usize>>,
    /// The reward that the last reply gave.
    pub reward: Option<f32>,
}

impl Completion {
    /// The tokens after the last reply; all tokens if there is none.
    #[must_use]
    pub fn last_turn(&self) -> &[u32] {
        self.ids.get(self.replies.last().map_or(0, |reply| reply.end)..).unwrap_or(&[])
    }

    /// The number of tokens that the model wrote.
    #[must_use]
    pub fn own_tokens(&self) -> usize {
        self.ids.len() - self.replies.iter().map(Range::len).sum::<usize>()
    }

    /// Whether the token at this place in `ids` belongs to a reply, not to what the model wrote.
    fn is_reply(&self, place: usize) -> bool {
        self.replies.iter().any(|reply| reply.contains(&place))
    }
}

/// The answer to a completion that ended by an end token or a stop text.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Tokens after which the model goes on. The completion ends, unfinished, if there are none, if they and one more
    /// do not fit, or if the model wrote `max_tokens` tokens.
    Tokens(Vec<u32>),
    /// The completion is finished, with its reward, if any.
    End(Option<f32>),
    /// The completion ends here, unfinished.
    Cut,
}

/// How completions that ended by an end token or a stop text are answered.
pub struct Turns<'a> {
    /// The most tokens of a completion, those of replies included; fewer if the model's context ends before.
    pub room: usize,
    /// Answers the completion with this index in the result.
    pub reply: &'a mut dyn FnMut(usize, &Completion) -> Result<Reply>,
}

/// The callbacks of a generation.
struct Listener<'a> {
    /// Gets the index of a completion and each token that the model wrote; returns false to end the completion.
    on_token: &'a mut dyn FnMut(usize, u32) -> bool,
    /// Answers completions; `None` to end them.
    turns: Option<Turns<'a>>,
}

/// Generates `sampling.completions` completions of each prompt (token ids); those of one prompt are adjacent in the
/// result. Runs at most [`BATCH`] completions at a time. Calls `on_token` with the index of the completion in the
/// result and each new token, the last one included; if `on_token` returns false, that completion ends. With
/// `max_tokens` 0, all completions are empty; with `completions` 0 or no prompts, so is the result.
///
/// # Errors
/// When a setting is outside its range, no token is allowed or one that is not in the vocabulary, a prompt is empty,
/// fills the model's context or holds unknown tokens, stop texts are given but the model has no tokenizer, a snapshot
/// does not exist, the deadline has passed, or the model gives no finite logits.
pub fn generate(
    policy: &Policy,
    view: &View,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    on_token: &mut dyn FnMut(usize, u32) -> bool,
) -> Result<Vec<Completion>> {
    generate_all(policy, view, prompts, sampling, &mut Listener { on_token, turns: None })
}

/// Generates completions as [`generate`] does, and lets each that ends by an end token or a stop text go on after the
/// reply that `turns` gives. `max_tokens` counts the tokens that the model wrote. The random stream of a completion
/// goes on over its turns, so results do not depend on batching here either. The cache of keys and values is kept over
/// the turns; the tokens of a reply run one by one.
///
/// # Errors
/// Those of [`generate`] and of `turns.reply`, and a reply with tokens that are not in the vocabulary.
pub fn generate_turns(
    policy: &Policy,
    view: &View,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    turns: Turns<'_>,
) -> Result<Vec<Completion>> {
    let Turns { room, reply } = turns;
    let mut checked = |number: usize, completion: &Completion| {
        let answer = reply(number, completion)?;
        if let Reply::Tokens(ids) = &answer {
            policy.model().configuration.check_tokens("the reply", ids)?;
        }
        Ok(answer)
    };
    let turns = Some(Turns { room, reply: &mut checked });
    generate_all(policy, view, prompts, sampling, &mut Listener { on_token: &mut |_, _| true, turns })
}

/// Checks settings, prompts and allowed tokens, then generates the completions of all prompts, batch by batch. Runs
/// nothing, and returns empty completions, if `max_tokens` or the room of the turns is 0.
fn generate_all(
    policy: &Policy,
    view: &View,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    listener: &mut Listener<'_>,
) -> Result<Vec<Completion>> {
    sampling.check()?;
    let configuration = &policy.model_of(view).configuration;
    check_prompts(configuration, prompts)?;
    // The head of a teacher may be narrower than that of the model.
    if let Some(allowed) = &sampling.allowed {
        if allowed.is_empty() {
            return Err(Error::Argument("no token is allowed to be sampled".into()));
        }
        configuration.check_tokens("the allowed tokens", allowed)?;
    }
    let most = listener.turns.as_ref().map_or(sampling.max_tokens, |turns| turns.room);
    let context = configuration.max_positions;
    let sequence = |number: usize| {
        let prompt = prompts[number / sampling.completions].len();
        Sequence::new(number, sampling, prompt, most.min(context - prompt))
    };
    let mut sequences: Vec<Sequence> = (0..prompts.len() * sampling.completions).map(sequence).collect();
    if sampling.max_tokens > 0 && most > 0 {
        for batch in sequences.chunks_mut(BATCH) {
            generate_batch(policy, view, prompts, sampling, batch, listener)?;
        }
    }
    Ok(sequences.into_iter().map(|sequence| sequence.completion).collect())
}

/// Generates the completions of one batch to their ends, into the sequences of `batch`, which belong to `prompts` by
/// index: runs the prompts, then one token per unfinished sequence and step. Empties the cache slot of each sequence
/// that ends. Answer-only patches change the tokens that the model wrote, not prompts and replies. At temperature 0,
/// logits are those of temperature 1.
fn generate_batch(
    policy: &Policy,
    view: &View,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    batch: &mut [Sequence],
    listener: &mut Listener<'_>,
) -> Result<()> {
    let network = policy.network(view)?;
    let temperature = if sampling.temperature > 0.0 { sampling.temperature } else { 1.0 };
    let head = OutputHead::new(&network, temperature, TapSet::default())?;
    let longest = batch.iter().map(|sequence| sequence.prompt_tokens + sequence.room).max().unwrap_or(0);
    let first = cache::build_blocks(&network, longest, &AnswerMask::None)?;
    let network = Network { decoding: true, ..network };
    let blocks = cache::DecodingBlocks::new(&network, longest, listener.turns.is_some())?;
    let stop_criteria = sequence::StopCriteria::new(policy.model(), sampling)?;
    let mut cache = KvCache::new(batch.len(), blocks.own.len(), network.model.weights.device())?;
    let mut rows = cache::prefill(&network, &first, prompts, batch, &mut cache)?;
    let mut active: Vec<&mut Sequence> = batch.iter_mut().collect();
    loop {
        let (rows_of, mut ready) = cache::ready_sequences(&rows, &mut active, &cache)?;
        if !ready.is_empty() {
            let choices = sample::sample_tokens(&head.logits(&rows_of)?, sampling, &mut ready)?;
            for (sequence, SampledToken { id, logprob }) in ready.into_iter().zip(choices) {
                sequence.push(id, logprob, &stop_criteria, listener)?;
                if sequence.ended {
                    cache.clear_slot(sequence.slot);
                }
            }
        }
        active.retain(|sequence| !sequence.ended);
        if active.is_empty() {
            return Ok(());
        }
        cache::recompute_outgrown(&network, prompts, &active, &mut cache)?;
        rows = cache::decode_tokens(&network, &blocks, &mut active, &mut cache)?;
    }
}

/// Checks that every prompt has a token, is shorter than the model's context, and holds only tokens of the vocabulary.
///
/// # Errors
/// The first prompt that is not.
pub fn check_prompts(configuration: &Configuration, prompts: &[Vec<u32>]) -> Result<()> {
    let room = configuration.max_positions;
    for (number, prompt) in prompts.iter().enumerate() {
        let length = prompt.len();
        if length == 0 {
            return Err(Error::Argument(format!("prompt `{number}` is empty; a completion starts from a token")));
        }
        if length >= room {
            return Err(Error::Argument(format!("prompt `{number}` has `{length}` tokens, the model takes `{room}`")));
        }
        configuration.check_tokens(&format!("prompt `{number}`"), prompt)?;
    }
    Ok(())
}
