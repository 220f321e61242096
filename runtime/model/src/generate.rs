//! Generates completions in static batches, with a cache of keys and values.
//!
//! Every completion draws from its own random stream, named by the seed, the index of its prompt and its number among
//! the prompt's completions, so results do not depend on batching. Chat templates and text are left to `chat` and
//! `tokenizer`.

mod cache;
mod sample;
mod sequence;
#[cfg(test)]
mod tests;

use sequence::Sequence;

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
    /// One completion of at most 256 tokens for each prompt, at temperature 1, without filters and stop texts, with seed
    /// 42.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            max_tokens: 256,
            stop: Vec::new(),
            seed: 42,
            completions: 1,
            first_prompt: 0,
        }
    }
}

impl Sampling {
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The new tokens, an end token included.
    pub ids: Vec<u32>,
    /// The log-probability of each new token under the distribution that it was drawn from; at temperature 0, under
    /// the model's own distribution at temperature 1.
    pub logprobs: Vec<f32>,
    /// Whether the completion ended by an end token or a stop text, not by its length or by `on_token`.
    pub finished: bool,
}

/// Generates `sampling.completions` completions of each prompt (token ids); those of one prompt are adjacent in the
/// result. Runs at most [`BATCH`] completions at a time. Calls `on_token` with the index of the completion in the
/// result and each new token, the last one included; if `on_token` returns false, that completion ends. With
/// `max_tokens` 0, all completions are empty; with `completions` 0 or no prompts, so is the result.
///
/// # Errors
/// When a setting is outside its range, a prompt is empty, fills the model's context or holds unknown tokens, stop
/// texts are given but the model has no tokenizer, a snapshot does not exist, the deadline has passed, or the model
/// gives no finite logits.
pub fn generate(
    policy: &Policy,
    view: &View,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    on_token: &mut dyn FnMut(usize, u32) -> bool,
) -> Result<Vec<Completion>> {
    sampling.check()?;
    let configuration = &policy.model_of(view).configuration;
    check_prompts(configuration, prompts)?;
    let room = configuration.max_positions;
    let sequence = |number: usize| Sequence::new(number, sampling, room - prompts[number / sampling.completions].len());
    let mut sequences: Vec<Sequence> = (0..prompts.len() * sampling.completions).map(sequence).collect();
    if sampling.max_tokens > 0 {
        for batch in sequences.chunks_mut(BATCH) {
            generate_batch(policy, view, prompts, sampling, batch, on_token)?;
        }
    }
    Ok(sequences.into_iter().map(|sequence| sequence.completion).collect())
}

/// Generates the completions of one batch to their ends, into the sequences of `batch`, which belong to `prompts` by
/// index: runs the prompts, then one token per unfinished sequence and step. Empties the cache slot of each sequence
/// that ends. Answer-only patches change the generated tokens, not the prompts. At temperature 0, logits are those of
/// temperature 1.
fn generate_batch(
    policy: &Policy,
    view: &View,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    batch: &mut [Sequence],
    on_token: &mut dyn FnMut(usize, u32) -> bool,
) -> Result<()> {
    let network = policy.network(view)?;
    let temperature = if sampling.temperature > 0.0 { sampling.temperature } else { 1.0 };
    let head = OutputHead::new(&network, temperature, TapSet::default())?;
    let longest = batch.iter().map(|sequence| prompts[sequence.prompt].len() + sequence.max_tokens).max().unwrap_or(0);
    let (asked, answered) = (AnswerMask::None, AnswerMask::All);
    let first = cache::build_blocks(&network, longest, &asked)?;
    let network = Network { decoding: true, ..network };
    let blocks = cache::build_blocks(&network, longest, &answered)?;
    let stop_criteria = sequence::StopCriteria::new(policy.model(), sampling)?;
    let mut cache = KvCache::new(batch.len(), blocks.len(), network.model.weights.device())?;
    let mut rows = cache::prefill(&network, &first, prompts, batch, &mut cache)?;
    let mut active: Vec<&mut Sequence> = batch.iter_mut().collect();
    loop {
        let choices = sample::sample_tokens(&head.logits(&rows)?, sampling, &mut active)?;
        for (sequence, SampledToken { id, logprob }) in active.iter_mut().zip(choices) {
            sequence.push(id, logprob, &stop_criteria, on_token)?;
            if sequence.ended {
                cache.clear_slot(sequence.slot);
            }
        }
        active.retain(|sequence| !sequence.ended);
        if active.is_empty() {
            return Ok(());
        }
        cache::recompute_outgrown(&network, prompts, &active, &mut cache)?;
        rows = cache::decode_step(&network, &blocks, &active, &mut cache)?;
    }
}

/// Checks that every prompt has a token, is shorter than the model's context, and holds only tokens of the vocabulary.
fn check_prompts(configuration: &Configuration, prompts: &[Vec<u32>]) -> Result<()> {
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
