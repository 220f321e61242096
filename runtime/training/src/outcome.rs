//! How a run ended: the step whose weights it shipped, why it ended early, and whether a longer run may be better.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tunebox_foundation::format::pluralize;

use crate::validation::{Score, Validation, ValidationHistory};

/// How much a loss must fall to count as still falling: more than this share of its value before ([`FALL`]) and more
/// than [`LEAST_FALL`] nats.
const FALL: f64 = 0.02;
const LEAST_FALL: f64 = 0.03;

/// The least steps of a part: fewer say nothing about a trend.
const LEAST_STEPS: usize = 4;

/// How a finished run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Outcome {
    /// Finished steps.
    pub steps: u64,
    /// Planned steps.
    pub planned: u64,
    /// The step whose weights the artifact was written from.
    pub shipped: u64,
    /// The last finite training loss.
    pub loss: Option<f64>,
    /// The validation before the first step.
    pub first: Option<Validation>,
    /// The best validation after an update.
    pub best: Option<Validation>,
    /// The last validation.
    pub last: Option<Validation>,
    /// `train.patience`, if the run ended for it before all its steps were done.
    pub patience: Option<u32>,
    /// Whether the validation loss rose since the best validation while the training loss fell.
    pub is_overfitting: bool,
    /// A longer length of the run as an assignment, such as `train.epochs=10`, if the loss was still falling at the
    /// end.
    pub longer: Option<String>,
}

impl Outcome {
    /// Says in sentences for people which step was shipped and its score beside the last one, why the run ended early,
    /// and what the validations show. Empty if there is nothing to say.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if let Some(patience) = self.patience {
            let validations = pluralize(patience.into(), "validation");
            sentences.push(format!(
                "The run ended after {} of {} steps: {validations} in a row brought no better score (`train.patience`).",
                self.steps, self.planned
            ));
        }
        sentences.extend(self.shipped_sentence());
        if self.is_overfitting && self.shipped == self.steps {
            sentences.push(
                "The validation loss rose while the training loss fell: the model learned the records by heart. \
                 `train.keep-best = true` ships the best step instead of the last."
                    .to_owned(),
            );
        }
        if let (Some(first), Some(best)) = (self.first, self.best)
            && first.score.is_better_than(&best.score)
        {
            sentences.push(format!(
                "Every validation was worse than that before training ({}): a lower `train.rate`, or more data like that of \
                 the validation, may help.",
                first.score
            ));
        }
        sentences
    }

    /// Says which step was shipped, with its score beside the last one. `None` without a validation after an update.
    fn shipped_sentence(&self) -> Option<String> {
        let (best, last) = (self.best?, self.last?);
        if self.shipped != self.steps {
            let why = if self.is_overfitting {
                " The training loss fell in the meantime: the model learned the \
                      records by heart."
            } else {
                ""
            };
            return Some(format!(
                "Shipped are the weights of step {}, the best validation: {}; at the end, step {}, it was {}.{why}",
                self.shipped,
                best.score,
                self.steps,
                format_value(last.score),
            ));
        }
        Some(match best.step == last.step {
            true => format!("The last step was the best validation: {}.", best.score),
            false => format!(
                "Shipped are the weights of the last step: {}; the best was {} at step {}.",
                last.score,
                format_value(best.score),
                best.step
            ),
        })
    }

    /// Returns the outcome as a row of the metrics: the number of steps (`step`), the step that was shipped
    /// (`shipped`), and the best and the last validation score (such as `best-validation-loss` and
    /// `last-validation-loss`), without scores that are not finite. `None` if no validation followed an update.
    pub(crate) fn row(&self) -> Option<Value> {
        self.best?;
        let mut row = json!({ "step": self.steps, "shipped": self.shipped });
        self.add_scores(&mut row);
        Some(row)
    }

    /// Returns the outcome as the table `result` of `run.lock`: steps, last loss, step that was shipped, the best and
    /// the last validation score, and `train.patience` if the run ended early for it. A loss or patience that is absent
    /// is null; a score that is absent is left out.
    #[must_use]
    pub fn table(&self) -> Value {
        let loss = self.loss.filter(|loss| loss.is_finite());
        let mut table =
            json!({ "steps": self.steps, "loss": loss, "shipped": self.shipped, "patience": self.patience });
        self.add_scores(&mut table);
        table
    }

    /// Adds the best and the last validation score to a row, each under `best-` or `last-` and the name of its main
    /// number, such as `best-validation-loss`. Leaves out numbers that are not finite; adds nothing without a
    /// validation after an update.
    fn add_scores(&self, row: &mut Value) {
        for (which, validation) in [("best", self.best), ("last", self.last.filter(|_| self.best.is_some()))] {
            if let Some((name, value)) =
                validation.map(|validation| validation.score.main()).filter(|(_, v)| v.is_finite())
            {
                row[format!("{which}-{name}")] = json!(value);
            }
        }
    }
}

/// Formats a score without its name: a loss with four decimals, a pass rate as the percentage of pass@1.
fn format_value(score: Score) -> String {
    match score {
        Score::Loss(loss) => format!("{loss:.4}"),
        Score::PassRate(rate) => format!("{:.1} %", 100.0 * rate.at_one),
    }
}

