//! Pairs of answers: both sides scored, and the metrics that methods of preference share.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch) -> Result<()> {
//! let rows = Pair::of(batch)?;
//! let scores = rows.score_for_learning(Taps::empty())?;
//! let means = scores.with(&rows.lengths(), loss::mean_logprob); // [rows] each
//! let hinge = (1.0 - means.difference()).relu();
//! backward(&loss::row_mean(&hinge, batch.window_size()))?;
//! means.report_rewards(batch); // rewards-chosen, rewards-rejected, rewards-margins, rewards-accuracies
//! # Ok(())
//! # }
//! ```

use crate::loss::{row_mean, token_mean};
use crate::run::add_metric;
use crate::tensor::All;
use crate::{Batch, Result, Rows, Scores, Taps, Tensor, View};

/// A value for the better answer and one for the worse answer of each record.
pub struct Pair<T> {
    /// The value for the better answer.
    pub chosen: T,
    /// The value for the worse answer.
    pub rejected: T,
}

impl<T> Pair<T> {
    /// Applies `make` to both values and returns the results as a pair.
    #[track_caller]
    pub fn map<U>(&self, make: impl Fn(&T) -> U) -> Pair<U> {
        Pair { chosen: make(&self.chosen), rejected: make(&self.rejected) }
    }

    /// Applies `make` to both values, each with its counterpart in `other`.
    #[track_caller]
    pub fn with<V, U>(&self, other: &Pair<V>, make: impl Fn(&T, &V) -> U) -> Pair<U> {
        Pair { chosen: make(&self.chosen, &other.chosen), rejected: make(&self.rejected, &other.rejected) }
    }
}

impl Pair<Rows> {
    /// The rows `chosen` and `rejected` of a batch. Errors: the data shape lacks one.
    #[track_caller]
    pub fn of(batch: &Batch) -> Result<Self> {
        Ok(Self { chosen: batch.rows("chosen")?, rejected: batch.rows("rejected")? })
    }

    /// Scores both sides through the policy with gradients, at temperature 1: two forward passes.
    #[track_caller]
    pub fn score_for_learning(&self, taps: Taps) -> Result<Pair<Scores>> {
        let score = |rows| crate::model::score_for_learning(rows, taps, 1.0);
        Ok(Pair { chosen: score(&self.chosen)?, rejected: score(&self.rejected)? })
    }

    /// Scores both sides through a view without gradients, at temperature 1: two forward passes.
    #[track_caller]
    pub fn score(&self, view: &View, taps: Taps) -> Result<Pair<Scores>> {
        let score = |rows| crate::model::score(view, rows, taps, 1.0);
        Ok(Pair { chosen: score(&self.chosen)?, rejected: score(&self.rejected)? })
    }

    /// Target tokens of each row, `[rows]`.
    #[track_caller]
    pub fn lengths(&self) -> Pair<Tensor> {
        self.map(Rows::lengths)
    }
}

impl Pair<Tensor> {
    /// `chosen` minus `rejected`.
    #[track_caller]
    pub fn difference(&self) -> Tensor {
        &self.chosen - &self.rejected
    }

    /// Reports these `[rows]` as rewards: `rewards-chosen`, `rewards-rejected`, `rewards-margins`, and the share of
    /// pairs whose better answer has the higher one, `rewards-accuracies`.
    #[track_caller]
    pub fn report_rewards(&self, batch: &Batch) {
        let pairs = batch.window_size();
        let won = self.chosen.greater(&self.rejected);
        add_metric("rewards-chosen", row_mean(&self.chosen.detach(), pairs));
        add_metric("rewards-rejected", row_mean(&self.rejected.detach(), pairs));
        add_metric("rewards-margins", row_mean(&self.difference().detach(), pairs));
        add_metric("rewards-accuracies", won.count(All) / pairs as f32);
    }

    /// Reports these log-probabilities, `[rows]`, as `logps-chosen` and `logps-rejected`.
    #[track_caller]
    pub fn report_logprobs(&self, batch: &Batch) {
        add_metric("logps-chosen", row_mean(&self.chosen.detach(), batch.window_size()));
        add_metric("logps-rejected", row_mean(&self.rejected.detach(), batch.window_size()));
    }
}

impl Pair<Scores> {
    /// The taps that [`report_tokens`](Self::report_tokens) reads.
    pub fn reported() -> Taps {
        Taps::ENTROPY | Taps::MEAN_LOGIT | Taps::TOP_ONE
    }

    /// Reports what the targets look like to the policy: `logits-chosen`, `logits-rejected` (mean logits), `entropy`
    /// (of both sides), `mean-token-accuracy` (of the better answers). `targets` are the masks of the answers.
    #[track_caller]
    pub fn report_tokens(&self, batch: &Batch, targets: &Pair<Tensor>) -> Result<()> {
        let counts = Pair { chosen: batch.window_targets("chosen")?, rejected: batch.window_targets("rejected")? };
        let logits = self.with(targets, |scores, mask| scores.mean_logit() * mask);
        add_metric("logits-chosen", token_mean(&logits.chosen, counts.chosen));
        add_metric("logits-rejected", token_mean(&logits.rejected, counts.rejected));
        let entropy = self.with(targets, |scores, mask| (scores.entropy().detach() * mask).sum(All));
        let both = counts.chosen.saturating_add(counts.rejected);
        add_metric("entropy", (entropy.chosen + entropy.rejected) / both as f32);
        let hits = self.chosen.top_one() * &targets.chosen;
        add_metric("mean-token-accuracy", token_mean(&hits, counts.chosen));
        Ok(())
    }
}
