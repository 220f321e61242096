//! The samples of an update: completions of the batch's prompts, judged by the run's verifiers.

use super::Rewards;
use super::advantage::{deviation, mean};
use crate::sample::{Sampler, generate};
use crate::tensor::{from_indices, from_list};
use crate::{Batch, Result, Rows, Settings, Tensor, model, reward, run};

/// How completions are written.
#[derive(Settings, Clone)]
pub struct Sampling {
    /// Completions of every prompt: the group that an advantage is measured in.
    #[setting(default = 8, low = 2, high = 4096)]
    pub completions: u32,

    /// New tokens of a completion at most; 0 for 256, or what `data.max-length` leaves after the longest prompt if that is
    /// less.
    #[setting(default = 0)]
    pub max_tokens: u32,

    /// Logits are divided by this when the model writes, and when what it wrote is scored.
    #[setting(default = 1.0, above = 0.0, high = 100.0)]
    pub temperature: f32,

    /// Only the k likeliest tokens; 0 for all.
    #[setting(default = 0)]
    pub top_k: u32,

    /// Only the likeliest tokens that hold this share of the probability.
    #[setting(default = 1.0, above = 0.0, high = 1.0)]
    pub top_p: f32,

    /// Only tokens with at least this share of the likeliest one's probability.
    #[setting(default = 0.0, low = 0.0, high = 1.0)]
    pub min_p: f32,

    /// Texts that end a completion as soon as it contains one, at most 64 bytes each; their tokens stay in it.
    #[setting(default = [], max_items = 8)]
    pub stop: Vec<String>,

    /// Learn from this many prompts of an update: the first whose completions earn different rewards. The update's
    /// records are the prompts to choose from; DAPO has three for each (arXiv:2503.14476). 0 for all of them.
    #[setting(default = 0, high = 65536)]
    pub dynamic_sampling: u32,
}

/// Completions of one update with their rewards, one row each; a prompt's completions are contiguous.
pub struct Rollout {
    /// Prompt and completion, with the completion's tokens as targets.
    pub rows: Rows,
    /// The verdicts of the run's verifiers.
    pub rewards: Rewards,
    /// Whether a completion ended by itself.
    pub finished: Vec<bool>,
    sampled: Tensor, // [rows, width], log-probabilities when it was written
    lengths: Vec<f64>,
}

impl Sampling {
    /// Samples completions of the batch's prompts from the policy and has the run's verifiers judge them.
    #[track_caller]
    pub fn roll_out(&self, batch: &Batch) -> Result<Rollout> {
        let mut sampler = Sampler::new()
            .completions(self.completions)?
            .temperature(self.temperature)?
            .top_k(self.top_k)?
            .top_p(self.top_p)?
            .min_p(self.min_p)?;
        if self.max_tokens > 0 {
            sampler = sampler.max_tokens(self.max_tokens)?;
        }
        for text in &self.stop {
            sampler = sampler.stop(text)?;
        }
        let completions = generate(&model::policy(), &batch.rows("prompt")?, &sampler)?;
        let verdicts = reward::judge(batch, &completions)?.copy_to_list()?;
        let weights = reward::weights()?.copy_to_list()?;
        let finished = completions.finished().copy_to_list()?;
        let rows = completions.rows();
        let lengths = rows.lengths().copy_to_list()?;
        Ok(Rollout {
            rewards: Rewards::new(&verdicts, &weights, self.completions as usize),
            finished: finished.iter().map(|flag| *flag > 0.0).collect(),
            lengths: lengths.into_iter().map(f64::from).collect(),
            sampled: completions.logprob(),
            rows,
        })
    }

    /// Selects the completions to learn from: all, or by `dynamic-sampling` the first groups whose rewards differ.
    /// If no group's rewards differ, all are kept and their advantages are 0.
    #[track_caller]
    pub fn choose(&self, rollout: Rollout) -> Result<Rollout> {
        let chosen = match self.dynamic_sampling {
            0 => return Ok(rollout),
            groups => rollout.rewards.first_differing(groups),
        };
        if chosen.is_empty() { Ok(rollout) } else { rollout.select(&chosen) }
    }
}

