//! The losses: a cost a token from the ratio between the policy and the one that wrote, then one number.
//!
//! w = exp(ℓ − ℓ_old) a token, or exp of the mean of ℓ − ℓ_old over the completion (GSPO); A the advantage.

use super::Kept;
use crate::run::metric;
use crate::tensor::{All, Dtype, Keep, where_};
use crate::{Choice, Error, Result, Settings, Tensor};

/// The log of 1e-8, and a bound on the other side: what a summed log-ratio is held to.
const LOG_RATIO: (f64, f64) = (-18.420680743952367, 20.0);

/// Settings of the policy-gradient loss.
#[derive(Settings, Clone)]
pub struct Objective {
    /// What a token costs, and how costs are averaged: `dapo`, over all tokens of the update; `grpo`, over the tokens
    /// of a completion, then over completions; `bnpo`, as `dapo` here; `dr-grpo`, over completions times `max-tokens`;
    /// `luspo`, summed over a completion; `cispo`, weighted log-likelihood with a capped weight; `sapo`, a soft gate
    /// instead of a clip; `vespo`, weights from the whole completion's ratio.
    #[setting(default = "dapo")]
    pub loss: Loss,

    /// What the ratio is taken over: `token`, or `sequence`, the geometric mean over the completion (GSPO).
    #[setting(default = "token")]
    pub importance: Level,

    /// How far below 1 the ratio may go before it is clipped.
    #[setting(default = 0.2, low = 0.0, below = 1.0)]
    pub epsilon: f32,

    /// How far above 1 it may go; 0 for the same as `epsilon`. For `cispo` the cap itself, such as 5.
    #[setting(default = 0.0, low = 0.0, high = 1000.0)]
    pub epsilon_high: f32,

    /// A cap on the ratio even where it is not clipped (INTELLECT-2), above 1 + `epsilon-high`; 0 for none.
    #[setting(default = 0.0, low = 0.0, high = 1000.0)]
    pub delta: f32,

    /// Leave out completions with a negative advantage that the policy now finds less likely than this, in nats a
    /// token (DeepSeek-V3.2); 0 for none.
    #[setting(default = 0.0, low = 0.0, high = 1000.0)]
    pub off_policy_mask: f32,

    /// For `sapo`: how sharp the gate is for positive advantages.
    #[setting(default = 1.0, above = 0.0, high = 1000.0)]
    pub sapo_temperature_positive: f32,

    /// For `sapo`: how sharp the gate is for the others.
    #[setting(default = 1.05, above = 0.0, high = 1000.0)]
    pub sapo_temperature_negative: f32,
}

/// What a token costs, and how costs are averaged.
#[derive(Choice, Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// Clipped, mean over a completion's tokens, then over completions.
    Grpo,
    /// Clipped, mean over all tokens.
    Bnpo,
    /// Clipped, over completions times the longest completion allowed.
    DrGrpo,
    /// Clipped, mean over all tokens of the update.
    Dapo,
    /// Clipped, summed over a completion's tokens, mean over completions.
    Luspo,
    /// Log-likelihood, weighted by the capped ratio.
    Cispo,
    /// A soft gate on the ratio.
    Sapo,
    /// Log-likelihood, weighted by a gamma density of the completion's ratio.
    Vespo,
}

/// The unit of a ratio.
#[derive(Choice, Clone, Copy, PartialEq, Debug)]
pub enum Level {
    /// Each token for itself.
    Token,
    /// The completion.
    Sequence,
}

/// The tensors that a loss is computed from.
pub struct Tokens<'a> {
    /// ℓ, differentiable: `[rows, width]`.
    pub logprob: &'a Tensor,
    /// ℓ_old, without gradient: `[rows, width]`.
    pub old: &'a Tensor,
    /// A: `[rows, 1]`.
    pub advantage: &'a Tensor,
    /// 1 where a token counts: `[rows, width]`.
    pub mask: &'a Tensor,
}

