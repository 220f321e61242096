//! Scores of the rows of a data set, and figures of them: likelihoods, and which of two answers a model prefers, by its
//! own likelihood and against the base.

use serde::Serialize;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_foundation::explain::{Explanation, ensure};
use tunebox_model::generate::Sampling;
use tunebox_model::{Policy, View};

use crate::data::{Dataset, collect_rows};
use crate::error::Error;

/// How a model is evaluated.
#[derive(Debug, Clone)]
pub struct EvaluationSettings {
    /// Maximum length of an example in tokens.
    pub length: usize,
    /// Examples that are scored together; affects memory, not results.
    pub batch: usize,
    /// How completions of prompts are sampled.
    pub sampling: Sampling,
}

/// One number about a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The name, such as `loss`.
    pub name: &'static str,
    /// The value of the base model; `None` for figures that compare with the base.
    pub base: Option<f64>,
    /// The value of the model with its adapter; `None` without an adapter.
    pub adapted: Option<f64>,
}

/// Sums over the target tokens of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RowScore {
    /// Sum of the log-probabilities of the targets, in nats.
    pub(super) logprob: f64,
    /// Number of targets that were the model's first choice.
    pub(super) first: f64,
    /// Number of targets.
    pub(super) targets: usize,
}

/// Calls `numbers`, which returns names and values, with the base model, then, if given, with the adapted one. Returns
/// a figure for each name of the base model's numbers, with both values at its position. Fails if a call fails.
pub(super) fn compute_figures(
    base: &Policy,
    adapted: Option<&Policy>,
    mut numbers: impl FnMut(&Policy) -> Result<Vec<(&'static str, f64)>, Error>,
) -> Result<Vec<Figure>, Error> {
    let base = numbers(base)?;
    let adapted = adapted.map(numbers).transpose()?;
    let figure = |(index, (name, value)): (usize, &(&'static str, f64))| {
        let adapted = adapted.as_ref().and_then(|numbers| numbers.get(index)).map(|(_, value)| *value);
        Figure { name, base: Some(*value), adapted }
    };
    Ok(base.iter().enumerate().map(figure).collect())
}

/// Scores one row of every example under the policy, `batch` examples at a time: the row at position `side` (from 0) of
/// the example's sides. Returns one score for each example, in order. A `batch` of 0 counts as 1.
pub(super) fn score_side(policy: &Policy, data: &Dataset, side: usize, batch: usize) -> Result<Vec<RowScore>, Error> {
    let mut scores = Vec::with_capacity(data.examples.len());
    let taps = TapSet::of(&[Tap::TopOne]);
    for examples in data.examples.chunks(batch.max(1)) {
        let rows = collect_rows(examples.iter().map(|example| example.sides[side].clone()))?;
        let scored = policy.score(&View::Policy, &rows, taps, 1.0, false)?;
        let logprobs = tensor_rows(scored.tap(Tap::Logprob)?)?;
        let firsts = tensor_rows(scored.tap(Tap::TopOne)?)?;
        for (number, example) in examples.iter().enumerate() {
            let sum = |rows: &[Vec<f32>]| rows.get(number).into_iter().flatten().map(|value| f64::from(*value)).sum();
            let targets = example.sides[side].target_count();
            scores.push(RowScore { logprob: sum(&logprobs), first: sum(&firsts), targets });
        }
    }
    Ok(scores)
}

/// Converts a tensor of shape `[rows, width]` to one vector of `width` numbers for each row.
fn tensor_rows(tap: &tunebox_compute::Tensor) -> Result<Vec<Vec<f32>>, Error> {
    tap.to_vec2().map_err(|error| tunebox_compute::Error::from(error).into())
}

/// Computes `loss` (nats per target token), `perplexity` (its exponential) and `accuracy` (share of targets that were
/// the model's first choice) over all targets of all rows. Fails if there is no target.
pub(super) fn likelihood_figures(scores: &[RowScore]) -> Result<Vec<(&'static str, f64)>, Error> {
    let targets = scores.iter().map(|row| row.targets).sum::<usize>() as f64;
    ensure(targets > 0.0, || Explanation::new("data", "no record has a token of an answer to evaluate"))?;
    let loss = -scores.iter().map(|row| row.logprob).sum::<f64>() / targets;
    let accuracy = scores.iter().map(|row| row.first).sum::<f64>() / targets;
    Ok(vec![("loss", loss), ("perplexity", loss.exp()), ("accuracy", accuracy)])
}

/// The mean of some numbers; NaN if there are none.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}

/// The scores of both answers of every pair.
struct Pairs {
    chosen: Vec<RowScore>,
    rejected: Vec<RowScore>,
}

/// Computes how often (share of pairs) and by how much (mean, in nats) a model prefers the chosen answers. `accuracy`
/// and `margin` compare the mean log-probability of a target token, so that a longer answer is not worse by its length
/// alone. `reward-accuracy` and `reward-margin` are those of DPO with β = 1: r = log π(y) − log π_base(y), summed over
/// the answer; only if there is an adapted model.
pub(super) fn preference_figures(
    base: &Policy,
    adapted: Option<&Policy>,
    data: &Dataset,
    settings: &EvaluationSettings,
) -> Result<Vec<Figure>, Error> {
    let pairs = |policy: &Policy| {
        let side = |side| score_side(policy, data, side, settings.batch);
        Ok::<_, Error>(Pairs { chosen: side(0)?, rejected: side(1)? })
    };
    let (base, adapted) = (pairs(base)?, adapted.map(pairs).transpose()?);
    let figure = |name, number: fn(&Pairs) -> f64| {
        let adapted = adapted.as_ref().map(number);
        Figure { name, base: Some(number(&base)), adapted }
    };
    let mut figures = vec![figure("accuracy", Pairs::accuracy), figure("margin", Pairs::margin)];
    if let Some(adapted) = &adapted {
        let rewards = adapted.rewards(&base);
        let gains = [("reward-accuracy", share_above_zero(&rewards)), ("reward-margin", mean(rewards.into_iter()))];
        figures.extend(gains.map(|(name, gain)| Figure { name, base: None, adapted: Some(gain) }));
    }
    Ok(figures)
}

/// Returns the share of the numbers that are above 0; NaN if there are none.
fn share_above_zero(numbers: &[f64]) -> f64 {
    mean(numbers.iter().map(|number| f64::from(*number > 0.0)))
}

impl Pairs {
    /// For each pair, the mean log-probability of a target token of the chosen answer minus that of the rejected one,
    /// in nats.
    fn differences(&self) -> Vec<f64> {
        let each = |row: &RowScore| row.logprob / row.targets.max(1) as f64;
        self.chosen.iter().zip(&self.rejected).map(|(chosen, rejected)| each(chosen) - each(rejected)).collect()
    }

    /// Returns the share of the pairs whose chosen answer has the higher mean log-probability of a target token; a tie
    /// does not count.
    fn accuracy(&self) -> f64 {
        share_above_zero(&self.differences())
    }

    /// Mean over the pairs of the mean log-probability of a target token of the chosen answer minus that of the
    /// rejected one, in nats.
    fn margin(&self) -> f64 {
        mean(self.differences().into_iter())
    }

    /// For each pair, (log π − log π_base)(chosen) − (log π − log π_base)(rejected), in nats, where `self` has the
    /// scores under π and `base` those under π_base.
    fn rewards(&self, base: &Self) -> Vec<f64> {
        let gain = |(own, base): (&RowScore, &RowScore)| own.logprob - base.logprob;
        let (chosen, rejected) = (self.chosen.iter().zip(&base.chosen), self.rejected.iter().zip(&base.rejected));
        chosen.map(gain).zip(rejected.map(gain)).map(|(chosen, rejected)| chosen - rejected).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_token_counts_the_same_however_long_its_row() {
        let rows =
            [RowScore { logprob: -1.0, first: 1.0, targets: 1 }, RowScore { logprob: -5.0, first: 1.0, targets: 3 }];
        assert_eq!(
            likelihood_figures(&rows).unwrap(),
            [("loss", 1.5), ("perplexity", 1.5_f64.exp()), ("accuracy", 0.5)]
        );
    }

    fn row(logprob: f64, targets: usize) -> RowScore {
        RowScore { logprob, first: 0.0, targets }
    }

    #[test]
    fn the_longer_answer_is_not_the_worse_one_by_its_length() {
        let pairs = Pairs { chosen: vec![row(-4.0, 8), row(-6.0, 2)], rejected: vec![row(-3.0, 2), row(-2.0, 1)] };

        assert_eq!(pairs.accuracy(), 0.5);
        assert_eq!(pairs.margin(), 0.0);
    }

    #[test]
    fn a_reward_is_what_training_added() {
        let base = Pairs { chosen: vec![row(-4.0, 2)], rejected: vec![row(-3.0, 2)] };
        let adapted = Pairs { chosen: vec![row(-2.5, 2)], rejected: vec![row(-3.5, 2)] };

        assert_eq!(adapted.rewards(&base), [2.0]);
    }
}
