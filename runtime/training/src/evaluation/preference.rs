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
    let of = |policy: &Policy| {
        let chosen = score(policy, data, 0, settings.batch)?;
        Ok::<_, Error>(Pairs { chosen, rejected: score(policy, data, 1, settings.batch)? })
    };
    let base = of(base)?;
    let adapted = adapted.map(of).transpose()?;
    let mut figures = vec![
        Figure { name: "accuracy", base: Some(base.accuracy()), adapted: adapted.as_ref().map(Pairs::accuracy) },
        Figure { name: "margin", base: Some(base.margin()), adapted: adapted.as_ref().map(Pairs::margin) },
    ];
    if let Some(adapted) = &adapted {
        let margins = adapted.rewards(&base);
        let better = mean(margins.iter().map(|margin| f64::from(u8::from(*margin > 0.0))));
        figures.push(Figure { name: "reward-accuracy", base: None, adapted: Some(better) });
        figures.push(Figure { name: "reward-margin", base: None, adapted: Some(mean(margins.into_iter())) });
    }
    Ok(figures)
}

impl Pairs {
    /// For each pair, the mean log-probability of a target token of the chosen answer minus that of the rejected one,
    /// in nats.
    fn differences(&self) -> impl Iterator<Item = f64> {
        let each = |row: &RowScore| row.logprob / row.targets.max(1) as f64;
        self.chosen.iter().zip(&self.rejected).map(move |(chosen, rejected)| each(chosen) - each(rejected))
    }

    /// Share of the pairs whose chosen answer has the higher mean log-probability of a target token.
    fn accuracy(&self) -> f64 {
        mean(self.differences().map(|difference| f64::from(u8::from(difference > 0.0))))
    }

    /// Mean over the pairs of the mean log-probability of a target token of the chosen answer minus that of the
    /// rejected one, in nats.
    fn margin(&self) -> f64 {
        mean(self.differences())
    }

    /// For each pair, (log π − log π_base)(chosen) − (log π − log π_base)(rejected), in nats, where `self` has the
    /// scores under π and `base` those under π_base.
    fn rewards(&self, base: &Self) -> Vec<f64> {
        let gain = |own: &[RowScore], base: &[RowScore]| -> Vec<f64> {
            own.iter().zip(base).map(|(own, base)| own.logprob - base.logprob).collect()
        };
        let (chosen, rejected) = (gain(&self.chosen, &base.chosen), gain(&self.rejected, &base.rejected));
        chosen.into_iter().zip(rejected).map(|(chosen, rejected)| chosen - rejected).collect()
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
