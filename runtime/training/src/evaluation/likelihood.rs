//! How likely a model finds answers: loss, perplexity, accuracy.

use tunebox_model::Policy;

use super::scores::{self, EvaluationSettings, Figure, RowScore, score};
use crate::data::Dataset;
use crate::error::Error;

/// `loss` (nats per target token), `perplexity` (its exponential), `accuracy` (share of targets that were the model's first
/// choice).
pub(super) fn figures(
    base: &Policy,
    adapted: Option<&Policy>,
    data: &Dataset,
    settings: &EvaluationSettings,
) -> Result<Vec<Figure>, Error> {
    scores::figures(base, adapted, |policy| {
        let [loss, perplexity, accuracy] = numbers(&score(policy, data, 0, settings.batch)?);
        Ok(vec![("loss", loss), ("perplexity", perplexity), ("accuracy", accuracy)])
    })
}

/// Loss, perplexity and accuracy over all targets.
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
