//! Kahneman–Tversky optimization: good answers become likelier and bad ones less likely, learned from
//! single answers with a label instead of pairs.
//!
//! r = log π(y) − log π_ref(y); z estimates how far the policy has moved at all, by answers under prompts that
//! they do not belong to. A good answer costs 1 − σ(β(r − z)), a bad one 1 − σ(β(z − r)). As z is a mean over
//! the batch, the method takes all records of an update at once.

use tunebox::prelude::*;

/// Kahneman–Tversky optimization, and what people may set about it.
#[derive(Settings)]
pub struct Labelled {
    /// The loss: `kto`, or `apo-zero-unpaired`, which measures from 0 instead of z and needs no further passes.
    #[setting(default = "kto")]
    loss: Loss,

    /// How sharply the loss answers to r.
    #[setting(default = 0.1, above = 0.0)]
    beta: f32,

    /// The weight λ of good answers.
    #[setting(default = 1.0, low = 0.0)]
    desirable_weight: f32,

    /// The weight λ of bad answers; (good answers · their weight) ÷ (bad answers · theirs) between 1 and 4/3 works
    /// best.
    #[setting(default = 1.0, low = 0.0)]
    undesirable_weight: f32,
}

/// The baseline that an answer's log-ratio is compared with.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Loss {
    Kto,
    ApoZeroUnpaired,
}

impl Method for Labelled {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let (rows, good) = (batch.rows("example")?, batch.column("label")?);
        let bad = 1.0 - &good;
        let scores = score_for_learning(&rows, Taps::ENTROPY | Taps::MEAN_LOGIT, 1.0)?;
        let logps = loss::sequence_logprob(&scores);
        let ratio = &logps - loss::sequence_logprob(&score(&reference()?, &rows, Taps::empty(), 1.0)?);

        let baseline = self.baseline(batch)?;
        let gap = (&ratio - &baseline) * self.beta;
        let costs = (-&gap).sigmoid() * &good * self.desirable_weight + gap.sigmoid() * &bad * self.undesirable_weight;
        let total = loss::row_mean(&costs, batch.window_size());
        backward(&total)?;

        add_metric("loss", total);
        add_metric("kl", baseline);
        add_metric("entropy", loss::token_mean(&scores.entropy(), batch.window_targets("example")?));
        let rewards = (ratio * self.beta).detach();
        let chosen = self.report_label("chosen", &good, &rows, &scores, &rewards, &logps)?;
        let rejected = self.report_label("rejected", &bad, &rows, &scores, &rewards, &logps)?;
        if let (Some(chosen), Some(rejected)) = (chosen, rejected) {
            add_metric("rewards-margins", chosen - rejected);
        }
        Ok(())
    }
}

impl Labelled {
    /// z: the mean log-ratio of policy and reference on answers under other prompts than their own, at least 0, a
    /// scalar; 0 for `apo-zero-unpaired`. Takes two forward passes.
    fn baseline(&self, batch: &Batch) -> Result<Tensor> {
        if self.loss == Loss::ApoZeroUnpaired {
            return Ok(tunebox::tensor::full(&[], 0.0));
        }
        let rows = batch.rows("mismatched")?;
        let now = score(&policy(), &rows, Taps::empty(), 1.0)?;
        let before = score(&reference()?, &rows, Taps::empty(), 1.0)?;
        Ok(loss::row_mean(&loss::log_ratio(&now, &before), batch.window_size()).clamp(Some(0.0), None))
    }

    /// Reports the means over the answers of one label as metrics that end in `-NAME`, and returns their mean reward.
    /// `label` `[rows]` is 1 for these answers, else 0. Without any, reports nothing and returns `None`.
    fn report_label(
        &self,
        name: &str,
        label: &Tensor,
        rows: &Rows,
        scores: &Scores,
        rewards: &Tensor,
        logps: &Tensor,
    ) -> Result<Option<Tensor>> {
        let count = label.sum(All).item()?;
        if count == 0.0 {
            return Ok(None);
        }
        let mean = |values: &Tensor| (values * label).sum(All) / count;
        let reward = mean(rewards);
        add_metric(&format!("rewards-{name}"), &reward);
        add_metric(&format!("logps-{name}"), mean(&logps.detach()));
        let mask = rows.mask() * label.unsqueeze(1); // [rows, width]
        add_metric(&format!("logits-{name}"), scores.mean_logit().masked_mean(&mask, All));
        Ok(Some(reward))
    }
}

method! {
    Labelled,
    shape: "unpaired",
    batch: "window",
    metrics: [
        "loss", "kl", "rewards-chosen", "rewards-rejected", "rewards-margins", "logps-chosen", "logps-rejected",
        "logits-chosen", "logits-rejected", "entropy",
    ],
    paper: "arXiv:2402.01306",
}