/// The rows of a rollout that an update learns from.
pub struct Kept {
    /// 1 where a token counts: `[rows, width]`.
    pub mask: Tensor,
    /// Rows that count in means over rows.
    pub rows: u32,
    /// Tokens that count.
    pub tokens: u32,
}

impl Rollout {
    /// The rows with these numbers, which must be whole groups, with their rewards, as a rollout.
    fn select(&self, chosen: &[u32]) -> Result<Rollout> {
        let rows = self.rows.select(chosen)?;
        let places = from_indices(chosen, &[chosen.len() as u32]);
        Ok(Rollout {
            rewards: self.rewards.select(chosen),
            finished: chosen.iter().map(|row| self.finished[*row as usize]).collect(),
            lengths: chosen.iter().map(|row| self.lengths[*row as usize]).collect(),
            sampled: self.sampled.index_select(0, &places).slice(1, 0, rows.width()),
            rows,
        })
    }

    /// Builds the mask of the tokens to learn from. `whole_only` drops rows that were cut off, `differing_only` rows of
    /// groups whose rewards are alike. Rows that were cut off still count in means over rows, as in TRL; rows of such
    /// groups do not.
    #[track_caller]
    pub fn keep(&self, whole_only: bool, differing_only: bool) -> Kept {
        let differing = self.rewards.differing();
        let row = |at: usize| (!differing_only || differing[at], !whole_only || self.finished[at]);
        let (mut flags, mut rows, mut tokens) = (Vec::new(), 0, 0.0);
        for (at, length) in self.lengths.iter().enumerate() {
            let (differs, whole) = row(at);
            let counts = differs && whole;
            rows += u32::from(differs);
            tokens += if counts { *length } else { 0.0 };
            flags.push(f32::from(u8::from(counts)));
        }
        let mask = self.rows.mask();
        let mask = if flags.contains(&0.0) { mask * from_list(&flags, &[flags.len() as u32, 1]) } else { mask };
        Kept { mask, rows, tokens: tokens as u32 }
    }

    /// Reports rewards, lengths and the share of cut completions as metrics, under the names of TRL.
    #[track_caller]
    pub fn report(&self) {
        let rewards = self.rewards.combined();
        let even = self.rewards.differing().iter().filter(|differs| !**differs).count();
        let count = self.finished.len().max(1) as f64;
        number("reward", mean(&rewards));
        number("reward-std", deviation(&rewards));
        number("frac-reward-zero-std", even as f64 / count);
        number("unjudged", rewards.iter().filter(|reward| reward.is_nan()).count() as f64 / count);
        let ended = || self.lengths.iter().zip(&self.finished).filter(|(_, ended)| **ended).map(|(length, _)| *length);
        lengths("completions", &self.lengths);
        number("completions-clipped-ratio", 1.0 - ended().count() as f64 / count);
        lengths("completions-terminated", &ended().collect::<Vec<_>>());
    }

    /// Reports mean and largest |log-probability when sampled − `logprob`| of target tokens: rounding, if sampling did
    /// not change the distribution. Does nothing if `old` is given, as after an update.
    #[track_caller]
    pub fn report_difference(&self, logprob: &Tensor, old: Option<&Tensor>) {
        if old.is_some() {
            return;
        }
        let difference = (&self.sampled - logprob.detach()).abs();
        run::metric("sampling-difference-mean", difference.masked_mean(&self.rows.mask(), crate::tensor::All));
        run::metric("sampling-difference-max", difference.max(crate::tensor::All));
    }
}

/// Reports mean, least and largest value as `NAME-mean-length`, `-min-length` and `-max-length`; 0 without values.
#[track_caller]
fn lengths(name: &str, values: &[f64]) {
    let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let largest = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
    number(&format!("{name}-mean-length"), if values.is_empty() { 0.0 } else { mean(values) });
    number(&format!("{name}-min-length"), least);
    number(&format!("{name}-max-length"), largest);
}

#[track_caller]
fn number(name: &str, value: f64) {
    if value.is_finite() {
        run::metric(name, value as f32);
    }
}
