//! The losses of a pair; the table in the README lists them.

use tunebox::prelude::*;

use crate::Options;

/// The loss of a pair.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loss {
    Sigmoid,
    Cdpo,
    Robust,
    Hinge,
    Ipo,
    SigmoidNorm,
    ExoPair,
    NcaPair,
    BcoPair,
    SppoHard,
    Aot,
    AotUnpaired,
    ApoZero,
    ApoDown,
    Discopop,
    Sft,
}

impl Loss {
    /// The name in the setting `loss`.
    pub(crate) fn name(self) -> &'static str {
        Self::VALUES.iter().zip(Self::NAMES).find(|(value, _)| **value == self).map_or("", |(_, name)| name)
    }

    /// Whether the loss of a pair depends on the other pairs.
    pub(crate) fn couples_pairs(self) -> bool {
        matches!(self, Self::Aot | Self::AotUnpaired)
    }

    /// Whether the loss depends on `label-smoothing`.
    pub(crate) fn reads_smoothing(self) -> bool {
        matches!(self, Self::Cdpo | Self::Robust | Self::ExoPair | Self::Aot | Self::AotUnpaired)
    }
}

/// The values that losses are computed from, each `[rows]`.
pub(crate) struct Terms<'step> {
    pub(crate) options: &'step Options,
    /// log π of each answer.
    pub(crate) policy: &'step Pair<Tensor>,
    /// log π_ref of each answer.
    pub(crate) reference: &'step Pair<Tensor>,
    /// r = log π − log π_ref.
    pub(crate) ratios: Pair<Tensor>,
    /// f′ of the divergence at each ratio; equal to r for the reverse KL divergence.
    pub(crate) divergences: Pair<Tensor>,
    /// Target tokens of each answer.
    pub(crate) lengths: Pair<Tensor>,
}

impl Terms<'_> {
    /// The loss of each pair, `[rows]`; 0 for `sft`, a loss of tokens that the caller computes.
    pub(crate) fn cost(&self, loss: Loss) -> Tensor {
        let (beta, epsilon) = (self.options.beta, self.options.label_smoothing);
        let margin = || self.divergences.difference() * beta; // βΔ
        let rewards = self.ratios.map(|ratio| ratio * beta); // βr
        let (chosen, rejected) = (&rewards.chosen, &rewards.rejected);
        match loss {
            Loss::Sigmoid => -margin().log_sigmoid(),
            Loss::Cdpo => loss::smoothed_logistic(&margin(), epsilon),
            Loss::Robust => {
                let margin = margin();
                let (right, flipped) = (-margin.log_sigmoid(), -(-&margin).log_sigmoid());
                (right * (1.0 - epsilon) - flipped * epsilon) / (1.0 - 2.0 * epsilon)
            }
            Loss::Hinge => (1.0 - margin()).relu(),
            Loss::Ipo => (self.length_normalized() - 0.5 / beta).square(),
            Loss::SigmoidNorm => -(self.length_normalized() * beta).log_sigmoid(),
            Loss::ExoPair => {
                let (margin, other) = (margin(), -margin());
                let right = margin.sigmoid() * (margin.log_sigmoid() - (1.0 - epsilon).ln());
                right + other.sigmoid() * (other.log_sigmoid() - epsilon.ln())
            }
            Loss::NcaPair => {
                let both = (-chosen).log_sigmoid() + (-rejected).log_sigmoid();
                -chosen.log_sigmoid() - both * 0.5
            }
            Loss::BcoPair => -chosen.log_sigmoid() - (-rejected).log_sigmoid(),
            Loss::SppoHard => {
                let (win, loss) = (&self.ratios.chosen - 0.5 / beta, &self.ratios.rejected + 0.5 / beta);
                win.square() + loss.square()
            }
            Loss::Aot => self.transport_cost(&self.policy.difference(), &self.reference.difference()),
            Loss::AotUnpaired => self.transport_cost(&self.ratios.chosen, &self.ratios.rejected),
            Loss::ApoZero => 1.0 - chosen.sigmoid() + rejected.sigmoid(),
            Loss::ApoDown => chosen.sigmoid() + 1.0 - (chosen - rejected).sigmoid(),
            Loss::Discopop => {
                let margin = margin();
                let blend = (&margin / self.options.discopop_tau).sigmoid();
                (1.0 - &blend) * -margin.log_sigmoid() + blend * (-margin).exp()
            }
            Loss::Sft => chosen * 0.0,
        }
    }

    /// The difference between the mean r of a chosen and a rejected answer's token, `[rows]`.
    fn length_normalized(&self) -> Tensor {
        self.divergences.with(&self.lengths, |score, length| score / length).difference()
    }

    /// The loss of optimal transport, `[rows]`: sorts both tensors and takes the logistic loss of the differences
    /// between equal quantiles.
    fn transport_cost(&self, better: &Tensor, worse: &Tensor) -> Tensor {
        let margin = (better.sort(0, false) - worse.sort(0, false)) * self.options.beta;
        loss::smoothed_logistic(&margin, self.options.label_smoothing)
    }
}

/// How likely the policy is to sample a pair: the product of e^(mean(log p − log Σ p²)) of both answers, without
/// gradient, `[rows]`.
pub(crate) fn pair_weights(scores: &Pair<Scores>, lengths: &Pair<Tensor>) -> Tensor {
    let own = scores.with(lengths, |scores, lengths| {
        let aligned = (scores.logprob() - scores.log_sum_square()).detach(); // [rows, width]
        (aligned.sum(1) / lengths).exp()
    });
    own.chosen * own.rejected
}
