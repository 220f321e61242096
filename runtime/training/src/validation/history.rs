//! The validations of a run so far: which was the best, and whether the run still improves.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PassRate;
use crate::exact;

/// By how much of the best validation loss a later one must be higher for a warning.
const RISE: f64 = 0.02;

/// By how many nats it must be higher at least: near 0, a share of the loss is noise.
const LEAST_RISE: f64 = 0.01;

/// A score of the validation data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// Mean negative log-likelihood of a target token. Lower is better.
    Loss(#[serde(with = "exact")] f64),
    /// How often completions pass. Higher is better; of equal shares, the higher mean reward.
    PassRate(PassRate),
}

impl Score {
    /// Whether this score is strictly better than `other`: a lower loss, or a higher pass rate, where of equal rates
    /// the higher mean reward decides. False for a loss that is not a number, and for scores of different kinds.
    pub(crate) fn is_better_than(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Loss(one), Self::Loss(other)) => one < other,
            (Self::PassRate(one), Self::PassRate(other)) => {
                one.at_one > other.at_one || (one.at_one == other.at_one && one.reward > other.reward)
            }
            _ => false,
        }
    }

    /// Whether every number of the score is finite.
    fn is_finite(&self) -> bool {
        match self {
            Self::Loss(loss) => loss.is_finite(),
            Self::PassRate(rate) => rate.at_one.is_finite() && rate.reward.is_finite(),
        }
    }

    /// The name of the score's main number in files, and the number: the loss, or the share of completions that pass.
    #[must_use]
    pub fn main(&self) -> (&'static str, f64) {
        match self {
            Self::Loss(loss) => ("validation-loss", *loss),
            Self::PassRate(rate) => ("validation-pass-at-1", rate.at_one),
        }
    }
}

impl fmt::Display for Score {
    /// Writes the score with its name: `validation loss 2.8012`, `validation pass@1 40.0 %`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => write!(formatter, "validation loss {loss:.4}"),
            Self::PassRate(rate) => write!(formatter, "validation pass@1 {:.1} %", 100.0 * rate.at_one),
        }
    }
}

/// The score of the validation data after a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Validation {
    /// Finished steps.
    pub step: u64,
    /// The score.
    pub score: Score,
}

/// The validations of a run so far. A checkpoint saves it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ValidationHistory {
    /// The validation before the first step.
    pub(crate) first: Option<Validation>,
    /// The best validation after an update; of equal ones, the first.
    pub(crate) best: Option<Validation>,
    /// The last validation.
    pub(crate) last: Option<Validation>,
    /// The validation before the last.
    pub(crate) previous: Option<Validation>,
    /// Validations since the best.
    pub(crate) without_improvement: u32,
    /// Whether the user was warned that the validation loss rises.
    pub(crate) warned: bool,
    /// The mean training loss between the best validation and the one before it.
    best_training_loss: Option<f64>,
    /// The mean training loss between the last two validations.
    last_training_loss: Option<f64>,
    /// The sum of the training losses since the last validation, and their number.
    training_loss: f64,
    training_steps: u32,
}

impl ValidationHistory {
    /// Adds the training loss of a step. Ignores one with which the sum would not be finite.
    pub(crate) fn add_training_loss(&mut self, loss: f64) {
        // A sum of huge losses may not be finite either.
        if (self.training_loss + loss).is_finite() {
            self.training_loss += loss;
            self.training_steps += 1;
        }
    }

    /// Adds a validation, and returns whether it is the best so far. A validation before the first update of the
    /// weights (`updated` is false) never is; nor is one whose score is not finite. Any other that is not the best
    /// counts as one without improvement. The mean training loss begins anew.
    pub(crate) fn add(&mut self, validation: Validation, updated: bool) -> bool {
        let mean = (self.training_steps > 0).then(|| self.training_loss / f64::from(self.training_steps));
        (self.training_loss, self.training_steps, self.last_training_loss) = (0.0, 0, mean);
        self.previous = self.last.replace(validation);
        if validation.step == 0 {
            self.first = Some(validation);
        }
        if !updated {
            return false;
        }
        let is_best =
            validation.score.is_finite() && self.best.is_none_or(|best| validation.score.is_better_than(&best.score));
        if is_best {
            (self.best, self.best_training_loss, self.without_improvement) = (Some(validation), mean, 0);
        } else {
            self.without_improvement = self.without_improvement.saturating_add(1);
        }
        is_best
    }

