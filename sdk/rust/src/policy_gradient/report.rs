//! Metrics of the ratios, under the names of TRL.

use super::objective::{constant, vespo_weight};
use super::{Level, Loss, Objective, Tokens};
use crate::Tensor;
use crate::run::metric;
use crate::tensor::{All, Dtype};

/// Reports which ratios were clipped: the share of all tokens, and of the completion with the fewest or
/// the most. At the level of the completion, shares of completions.
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
            let ratio = objective.capped(&ratio);
            let below = ratio.less(constant(1.0 - objective.epsilon)).logical_and(tokens.advantage.less(0.0));
            let above = ratio.greater(constant(1.0 + objective.high())).logical_and(tokens.advantage.greater(0.0));
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
