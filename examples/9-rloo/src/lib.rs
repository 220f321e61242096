//! REINFORCE leave-one-out (arXiv:2402.14740): a completion is measured by the others of its prompt.
//!
//! The reward of a completion is what the verifiers give, less β times how far the policy has gone from
//! the reference on it. Its baseline is the mean reward of the other completions of the same prompt.

use tunebox::prelude::*;

/// What people may set.
#[derive(Settings)]
pub struct LeaveOneOut {
    /// Completions of every prompt.
    #[setting(default = 4, low = 2, high = 256)]
    completions: u32,

    /// What a nat of divergence from the reference takes off the reward of a completion.
    #[setting(default = 0.05, low = 0.0, high = 100.0)]
    beta: f32,

    /// How far the probability of a completion may move before it stops to count.
    #[setting(default = 0.2, low = 0.0, below = 1.0)]
    epsilon: f32,
}

impl Method for LeaveOneOut {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let sampler = Sampler::new().completions(self.completions)?;
        let written = generate(&policy(), &batch.rows("prompt")?, &sampler)?;
        let rows = written.rows();
        let earned = (judge(batch, &written)?.replace_non_finite(0.0) * weights()?).sum(1); // [rows]

        let scores = score_for_learning(&rows, Taps::empty(), 1.0)?;
        let whole = loss::sequence_logprob(&scores); // [rows]
        let old = whole.detach();
        let before = loss::sequence_logprob(&score(&reference()?, &rows, Taps::empty(), 1.0)?);
        let divergence = &old - before;
        let reward = &earned - &divergence * self.beta;

        let (count, each) = (rows.count(), self.completions);
        let groups = reward.reshape(&[count / each, each]);
        let others = (groups.sum(Keep(1)) - &groups) / (each - 1) as f32;
        let advantage = (groups - others).reshape(&[count]);

        let ratio = (whole - old).exp();
        let clipped = ratio.clamp(Some((1.0 - self.epsilon).into()), Some((1.0 + self.epsilon).into()));
        let loss = -(ratio * &advantage).minimum(clipped * &advantage).mean(All);
        backward(&loss)?;

        metric("loss", loss);
        metric("reward", earned.mean(All));
        metric("kl", divergence.mean(All));
        metric("advantage-spread", advantage.std(All, 1));
        Ok(())
    }
}

method! {
    LeaveOneOut,
    shape: "prompts",
    batch: "window",
    metrics: ["loss", "reward", "kl", "advantage-spread"],
    paper: "arXiv:2402.14740",
}

#[cfg(test)]
mod tests;
