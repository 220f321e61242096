//! Scores of the rows of a data set, and figures of them.

use serde::Serialize;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_model::generate::Sampling;
use tunebox_model::{Policy, View};

use crate::data::{Dataset, rows};
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

/// The log-probabilities of the targets of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RowScore {
    /// Σ log p(target).
    pub(super) logprob: f64,
    /// Number of targets that were the model's first choice.
    pub(super) first: f64,
    /// Number of targets.
    pub(super) targets: usize,
}

/// Calls `numbers` with the base model and, if given, with the adapted one, and pairs the results by position to
/// figures.
pub(super) fn figures(
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

/// Scores side number `side` of every example under the policy, `batch` examples at a time. Returns one score for each
/// example, in order.
pub(super) fn score(policy: &Policy, data: &Dataset, side: usize, batch: usize) -> Result<Vec<RowScore>, Error> {
    let mut scores = Vec::with_capacity(data.examples.len());
    let taps = TapSet::of(&[Tap::TopOne]);
    for examples in data.examples.chunks(batch.max(1)) {
        let rows = rows(examples.iter().map(|example| example.sides[side].clone()))?;
        let scored = policy.score(&View::Policy, &rows, taps, 1.0, false)?;
        let logprobs = table(scored.tap(Tap::Logprob)?)?;
        let firsts = table(scored.tap(Tap::TopOne)?)?;
        for (number, example) in examples.iter().enumerate() {
            let sum = |rows: &[Vec<f32>]| rows.get(number).into_iter().flatten().map(|value| f64::from(*value)).sum();
            let targets = example.sides[side].target_count();
            scores.push(RowScore { logprob: sum(&logprobs), first: sum(&firsts), targets });
        }
    }
    Ok(scores)
}

/// Converts a tensor of shape `[rows, width]` to one vector of `width` numbers for each row.
fn table(tap: &tunebox_compute::Tensor) -> Result<Vec<Vec<f32>>, Error> {
    tap.to_vec2().map_err(|error| tunebox_compute::Error::from(error).into())
}

/// Computes `loss` (nats per target token), `perplexity` (its exponential) and `accuracy` (share of targets that were
/// the model's first choice) over all targets of all rows. A set without targets is counted as having one.
pub(super) fn likelihood(scores: &[RowScore]) -> Vec<(&'static str, f64)> {
    let targets = scores.iter().map(|row| row.targets).sum::<usize>().max(1) as f64;
    let loss = -scores.iter().map(|row| row.logprob).sum::<f64>() / targets;
    let accuracy = scores.iter().map(|row| row.first).sum::<f64>() / targets;
    vec![("loss", loss), ("perplexity", loss.exp()), ("accuracy", accuracy)]
}

/// The mean of some numbers; NaN if there are none.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_token_counts_the_same_however_long_its_row() {
        let rows =
            [RowScore { logprob: -1.0, first: 1.0, targets: 1 }, RowScore { logprob: -5.0, first: 1.0, targets: 3 }];
        assert_eq!(likelihood(&rows), [("loss", 1.5), ("perplexity", 1.5_f64.exp()), ("accuracy", 0.5)]);
    }
}