impl Objective {
    /// The objective `dapo` with clipped token ratios: its costs are averaged over all tokens, other options are off.
    pub fn clipped(epsilon: f32, epsilon_high: f32) -> Self {
        Self {
            loss: Loss::Dapo,
            importance: Level::Token,
            epsilon,
            epsilon_high,
            delta: 0.0,
            off_policy_mask: 0.0,
            sapo_temperature_positive: 1.0,
            sapo_temperature_negative: 1.05,
        }
    }

    /// Fails if `cispo` lacks `epsilon-high`, `dr-grpo` lacks `max-tokens`, or `delta` is not above 1 + `epsilon-high`.
    pub fn check(&self, max_tokens: u32) -> Result<()> {
        if self.loss == Loss::Cispo && self.epsilon_high == 0.0 {
            return Err(Error::new("`loss = \"cispo\"` needs `epsilon-high`, the cap of its weights, such as 5"));
        }
        if self.loss == Loss::DrGrpo && max_tokens == 0 {
            return Err(Error::new("`loss = \"dr-grpo\"` divides by `max-tokens`, which must be given"));
        }
        if self.delta > 0.0 && self.delta <= 1.0 + self.high() {
            return Err(Error::new("`delta` caps what is not clipped, so it must be above 1 + `epsilon-high`"));
        }
        Ok(())
    }

    /// The ratio w of the probabilities now and when sampled: `[rows, width]`, or `[rows, 1]` over completions.
    #[track_caller]
    pub fn ratio(&self, tokens: &Tokens<'_>) -> Tensor {
        let log_ratio = tokens.logprob - tokens.old;
        match self.importance {
            Level::Token => log_ratio.exp(),
            Level::Sequence => log_ratio.masked_mean(tokens.mask, Keep(1)).exp(),
        }
    }

    /// The cost of every token: `[rows, width]`, or `[rows, 1]` if the loss depends only on a ratio `[rows, 1]`.
    /// `ratio` is the result of [`ratio`](Self::ratio).
    #[track_caller]
    pub fn cost(&self, tokens: &Tokens<'_>, ratio: &Tensor) -> Tensor {
        let cost = match self.loss {
            Loss::Cispo => {
                let weight = ratio.clamp(None, Some(self.epsilon_high.into())).detach();
                -(weight * tokens.advantage * tokens.logprob)
            }
            Loss::Sapo => self.sapo_cost(tokens.advantage, ratio),
            Loss::Vespo => -(vespo_weight(tokens) * tokens.advantage * tokens.logprob),
            _ => self.clipped_cost(tokens.advantage, ratio),
        };
        if self.off_policy_mask > 0.0 { cost * self.on_policy(tokens) } else { cost }
    }

    /// The clipped cost: −min(w·A, clip(w)·A), with w capped at `delta`.
    fn clipped_cost(&self, advantage: &Tensor, ratio: &Tensor) -> Tensor {
        let (low, high) = (1.0 - self.epsilon, 1.0 + self.high());
        let clipped = ratio.clamp(Some(low.into()), Some(high.into())) * advantage;
        let capped = self.cap_ratio(ratio) * advantage;
        -capped.minimum(&clipped)
    }

    /// The cost of `sapo`: −(4/τ)·σ(τ(w − 1))·A, with τ by the sign of A.
    fn sapo_cost(&self, advantage: &Tensor, ratio: &Tensor) -> Tensor {
        let (positive, negative) = (self.sapo_temperature_positive, self.sapo_temperature_negative);
        let sharpness = where_(&advantage.greater(0.0), positive, negative); // [rows, 1]
        let gate = ((ratio - 1.0) * &sharpness).sigmoid() * (4.0 / sharpness);
        -(gate * advantage)
    }

    /// The mask `[rows, 1]` of completions to keep: A ≥ 0, or mean(ℓ_old − ℓ) at most `off-policy-mask`.
    fn on_policy(&self, tokens: &Tokens<'_>) -> Tensor {
        let fallen = (tokens.old - tokens.logprob.detach()).masked_mean(tokens.mask, Keep(1));
        let keep = tokens.advantage.greater_equal(0.0).logical_or(fallen.less_equal(self.off_policy_mask));
        keep.cast(Dtype::F32)
    }

