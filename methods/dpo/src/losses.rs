//! The losses of a pair, each one row of the table in the README.

use tunebox::prelude::*;

use crate::Options;

/// Which loss.
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
    /// Its name in the settings.
    pub(crate) fn name(self) -> &'static str {
        Self::VALUES.iter().zip(Self::NAMES).find(|(value, _)| **value == self).map_or("", |(_, name)| name)
    }

    /// Whether one pair's loss depends on the others.
    pub(crate) fn couples_pairs(self) -> bool {
        matches!(self, Self::Aot | Self::AotUnpaired)
    }

    /// Whether `label-smoothing` acts in it.
    pub(crate) fn reads_smoothing(self) -> bool {
        matches!(self, Self::Cdpo | Self::Robust | Self::ExoPair | Self::Aot | Self::AotUnpaired)
    }
}

/// What the losses are made of, each `[rows]`.
pub(crate) struct Terms<'step> {
    pub(crate) options: &'step Options,
    /// log π of each answer.
    pub(crate) policy: &'step Pair<Tensor>,
    /// log π_ref of each answer.
    pub(crate) reference: &'step Pair<Tensor>,
    /// r = log π − log π_ref.
    pub(crate) ratios: Pair<Tensor>,
    /// r as the divergence sees it.
    pub(crate) bent: Pair<Tensor>,
    /// Target tokens of each answer.
    pub(crate) lengths: Pair<Tensor>,
}

impl Terms<'_> {
    /// The loss of each pair, `[rows]`; 0 for `sft`, which is about tokens and not about pairs.
    pub(crate) fn cost(&self, loss: Loss) -> Tensor {
        let (beta, epsilon) = (self.options.beta, self.options.label_smoothing);
        let margin = || self.bent.difference() * beta; // βΔ
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
            Loss::Aot => self.transport(&self.policy.difference(), &self.reference.difference()),
            Loss::AotUnpaired => self.transport(&self.ratios.chosen, &self.ratios.rejected),
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

    /// The difference of the mean scores of a token.
    fn length_normalized(&self) -> Tensor {
        self.bent.with(&self.lengths, |score, length| score / length).difference()
    }

    /// Two distributions compared quantile by quantile: each sorted, then the logistic loss of the difference.
    fn transport(&self, better: &Tensor, worse: &Tensor) -> Tensor {
        let margin = (better.sort(0, false) - worse.sort(0, false)) * self.options.beta;
        loss::smoothed_logistic(&margin, self.options.label_smoothing)
    }
}

/// How likely the policy itself is to write a pair, e^(mean(log p − log Σ p²)) of both answers, held fixed: `[rows]`.
pub(crate) fn pair_weights(scores: &Pair<Scores>, lengths: &Pair<Tensor>) -> Tensor {
    let own = scores.with(lengths, |scores, lengths| {
        let aligned = (scores.logprob() - scores.log_sum_square()).detach(); // [rows, width]
        (aligned.sum(1) / lengths).exp()
    });
    own.chosen * own.rejected
}
