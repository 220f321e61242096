//! Group-relative policy optimization: completions that beat the others of their prompt become likelier.
//!
//! A group of completions is written for every prompt and judged by the run's verifiers. A completion's
//! advantage A is its reward, centred and scaled in its group. A token costs −min(w·A, clip(w)·A), with w
//! the ratio of its probability now to that when it was written, plus β times its divergence from the
//! reference. `loss` names the variants: how the ratio is limited, and how costs are averaged.

use tunebox::policy_gradient::{Advantage, Divergence, EntropyBonus, Learner, Objective, Sampling, Steering};
use tunebox::prelude::*;

/// Group-relative policy optimization, and what people may set about it.
#[derive(Settings)]
pub struct Settings {
    #[setting(flatten)]
    sampling: Sampling,
    #[setting(flatten)]
    advantage: Advantage,
    #[setting(flatten)]
    objective: Objective,
    #[setting(flatten)]
    divergence: Divergence,
    #[setting(flatten)]
    bonus: EntropyBonus,

    /// Weight updates on every set of completions.
    #[setting(default = 1, low = 1, high = 64)]
    updates: u32,

    /// Leave completions that were cut off out of the loss and of its denominator.
    #[setting(default = false)]
    mask_truncated: bool,

    /// Leave groups out whose rewards are all alike: their advantages are 0, and they only dilute the others.
    #[setting(default = false)]
    skip_even_groups: bool,

    /// Learn only from this share of the tokens, those where the policy was least sure.
    #[setting(default = 1.0, above = 0.0, high = 1.0)]
    top_entropy: f32,
}

/// The settings, and the entropy bonus as it is now.
pub struct Grpo {
    settings: Settings,
    steering: Steering,
}

impl Method for Grpo {
    type Settings = Settings;

    fn init(settings: Settings) -> Result<Self> {
        settings.objective.check(settings.sampling.max_tokens)?;
        let steering = Steering::new(settings.bonus.clone());
        Ok(Self { settings, steering })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rollout = self.settings.sampling.roll_out(batch)?;
        rollout.report();
        let rollout = self.settings.sampling.choose(rollout)?;
        let kept = rollout.keep(self.settings.mask_truncated, self.settings.skip_even_groups);
        let Settings { sampling, advantage, objective, divergence, updates, top_entropy, .. } = &self.settings;
        let (updates, top_entropy) = (*updates, *top_entropy);
        let learner = Learner { sampling, advantage, objective, divergence, updates, top_entropy };
        learner.learn(&rollout, &kept, &mut self.steering)
    }

    fn save_state(&self) -> Vec<u8> {
        self.steering.save()
    }

    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        self.steering.load(state)
    }
}

method! {
    Grpo,
    shape: "prompts",
    batch: "window",
    metrics: [
        "loss", "policy-loss", "reward", "reward-std", "frac-reward-zero-std", "unjudged", "kl", "entropy",
        "entropy-coefficient", "clip-ratio-low-mean", "clip-ratio-low-min", "clip-ratio-high-mean",
        "clip-ratio-high-max", "clip-ratio-region-mean", "cispo-clip-ratio", "vespo-phi-seq-mean",
        "completions-mean-length", "completions-min-length", "completions-max-length", "completions-clipped-ratio",
        "completions-terminated-mean-length", "completions-terminated-min-length",
        "completions-terminated-max-length", "sampling-difference-mean", "sampling-difference-max",
    ],
    paper: "arXiv:2402.03300",
}