/// Whether the loss was still falling at the end of a run: by more than 2 % and by more than 0.03 nats. With
/// validations, compares the last, which must also be the best, with the one before it; false for pass rates, and if
/// the one before it is that before the first step. Without validations, compares the mean training loss of the last
/// quarter of the steps with that of the quarter before, each of at least 4 steps; false if there are fewer than 8
/// losses. `rows` are those of the metrics.
pub(crate) fn is_falling(validations: &ValidationHistory, rows: &[Map<String, Value>]) -> bool {
    let falls = |before: f64, after: f64| before - after > LEAST_FALL.max(FALL * before);
    if let Some(last) = validations.last {
        let is_best = validations.best.is_some_and(|best| best.step == last.step);
        // The first validation after training began falls from that before it nearly always.
        let previous = validations.previous.filter(|one| one.step > 0);
        return match (previous.map(|one| one.score), last.score) {
            (Some(Score::Loss(before)), Score::Loss(after)) => is_best && falls(before, after),
            _ => false,
        };
    }
    let steps = rows.iter().filter(|row| row.contains_key("rate"));
    let losses: Vec<f64> = steps.filter_map(|row| row.get("loss")?.as_f64()).collect();
    let part = (losses.len() / 4).max(LEAST_STEPS);
    let Some(start) = losses.len().checked_sub(2 * part) else { return false };
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    falls(mean(&losses[start..start + part]), mean(&losses[start + part..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(step: u64, loss: f64) -> Option<Validation> {
        Some(Validation { step, score: Score::Loss(loss) })
    }

    fn outcome() -> Outcome {
        Outcome {
            steps: 35,
            planned: 35,
            shipped: 14,
            loss: Some(0.25),
            first: loss(0, 3.5),
            best: loss(14, 2.8),
            last: loss(35, 4.37),
            patience: None,
            is_overfitting: true,
            longer: None,
        }
    }

    #[test]
    fn the_shipped_step_is_named_with_its_score_beside_the_last() {
        let sentences = outcome().sentences();
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(sentences[0].starts_with(
            "Shipped are the weights of step 14, the best validation: validation loss 2.8000; at the end, step 35, it was \
             4.3700. The training loss fell in the meantime"
        ));
        let last = Outcome { shipped: 35, ..outcome() }.sentences();
        assert!(
            last[0].contains("of the last step: validation loss 4.3700; the best was 2.8000 at step 14."),
            "{last:?}"
        );
        assert!(last[1].contains("`train.keep-best = true`"), "{last:?}");
        assert!(Outcome { best: None, shipped: 35, is_overfitting: false, ..outcome() }.sentences().is_empty());
    }

    #[test]
    fn an_early_end_and_a_model_that_got_worse_are_said() {
        let sentences = Outcome { planned: 100, patience: Some(1), first: loss(0, 2.0), ..outcome() }.sentences();
        assert!(
            sentences[0].starts_with("The run ended after 35 of 100 steps: 1 validation in a row"),
            "{sentences:?}"
        );
        assert!(sentences[2].starts_with("Every validation was worse than that before training"), "{sentences:?}");
    }

    #[test]
    fn the_row_and_the_table_have_the_shipped_step_and_both_scores() {
        let scores = json!({ "best-validation-loss": 2.8, "last-validation-loss": 4.37 });
        for value in [outcome().row().unwrap(), outcome().table()] {
            assert_eq!(value["shipped"], 14);
            scores.as_object().unwrap().iter().for_each(|(name, score)| assert_eq!(value[name], *score));
        }
        assert_eq!(Outcome { best: None, ..outcome() }.row(), None);
    }

    #[test]
    fn a_loss_falls_if_the_last_quarter_is_clearly_lower_than_the_one_before() {
        let rows = |loss: fn(usize) -> f64, steps: usize| -> Vec<Map<String, Value>> {
            let row = |step| json!({ "rate": 1e-3, "loss": loss(step) }).as_object().unwrap().clone();
            (0..steps).map(row).collect()
        };
        let falling = |loss, steps| is_falling(&ValidationHistory::default(), &rows(loss, steps));
        assert!(falling(|step| 3.0 - 0.05 * step as f64, 20));
        assert!(!falling(|step| 3.0 - 0.05 * step as f64, 7), "too few steps");
        assert!(!falling(|step| if step < 10 { 3.0 } else { 1.0 }, 40), "it fell long ago");
        assert!(!falling(|step| 0.01 / (step + 1) as f64, 40), "nothing is left to fall");
        let mut validations = ValidationHistory::default();
        for (step, value) in [(10, 3.0), (20, 2.5)] {
            validations.add(Validation { step, score: Score::Loss(value) }, true);
        }
        assert!(is_falling(&validations, &[]));
        validations.add(Validation { step: 30, score: Score::Loss(2.6) }, true);
        assert!(!is_falling(&validations, &rows(|step| 3.0 - 0.05 * step as f64, 20)), "longer would be worse");
    }
}
