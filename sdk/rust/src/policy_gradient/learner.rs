//! The weight updates on a rollout.

use super::{
    Advantage, Divergence, Kept, Objective, Rollout, Sampling, Steering, Tokens, high_entropy, report_clipping,
};
use crate::Result;
use crate::learn::{backward, update};
use crate::model::{Taps, score_for_learning};
use crate::run::metric;
use crate::tensor::{All, Tensor};

/// How a method learns from a rollout.
pub struct Learner<'a> {
    /// How the rollout was sampled.
    pub sampling: &'a Sampling,
    /// How rewards become advantages.
    pub advantage: &'a Advantage,
    /// The loss.
    pub objective: &'a Objective,
    /// The penalty on the divergence from the reference.
    pub divergence: &'a Divergence,
    /// Gradients on the rollout, with a weight update between two of them.
    pub updates: u32,
    /// The share of the tokens to learn from, those with the highest entropy.
    pub top_entropy: f32,
}

impl Learner<'_> {
    /// Back-propagates the loss of the kept rows `updates` times, with a weight update between two; the run does the
    /// last. Does nothing if no token is kept. Reports `loss`, `kl`, `entropy`, clipped ratios, sampling difference.
    #[track_caller]
    pub fn learn(&self, rollout: &Rollout, kept: &Kept, steering: &mut Steering) -> Result<()> {
        if kept.tokens == 0 {
            return Ok(());
        }
        let reference = self.divergence.reference(&rollout.rows, self.sampling.temperature)?;
        let mut old = None;
        for number in 0..self.updates {
            if number > 0 {
                update()?;
            }
            self.add_gradient(rollout, kept, reference.as_ref(), &mut old, steering)?;
        }
        Ok(())
    }

    /// Back-propagates the loss of a rollout once and reports its metrics. `old` is ℓ_old; the first call sets it.
    fn add_gradient(
        &self,
        rollout: &Rollout,
        kept: &Kept,
        reference: Option<&Tensor>,
        old: &mut Option<Tensor>,
        steering: &mut Steering,
    ) -> Result<()> {
        let scores = score_for_learning(&rollout.rows, Taps::ENTROPY, self.sampling.temperature)?;
        let (logprob, entropy) = (scores.logprob(), scores.entropy()); // [rows, width]
        rollout.report_difference(&logprob, old.as_ref());
        let old = old.get_or_insert_with(|| logprob.detach());
        let advantage = self.advantage.tensor(&rollout.rewards); // [rows, 1]
        let tokens = Tokens { logprob: &logprob, old, advantage: &advantage, mask: &kept.mask };
        let ratio = self.objective.ratio(&tokens);
        let unsure = high_entropy(&entropy, kept, self.top_entropy);

        let mut cost = self.objective.cost(&tokens, &ratio) * &unsure;
        if let Some(reference) = reference {
            let distance = self.divergence.of(&logprob, reference, &ratio);
            metric("kl", distance.detach().masked_mean(&kept.mask, All));
            cost = cost + distance * self.divergence.beta;
        }
        let loss = self.objective.aggregate(&cost, kept, self.sampling.max_tokens);
        let loss = steering.with_bonus(loss, &entropy, &unsure)?;
        backward(&loss)?;

        metric("loss", loss);
        metric("entropy", entropy.detach().masked_mean(&kept.mask, All));
        report_clipping(self.objective, &tokens, &ratio);
        Ok(())
    }
}
