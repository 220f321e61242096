//! Pieces that losses share. Every mean takes its denominator, so that accumulation cannot change a loss.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch) -> Result<()> {
//! // The loss of DPO: −log σ(β · (log-ratio of the chosen answer − that of the rejected one)).
//! let rows = Pair::of(batch)?;
//! let policy = rows.score_for_learning(Taps::empty())?;
//! let ratios = policy.with(&rows.score(&reference()?, Taps::empty())?, loss::log_ratio);
//! let margin = loss::margin(&ratios.chosen, &ratios.rejected, 0.1); // [rows]
//! backward(&loss::row_mean(&loss::smoothed_logistic(&margin, 0.0), batch.window_size()))?;
//! # Ok(())
//! # }
//! ```

use crate::tensor::{All, where_};
use crate::{Scores, Tensor};

/// Σ of per-token values over `denominator`, usually [`window_targets`](crate::Batch::window_targets): one element.
/// The values are 0 off the targets, as every tap is.
#[track_caller]
pub fn token_mean(per_token: &Tensor, denominator: u32) -> Tensor {
    per_token.sum(All) / denominator.max(1) as f32
}

/// Σ of per-token values where `mask` is 1 over `denominator`: one element. A masked NaN counts 0.
#[track_caller]
pub fn masked_token_mean(per_token: &Tensor, mask: &Tensor, denominator: u32) -> Tensor {
    per_token.masked_sum(mask, All) / denominator.max(1) as f32
}

/// Σ of per-row values over `denominator`, usually [`window_size`](crate::Batch::window_size): one element.
#[track_caller]
pub fn row_mean(per_row: &Tensor, denominator: u32) -> Tensor {
    per_row.sum(All) / denominator.max(1) as f32
}

/// The summed log-probability of each row's targets: `[rows]`.
#[track_caller]
pub fn sequence_logprob(scores: &Scores) -> Tensor {
    scores.logprob().sum(1)
}

/// The mean log-probability of each row's targets: `[rows]`; `lengths` is [`Rows::lengths`](crate::Rows::lengths).
#[track_caller]
pub fn mean_logprob(scores: &Scores, lengths: &Tensor) -> Tensor {
    sequence_logprob(scores) / lengths.clamp(Some(1.0), None)
}

/// −(1 − ε) log σ(x) − ε log σ(−x), the logistic loss of a margin with a share ε of flipped labels.
#[track_caller]
pub fn smoothed_logistic(margin: &Tensor, smoothing: f32) -> Tensor {
    let right = -margin.log_sigmoid();
    if smoothing == 0.0 { right } else { right * (1.0 - smoothing) - (-margin).log_sigmoid() * smoothing }
}

/// log(1 − eˣ) for x < 0, element by element, accurate near 0 and for large −x.
#[track_caller]
pub fn log_one_minus_exp(x: &Tensor) -> Tensor {
    let near = x.greater(-std::f32::consts::LN_2); // 1 − eˣ is small there
    where_(&near, (-x.expm1()).log(), (-x.exp()).log1p())
}

/// The log-probability of each row's targets under the policy minus that under the reference: `[rows]`.
#[track_caller]
pub fn log_ratio(policy: &Scores, reference: &Scores) -> Tensor {
    sequence_logprob(policy) - sequence_logprob(reference)
}

/// (`chosen` − `rejected`) · `beta`, element by element: `[rows]`.
#[track_caller]
pub fn margin(chosen: &Tensor, rejected: &Tensor, beta: f32) -> Tensor {
    (chosen - rejected) * beta
}