    /// Returns the best and the last validation if the validation loss has risen by more than 2 % and 0.01 nats since
    /// the best while the training loss fell: the model learns the records by heart. `None` otherwise, and for pass rates.
    pub(crate) fn overfitting(&self) -> Option<(Validation, Validation)> {
        let (best, last) = (self.best?, self.last?);
        let (Score::Loss(low), Score::Loss(now)) = (best.score, last.score) else { return None };
        let has_fallen = self.last_training_loss? < self.best_training_loss?;
        (now > low + LEAST_RISE.max(low * RISE) && has_fallen).then_some((best, last))
    }

    /// Whether a number of a history read from a file is one that no run has: a validation after step `step`, a best
    /// validation before the first step or with a score that is not finite, a sum of training losses that is not
    /// finite, or more training losses than steps.
    pub(crate) fn is_implausible(&self, step: u64) -> bool {
        let late = [self.first, self.best, self.last, self.previous].into_iter().flatten().any(|one| one.step > step);
        let infinite = self.best.is_some_and(|best| !best.score.is_finite() || best.step == 0);
        late || infinite || !self.training_loss.is_finite() || u64::from(self.training_steps) > step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(step: u64, loss: f64) -> Validation {
        Validation { step, score: Score::Loss(loss) }
    }

    fn passes(at_one: f64, reward: f64) -> Score {
        Score::PassRate(PassRate { at_one, at_k: at_one, k: 1, reward })
    }

    #[test]
    fn the_best_validation_is_the_lowest_loss_after_an_update_and_counts_begin_there() {
        let mut history = ValidationHistory::default();
        let added = [(0, 1.0, false), (10, 3.0, true), (20, 2.5, true), (30, f64::NAN, true), (40, 2.5, true)];
        let best = added.map(|(step, value, updated)| history.add(loss(step, value), updated));
        assert_eq!(best, [false, true, true, false, false]);
        assert_eq!((history.best, history.without_improvement), (Some(loss(20, 2.5)), 2));
        assert_eq!(history.first, Some(loss(0, 1.0)));
        let text = serde_json::to_string(&history).unwrap();
        let read: ValidationHistory = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text, "one that is not a number included");
    }

    #[test]
    fn of_equal_pass_rates_the_higher_reward_is_better() {
        assert!(passes(0.5, 0.1).is_better_than(&passes(0.4, 0.9)));
        assert!(passes(0.5, 0.2).is_better_than(&passes(0.5, 0.1)));
        assert!(!passes(0.5, 0.1).is_better_than(&passes(0.5, 0.1)));
        assert!(!passes(0.5, 0.1).is_better_than(&Score::Loss(9.0)));
    }

    #[test]
    fn a_rising_validation_loss_is_overfitting_only_while_the_training_loss_falls() {
        let changing = |training: [f64; 2], validation: [f64; 2]| {
            let mut history = ValidationHistory::default();
            for (step, training, validation) in [(14, training[0], validation[0]), (28, training[1], validation[1])] {
                history.add_training_loss(training);
                history.add(loss(step, validation), true);
            }
            history.overfitting()
        };
        let rising = |training: [f64; 2], last: f64| changing(training, [2.8, last]);
        assert_eq!(rising([2.0, 0.5], 4.37), Some((loss(14, 2.8), loss(28, 4.37))));
        assert_eq!(rising([2.0, 2.5], 4.37), None, "the rate is too high, or the data too hard");
        assert_eq!(rising([2.0, 0.5], 2.81), None, "noise");
        assert_eq!(changing([2.0, 0.5], [0.0178, 0.0192]), None, "noise near 0");
        assert_eq!(rising([2.0, 0.5], 2.5), None);
    }
}
