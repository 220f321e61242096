//! Group-relative policy optimisation: completions that beat the others of their prompt become likelier.
//!
//! A group of completions is written for every prompt and judged by the run's verifiers. A completion's
//! advantage A is its reward, centred and scaled in its group. A token costs −min(w·A, clip(w)·A), with w
//! the ratio of its probability now to that when it was written, plus β times its divergence from the
//! reference. `loss` names the variants: how the ratio is limited, and how costs are averaged.

use tunebox::learn;
use tunebox::policy_gradient::{
    Advantage, Divergence, EntropyBonus, Kept, Objective, Rollout, Sampling, Steering, Tokens, high_entropy,
    report_clipping,
};
use tunebox::prelude::*;

/// Group-relative policy optimisation, and what people may set about it.
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
        if kept.tokens == 0 {
            return Ok(()); // nothing to learn from, so the weights stay
        }
        let reference = self.settings.divergence.reference(&rollout.rows, self.settings.sampling.temperature)?;
        let mut old = None;
        for update in 0..self.settings.updates {
            if update > 0 {
                learn::update()?;
            }
            self.learn(&rollout, &kept, reference.as_ref(), &mut old)?;
        }
        Ok(())
    }

    fn save_state(&self) -> Vec<u8> {
        self.steering.save()
    }

    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        self.steering.load(state)
    }
}

impl Grpo {
    /// One gradient on the completions of a rollout; `old` is ℓ_old once there was one.
    fn learn(
        &mut self,
        rollout: &Rollout,
        kept: &Kept,
        reference: Option<&Tensor>,
        old: &mut Option<Tensor>,
    ) -> Result<()> {
        let Settings { sampling, advantage, objective, divergence, top_entropy, .. } = &self.settings;
        let scores = score_for_learning(&rollout.rows, Taps::ENTROPY, sampling.temperature)?;
        let (logprob, entropy) = (scores.logprob(), scores.entropy()); // [rows, width]
        rollout.report_difference(&logprob, old.as_ref());
        let old = old.get_or_insert_with(|| logprob.detach());
        let advantage = advantage.tensor(&rollout.rewards); // [rows, 1]
        let tokens = Tokens { logprob: &logprob, old, advantage: &advantage, mask: &kept.mask };
        let ratio = objective.ratio(&tokens);
        let unsure = high_entropy(&entropy, kept, *top_entropy);

        let mut cost = objective.cost(&tokens, &ratio) * &unsure;
        if let Some(reference) = reference {
            let distance = divergence.of(&logprob, reference, &ratio);
            metric("kl", distance.detach().masked_mean(&kept.mask, All));
            cost = cost + distance * divergence.beta;
        }
        let loss = objective.aggregate(&cost, kept, sampling.max_tokens);
        let loss = self.steering.with_bonus(loss, &entropy, &unsure)?;
        minimise(&loss)?;

        metric("loss", loss);
        metric("entropy", entropy.detach().masked_mean(&kept.mask, All));
        report_clipping(objective, &tokens, &ratio);
        Ok(())
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
