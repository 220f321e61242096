//! How well a model foretells answers: loss, perplexity, share of first choices.

use tunebox_model::Policy;

use super::{EvaluationSettings, Figure, RowScore, score};
use crate::data::Dataset;
use crate::error::Error;

/// `loss` (nats a target token), `perplexity` (its exponential), `accuracy` (share of targets that
/// were the model's first choice).
pub(super) fn figures(
    base: &Policy,
    adapted: Option<&Policy>,
    data: &Dataset,
    settings: &EvaluationSettings,
) -> Result<Vec<Figure>, Error> {
    let of = |policy: &Policy| Ok::<_, Error>(numbers(&score(policy, data, 0, settings.batch)?));
    let base = of(base)?;
    let adapted = adapted.map(of).transpose()?;
    let names = ["loss", "perplexity", "accuracy"];
    let figure = |(place, name)| Figure { name, base: Some(base[place]), adapted: adapted.map(|found| found[place]) };
    Ok(names.into_iter().enumerate().map(figure).collect())
}

fn numbers(scores: &[RowScore]) -> [f64; 3] {
    let targets = scores.iter().map(|row| row.targets).sum::<usize>().max(1) as f64;
    let loss = -scores.iter().map(|row| row.logprob).sum::<f64>() / targets;
    [loss, loss.exp(), scores.iter().map(|row| row.first).sum::<f64>() / targets]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_token_counts_the_same_however_long_its_row() {
        let rows =
            [RowScore { logprob: -1.0, first: 1.0, targets: 1 }, RowScore { logprob: -5.0, first: 1.0, targets: 3 }];
        assert_eq!(numbers(&rows), [1.5, 1.5_f64.exp(), 0.5]);
    }
}
