//! Scores of token rows under the model (`wit/model.wit`).
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(rows: &Rows) -> Result<()> {
//! let scores = score_for_learning(rows, Taps::ENTROPY | Taps::TOP_ONE, 1.0)?; // with gradient
//! let frozen = score(&reference()?, rows, Taps::empty(), 1.0)?; // without
//! let ratio = scores.logprob() - frozen.logprob(); // [rows, width], 0 where no token is a target
//! metric("accuracy", scores.top_one().masked_mean(&rows.mask(), All));
//! metric("entropy", scores.entropy().detach().masked_mean(&rows.mask(), All));
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::model;
use crate::error::{certain, checked};
use crate::{Result, Rows, Tensor};

/// The taps to compute beside the log-probabilities; each costs a few percent of the head. Joined by `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taps(u8);

impl Taps {
    /// The entropy of the next-token distribution. Differentiable.
    pub const ENTROPY: Self = Self(1);
    /// log Σ p², the log of the collision probability. No gradient: a loss takes it detached.
    pub const LOG_SUM_SQUARE: Self = Self(1 << 1);
    /// The mean logit over the vocabulary. No gradient: a loss takes it detached.
    pub const MEAN_LOGIT: Self = Self(1 << 2);
    /// The mean log-probability over the vocabulary. Differentiable.
    pub const MEAN_LOGPROB: Self = Self(1 << 3);
    /// 1 where the token is the model's first choice, else 0.
    pub const TOP_ONE: Self = Self(1 << 4);

    /// The log-probabilities alone.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// Whether these taps contain all of `others`.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// The set on the host; `None`, without a call, for the log-probabilities alone.
    fn handle(self) -> Option<model::Taps> {
        if self == Self::empty() {
            return None;
        }
        let taps = model::Taps::new();
        let add = |tap: Self, add: fn(&model::Taps)| {
            if self.contains(tap) {
                add(&taps);
            }
        };
        add(Self::ENTROPY, model::Taps::entropy);
        add(Self::LOG_SUM_SQUARE, model::Taps::log_sum_square);
        add(Self::MEAN_LOGIT, model::Taps::mean_logit);
        add(Self::MEAN_LOGPROB, model::Taps::mean_logprob);
        add(Self::TOP_ONE, model::Taps::top_one);
        Some(taps)
    }
}

impl std::ops::BitOr for Taps {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A set of weights to score with: the policy under training, the reference, or a snapshot.
pub struct View(model::View);

impl View {
    pub(crate) fn new(view: model::View) -> Self {
        Self(view)
    }

    pub(crate) fn handle(&self) -> &model::View {
        &self.0
    }
}

/// A view of the model with the adapter and its present weights.
pub fn policy() -> View {
    View(model::policy())
}

/// A view of the model before training, also with full fine-tuning. Errors: `unsupported` where the run keeps no base.
#[track_caller]
pub fn reference() -> Result<View> {
    checked(model::reference()).map(View)
}

/// Makes a view of a frozen copy of the trained weights, kept under a name; the same name replaces the copy. Errors:
/// `unsupported` with full fine-tuning; `out-of-budget`.
#[track_caller]
pub fn snapshot(name: &str) -> Result<View> {
    checked(model::snapshot(name)).map(View)
}

/// The scores of rows: per-token tensors `[rows, width]`, `f32`, exactly 0 where the rows' mask is 0.
///
/// Reading a tap that was not asked for panics.
pub struct Scores(model::Scores);

impl Scores {
    pub(crate) fn handle(&self) -> &model::Scores {
        &self.0
    }

    /// log p(token t | tokens before t). Differentiable when scored for learning.
    pub fn logprob(&self) -> Tensor {
        Tensor::new(self.0.logprob())
    }

    /// The entropy of the next-token distribution, in nats. Differentiable when scored for learning.
    #[track_caller]
    pub fn entropy(&self) -> Tensor {
        Tensor::new(certain(self.0.entropy()))
    }

    /// log Σ p² of the next-token distribution p: `[rows, width]`, without gradient: a loss takes it detached. Panics if
    /// the tap was not asked for.
    #[track_caller]
    pub fn log_sum_square(&self) -> Tensor {
        Tensor::new(certain(self.0.log_sum_square()))
    }

    /// The mean logit over the vocabulary: `[rows, width]`, without gradient: a loss takes it detached. Panics if the tap
    /// was not asked for.
    #[track_caller]
    pub fn mean_logit(&self) -> Tensor {
        Tensor::new(certain(self.0.mean_logit()))
    }

    /// The mean log-probability over the vocabulary. Differentiable when scored for learning.
    #[track_caller]
    pub fn mean_logprob(&self) -> Tensor {
        Tensor::new(certain(self.0.mean_logprob()))
    }

    /// 1 where the token is the one of the highest probability, else 0: `[rows, width]`.
    #[track_caller]
    pub fn top_one(&self) -> Tensor {
        Tensor::new(certain(self.0.top_one()))
    }
}

/// Scores rows without keeping anything for a gradient; logits are divided by `temperature`.
/// Costs one forward pass.
#[track_caller]
pub fn score(view: &View, rows: &Rows, taps: Taps, temperature: f32) -> Result<Scores> {
    checked(model::score(view.handle(), rows.handle(), taps.handle().as_ref(), temperature)).map(Scores)
}

/// Scores rows through the policy, so that a loss built on the taps can be back-propagated.
/// Costs one forward pass and its memory.
#[track_caller]
pub fn score_for_learning(rows: &Rows, taps: Taps, temperature: f32) -> Result<Scores> {
    checked(model::score_for_learning(rows.handle(), taps.handle().as_ref(), temperature)).map(Scores)
}

/// Log-probabilities of the tokens `ids` as the next token after the end of each row: `[rows, ids]`, without gradient.
/// Costs one forward pass.
#[track_caller]
pub fn next_token(view: &View, rows: &Rows, ids: &[u32]) -> Result<Tensor> {
    checked(model::next_token(&view.0, rows.handle(), ids)).map(Tensor::new)
}

/// The Kullback-Leibler divergence Σ p (log p − log q) over the vocabulary, p of `view` and q of `other`, for the token that
/// follows each row, in nats: `[rows]`, without gradient. Costs two forward passes.
#[track_caller]
pub fn divergence(view: &View, other: &View, rows: &Rows) -> Result<Tensor> {
    checked(model::divergence(&view.0, &other.0, rows.handle())).map(Tensor::new)
}

/// Scores rows through the policy as [`score_for_learning`] does, with the divergence of each next-token distribution to that
/// of another view ([`Scores::divergence`]): 0 is the forward divergence KL(other‖policy), 1 the reverse one, and β between
/// them the generalized Jensen–Shannon divergence (arXiv:2306.13649).
/// Costs two forward passes and the memory of one. Errors: `beta` outside 0 to 1.
#[track_caller]
pub fn score_for_learning_against(
    other: &View,
    beta: f32,
    rows: &Rows,
    taps: Taps,
    temperature: f32,
) -> Result<Scores> {
    let asked = taps.handle().unwrap_or_else(model::Taps::new);
    checked(asked.divergence(other.handle(), beta))?;
    checked(model::score_for_learning(rows.handle(), Some(&asked), temperature)).map(Scores)
}

impl Scores {
    /// The divergence to the other view, in nats: `[rows, width]`, differentiable. Panics unless the rows were scored by
    /// [`score_for_learning_against`].
    #[track_caller]
    pub fn divergence(&self) -> Tensor {
        Tensor::new(certain(self.0.divergence()))
    }
}
