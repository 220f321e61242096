//! Updates of `grpo` on recorded completions, so that runs in different number formats learn from the same tokens.
//!
//! Each record has a completion, its `advantage`, and in `logprob` the log-probability of each of its tokens under the policy
//! that wrote it. The ratio is taken to these, and the cost of a token and its average are those of `methods/grpo`.

use tunebox::policy_gradient::{Divergence, Kept, Objective, Tokens, report_clipping};
use tunebox::prelude::*;

/// What people may set.
#[derive(Settings)]
pub struct RecordedGrpo {
    #[setting(flatten)]
    objective: Objective,
    #[setting(flatten)]
    divergence: Divergence,
}

impl Method for RecordedGrpo {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        settings.objective.check(0)?;
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let kept = Kept { mask: rows.mask(), rows: batch.window_size(), tokens: batch.window_targets("example")? };
        let reference = self.divergence.reference(&rows, 1.0)?;
        let logprob = score_for_learning(&rows, Taps::empty(), 1.0)?.logprob(); // [rows, width]
        let (old, advantage) = (batch.token_column("logprob")?, batch.column("advantage")?.unsqueeze(1));
        let tokens = Tokens { logprob: &logprob, old: &old, advantage: &advantage, mask: &kept.mask };
        let ratio = self.objective.ratio(&tokens);
        let mut cost = self.objective.cost(&tokens, &ratio);
        if let Some(reference) = reference {
            let distance = self.divergence.of(&logprob, &reference, &ratio);
            metric("kl", distance.detach().masked_mean(&kept.mask, All));
            cost = cost + distance * self.divergence.beta;
        }
        let loss = self.objective.aggregate(&cost, &kept, 0);
        backward(&loss)?;
        metric("loss", loss);
        report_clipping(&self.objective, &tokens, &ratio);
        Ok(())
    }
}

method! {
    RecordedGrpo,
    shape: "supervised",
    batch: "window",
    metrics: [
        "loss", "kl", "clip-ratio-low-mean", "clip-ratio-low-min", "clip-ratio-high-mean", "clip-ratio-high-max",
        "clip-ratio-region-mean",
    ],
    paper: "arXiv:2402.03300",
}
