//! Which of two answers a model prefers, by its own likelihood and against the base.

use tunebox_model::Policy;

use super::scores::{EvaluationSettings, Figure, RowScore, mean, score};
use crate::data::Dataset;
use crate::error::Error;

/// The scores of both answers of every pair.
struct Pairs {
    chosen: Vec<RowScore>,
    rejected: Vec<RowScore>,
}

/// Computes how often and by how much a model prefers the chosen answers. `accuracy` and `margin` compare the mean
/// log-probability of a target token, so that a longer answer is not worse by its length alone. `reward-accuracy` and
/// `reward-margin` are those of DPO with β = 1: r = log π(y) − log π_base(y), summed over the answer; only if there is
/// an adapted model.
pub(super) fn figures(
    base: &Policy,
    adapted: Option<&Policy>,
    data: &Dataset,
    settings: &EvaluationSettings,
) -> Result<Vec<Figure>, Error> {
    let pairs = |policy: &Policy| {
        let side = |side| score(policy, data, side, settings.batch);
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

/// The share of the numbers that are above 0.
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

    /// Share of the pairs whose chosen answer has the higher mean log-probability of a target token.
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