    /// The ratio clamped to at most `delta`, or to the largest `f32` if `delta` is 0.
    fn cap_ratio(&self, ratio: &Tensor) -> Tensor {
        let cap = (self.delta > 0.0).then_some(f64::from(self.delta));
        ratio.clamp(None, Some(cap.unwrap_or(f64::from(f32::MAX))))
    }

    /// How far above 1 a ratio may go: `epsilon-high`, or `epsilon` if that is 0.
    fn high(&self) -> f32 {
        if self.epsilon_high > 0.0 { self.epsilon_high } else { self.epsilon }
    }

    /// Reduces the costs of the kept tokens to one number, by the loss's mean, with denominators of the whole update.
    #[track_caller]
    pub fn aggregate(&self, cost: &Tensor, kept: &Kept, max_tokens: u32) -> Tensor {
        let counted = cost * &kept.mask; // [rows, width]
        let rows = kept.rows.max(1) as f32;
        match self.loss {
            Loss::Grpo | Loss::Sapo => {
                let lengths = kept.mask.sum(1).clamp(Some(1.0), None); // [rows]
                (counted.sum(1) / lengths).sum(All) / rows
            }
            Loss::DrGrpo => counted.sum(All) / (rows * max_tokens as f32),
            Loss::Luspo => counted.sum(All) / rows,
            Loss::Bnpo | Loss::Dapo | Loss::Cispo | Loss::Vespo => counted.sum(All) / kept.tokens.max(1) as f32,
        }
    }
}

/// The weight of a completion in `vespo`: exp(λ + k·s − λ·eˢ) with s = Σ (ℓ − ℓ_old), without gradient, `[rows, 1]`.
/// (k, λ) is (2, 3) for A ≥ 0, else (3, 2).
fn vespo_weight(tokens: &Tokens<'_>) -> Tensor {
    let log_ratio = (tokens.logprob.detach() - tokens.old).clamp(Some(-20.0), Some(20.0));
    let whole = log_ratio.masked_sum(tokens.mask, Keep(1)).clamp(Some(LOG_RATIO.0), Some(LOG_RATIO.1));
    let better = tokens.advantage.greater_equal(0.0);
    let (power, rate) = (where_(&better, 2.0, 3.0), where_(&better, 3.0, 2.0));
    let weight = (&rate + power * &whole - rate * whole.exp()).exp();
    weight.replace_non_finite(0.0)
}

/// Reports which ratios were clipped, under the names of TRL: the share of all tokens, and of the completion with the
/// fewest or the most. At the level of the completion, shares of completions.
#[track_caller]
pub fn report_clipping(objective: &Objective, tokens: &Tokens<'_>, ratio: &Tensor) {
    let ratio = ratio.detach();
    let share = |flags: &Tensor| match objective.importance {
        Level::Token => flags.masked_mean(tokens.mask, All),
        Level::Sequence => flags.mean(All),
    };
    let rows = |flags: &Tensor| match objective.importance {
        Level::Token => flags.masked_mean(tokens.mask, 1),
        Level::Sequence => flags.mean(1),
    };
    match objective.loss {
        Loss::Cispo => {
            let capped = ratio.greater(objective.epsilon_high).logical_and(tokens.advantage.greater(0.0));
            metric("cispo-clip-ratio", share(&capped.cast(Dtype::F32)));
        }
        Loss::Vespo => metric("vespo-phi-seq-mean", vespo_weight(tokens).mean(All)),
        Loss::Sapo => {}
        _ => {
            let ratio = objective.cap_ratio(&ratio);
            let below = ratio.less(1.0 - objective.epsilon).logical_and(tokens.advantage.less(0.0));
            let above = ratio.greater(1.0 + objective.high()).logical_and(tokens.advantage.greater(0.0));
            let region = below.logical_or(&above).cast(Dtype::F32);
            let (below, above) = (below.cast(Dtype::F32), above.cast(Dtype::F32));
            metric("clip-ratio-low-mean", share(&below));
            metric("clip-ratio-low-min", rows(&below).min(All));
            metric("clip-ratio-high-mean", share(&above));
            metric("clip-ratio-high-max", rows(&above).max(All));
            metric("clip-ratio-region-mean", share(&region));
        }
    }
}
