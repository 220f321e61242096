//! Measures scoring and generation, without a method.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tunebox_compute::fused::TapSet;
use tunebox_compute::random::Stream;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::{Model, Policy, Rows, View};

use super::settings::BenchSettings;
use crate::error::Error;
use crate::plan::peak_bytes;

/// Number of timed passes. The fastest counts, since only other work of the machine makes a pass slower.
const PASSES: usize = 3;

/// How fast rows are scored.
#[derive(Debug, Clone, Serialize)]
pub struct Scoring {
    /// Scored tokens per second.
    pub scored_tokens_per_second: f64,
    /// Peak memory since the model was opened, in bytes; includes generation if that was measured.
    pub scoring_peak_bytes: Option<u64>,
}

/// How fast completions are generated.
#[derive(Debug, Clone, Serialize)]
pub struct Generation {
    /// Generated tokens per second, one completion at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_tokens_per_second: Option<f64>,
    /// Generated tokens per second, sixteen completions at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_tokens_per_second_16: Option<f64>,
    /// One measurement for each number of completions in [`BenchSettings::prompts`].
    pub written: Vec<Completions>,
    /// Peak memory since the model was opened, in bytes.
    pub generation_peak_bytes: Option<u64>,
}

/// How fast a number of completions is generated at once, each of its own prompt, with greedy decoding.
#[derive(Debug, Clone, Serialize)]
pub struct Completions {
    /// Number of completions.
    pub prompts: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Tokens of each completion.
    pub new_tokens: u32,
    /// Seconds until every completion has its first token.
    pub first_seconds: f64,
    /// Generated tokens per second after that.
    pub tokens_per_second: f64,
}

/// Removes the end tokens and the tokenizer of a model, so that completions have the maximum length. Does nothing if
/// another `Arc` shares the model; completions may then be shorter, and their actual tokens count.
pub(super) fn without_end_tokens(mut model: Arc<Model>) -> Arc<Model> {
    if let Some(model) = Arc::get_mut(&mut model) {
        model.configuration.eos.clear();
        model.tokenizer = None;
    }
    model
}

/// Measures scoring of `rows` random rows of `length` tokens (2 if it is less), all targets, in the fastest of three
/// passes without saved activations, and the peak memory afterwards.
pub(super) fn measure_scoring(policy: &Policy, rows: usize, length: usize) -> Result<Scoring, Error> {
    let ids = random_ids(policy, rows, length.max(2));
    let targets = ids.iter().map(|row| vec![true; row.len()]).collect();
    let rows = Arc::new(Rows::new(ids, targets)?);
    let tokens = rows.tokens() as f64;
    let mut least = f64::INFINITY;
    for _ in 0..PASSES {
        let begun = Instant::now();
        policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false)?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(Scoring {
        scored_tokens_per_second: tokens / least,
        scoring_peak_bytes: peak_bytes(policy.parameters().device()),
    })
}

/// Measures generation for every number of completions in `settings.prompts`, and the peak memory after all of them.
/// The speeds of one and of sixteen completions are `None` if the list lacks 1 or 16.
pub(super) fn measure_generation(policy: &Policy, settings: &BenchSettings) -> Result<Generation, Error> {
    let counts = settings.prompts.iter();
    let written: Vec<_> = counts.map(|count| generate_at_once(policy, settings, *count)).collect::<Result<_, _>>()?;
    let speed = |prompts: u32| written.iter().find(|one| one.prompts == prompts).map(|one| one.tokens_per_second);
    Ok(Generation {
        written_tokens_per_second: speed(1),
        written_tokens_per_second_16: speed(16),
        generation_peak_bytes: peak_bytes(policy.parameters().device()),
        written,
    })
}

/// Measures the greedy generation of `completions` completions at once, each of its own random prompt. Takes the
/// shortest time to the first tokens and the highest speed after them, each of three passes.
fn generate_at_once(policy: &Policy, settings: &BenchSettings, completions: u32) -> Result<Completions, Error> {
    let &BenchSettings { prompt_tokens, new_tokens, .. } = settings;
    let prompts = random_ids(policy, completions as usize, prompt_tokens as usize);
    let sampling = Sampling { temperature: 0.0, max_tokens: new_tokens as usize, ..Sampling::default() };
    let (mut first_seconds, mut speed) = (f64::INFINITY, 0.0_f64);
    for _ in 0..PASSES {
        let (begun, mut times) = (Instant::now(), Vec::new());
        let written = generate(policy, &View::Policy, &prompts, &sampling, &mut |_, _| {
            times.push(Instant::now());
            true
        })?;
        let tokens = written.iter().map(|completion| completion.ids.len()).sum();
        let (first, later) = generation_speeds(begun, &times, prompts.len(), tokens, Instant::now());
        (first_seconds, speed) = (first_seconds.min(first), speed.max(later));
    }
    Ok(Completions { prompts: completions, prompt_tokens, new_tokens, first_seconds, tokens_per_second: speed })
}

/// Returns the seconds from `begun` until each of the `completions` has its first token, and the other tokens per
/// second from then to `ended`. `times` are those of the tokens in order: every completion gets its first token before
/// any gets its second. `tokens` is the number of all tokens. With fewer times than completions, the first tokens count
/// as made at `ended`.
fn generation_speeds(
    begun: Instant,
    times: &[Instant],
    completions: usize,
    tokens: usize,
    ended: Instant,
) -> (f64, f64) {
    let first = completions.checked_sub(1).and_then(|last| times.get(last)).copied().unwrap_or(ended);
    let later = tokens.saturating_sub(completions) as f64;
    (first.duration_since(begun).as_secs_f64(), later / ended.duration_since(first).as_secs_f64())
}

/// Generates `rows` rows of `length` random token ids of the model's vocabulary, the same at every call.
fn random_ids(policy: &Policy, rows: usize, length: usize) -> Vec<Vec<u32>> {
    let mut stream = Stream::new(2, "bench");
    let vocabulary = policy.model().configuration.vocabulary.max(1) as u64;
    (0..rows).map(|_| (0..length).map(|_| (stream.next_u64() % vocabulary) as u32).collect()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_speed_of_writing_counts_from_when_every_completion_has_its_first_token() {
        let begun = Instant::now();
        let at = |milliseconds: u64| begun + Duration::from_millis(milliseconds);
        // Both first tokens within half a second, then two more each within a second.
        let times = [500, 500, 1_000, 1_000, 1_500, 1_500].map(at);
        assert_eq!(generation_speeds(begun, &times, 2, 6, at(1_500)), (0.5, 4.0));
    }
}
