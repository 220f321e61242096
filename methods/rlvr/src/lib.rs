//! Learning from verifiable rewards: completions that pass the run's checks become likelier.
//!
//! Groups of completions are judged by the run's verifiers; the first one says whether a completion
//! passes. A token costs −min(w·A, clip(w)·A), averaged over the update's tokens, with the advantage A in
//! its group (DAPO: a wider clip upwards, groups without a signal and completions that were cut left out).

use tunebox::policy_gradient::{Advantage, Divergence, Learner, Objective, Sampling, Steering};
use tunebox::prelude::*;

/// Learning from verifiable rewards, and what people may set about it.
#[derive(Settings)]
pub struct Verified {
    #[setting(flatten)]
    sampling: Sampling,
    #[setting(flatten)]
    divergence: Divergence,

    /// How far below 1 the ratio may go before it is clipped.
    #[setting(default = 0.2, low = 0.0, below = 1.0)]
    epsilon: f32,

    /// How far above 1 it may go: wider, so that rare tokens can still become likely.
    #[setting(default = 0.28, low = 0.0, high = 1000.0)]
    epsilon_high: f32,

    /// The first verifier's verdict from which on a completion passes, for `pass-at-one` and `pass-at-k`.
    #[setting(default = 0.5)]
    pass: f32,

    /// Divide advantages by the spread of their group; without it (Dr. GRPO) hard and easy prompts count alike.
    #[setting(default = true)]
    scale_rewards: bool,

    /// Learn from completions that were cut off as well.
    #[setting(default = false)]
    learn_from_truncated: bool,

    /// Weight updates on every set of completions.
    #[setting(default = 1, low = 1, high = 64)]
    updates: u32,
}

impl Method for Verified {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rollout = self.sampling.roll_out(batch)?;
        rollout.report();
        let passes = rollout.rewards.passes(self.pass);
        metric("pass-at-one", passes.at_one);
        metric("pass-at-k", passes.at_k);
        let rollout = self.sampling.choose(rollout)?;
        let kept = rollout.keep(!self.learn_from_truncated, true);
        let learner = Learner {
            sampling: &self.sampling,
            advantage: &Advantage::scaled(self.scale_rewards),
            objective: &Objective::clipped(self.epsilon, self.epsilon_high),
            divergence: &self.divergence,
            updates: self.updates,
            top_entropy: 1.0,
        };
        // Nothing is learned where every group passes or fails as a whole.
        learner.learn(&rollout, &kept, &mut Steering::none())
    }
}

method! {
    Verified,
    shape: "prompts",
    batch: "window",
    metrics: [
        "loss", "pass-at-one", "pass-at-k", "reward", "reward-std", "frac-reward-zero-std", "unjudged", "kl", "entropy",
        "clip-ratio-low-mean", "clip-ratio-low-min", "clip-ratio-high-mean", "clip-ratio-high-max",
        "clip-ratio-region-mean", "completions-mean-length", "completions-min-length", "completions-max-length",
        "completions-clipped-ratio", "completions-terminated-mean-length", "completions-terminated-min-length",
        "completions-terminated-max-length", "sampling-difference-mean", "sampling-difference-max",
    ],
    paper: "arXiv:2411.15124",
}
