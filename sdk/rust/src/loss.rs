//! Pieces that losses share. Every mean takes its denominator, so that accumulation cannot change a loss.

use crate::tensor::All;
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

/// The log-probability of each row's targets together: `[rows]`.
#[track_caller]
pub fn sequence_logprob(scores: &Scores) -> Tensor {
    scores.logprob().sum(1)
}

/// How much likelier the policy finds each row than the reference does, log π − log π_ref: `[rows]`.
#[track_caller]
pub fn log_ratio(policy: &Scores, reference: &Scores) -> Tensor {
    sequence_logprob(policy) - sequence_logprob(reference)
}

/// How far the chosen rows are ahead of the rejected ones, times `beta`: `[rows]`.
#[track_caller]
pub fn margin(chosen: &Tensor, rejected: &Tensor, beta: f32) -> Tensor {
    (chosen - rejected) * beta
}
