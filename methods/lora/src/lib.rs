//! Supervised fine-tuning: the answers of the data become likelier.
//!
//! L = −Σ log p(target) / (targets of the accumulation window), so that neither padding nor the
//! size of a micro-batch changes the loss. What is trained (LoRA, DoRA, everything) is the run's choice.

use tunebox::prelude::*;

/// Supervised fine-tuning with its settings.
#[derive(Settings)]
pub struct Supervised {
    /// The loss of a target token: `nll`, its negative log-probability; `dft`, that times its probability, which
    /// gives unlikely tokens little weight (arXiv:2508.05629).
    #[setting(default = "nll")]
    loss: Cost,

    /// The share of every target that is spread evenly over the vocabulary; for `loss = "nll"`.
    #[setting(default = 0.0, low = 0.0, below = 1.0)]
    label_smoothing: f32,
}

/// The loss of a target token.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Cost {
    Nll,
    Dft,
}

impl Method for Supervised {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        if settings.loss == Cost::Dft && settings.smooths() {
            return Err(Error::new("`label-smoothing` is defined for `loss = \"nll\"` only; with `dft` it must be 0"));
        }
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let targets = batch.window_targets("example")?;
        let scores = score_for_learning(&rows, self.taps(), 1.0)?;

        let loss = loss::token_mean(&self.cost(&scores), targets);
        backward(&loss)?;

        add_metric("loss", loss);
        add_metric("entropy", loss::token_mean(&scores.entropy(), targets));
        add_metric("accuracy", loss::token_mean(&scores.top_one(), targets));
        Ok(())
    }
}

impl Supervised {
    /// The loss of every target token: `[rows, width]`, 0 elsewhere.
    fn cost(&self, scores: &Scores) -> Tensor {
        let logprob = scores.logprob(); // [rows, width]
        match self.loss {
            Cost::Dft => -(logprob.exp().detach() * logprob),
            Cost::Nll if self.smooths() => {
                let even = scores.mean_logprob() * self.label_smoothing; // [rows, width]
                -(logprob * (1.0 - self.label_smoothing) + even)
            }
            Cost::Nll => -logprob,
        }
    }

    /// The taps to compute beside the log-probabilities.
    fn taps(&self) -> Taps {
        let reported = Taps::ENTROPY | Taps::TOP_ONE;
        if self.smooths() { reported | Taps::MEAN_LOGPROB } else { reported }
    }

    /// Whether label smoothing is on.
    fn smooths(&self) -> bool {
        self.label_smoothing > 0.0
    }
}

method! {
    Supervised,
    shape: "supervised",
    metrics: ["loss", "entropy", "accuracy"],
    paper: "arXiv:2106.09685",
}
