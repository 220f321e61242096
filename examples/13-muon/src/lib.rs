//! Supervised fine-tuning whose updates are made by the method: Muon on every matrix
//! (<https://kellerjordan.github.io/posts/muon/>).
//!
//! M ← μM + (1 − μ)G; W ← W − rate · √max(1, rows / columns) · orthogonalized((1 − μ)G + μM), where G is the gradient and
//! five Newton–Schulz iterations bring the singular values of a matrix near 1.

use tunebox::optim::Muon;
use tunebox::prelude::*;
use tunebox::{learn, optimizer};

/// What people may set.
#[derive(Settings)]
pub struct Orthogonal {
    /// The share of the momentum that an update keeps.
    #[setting(default = 0.95, low = 0.0, below = 1.0)]
    momentum: f32,

    /// Newton–Schulz iterations of an update.
    #[setting(default = 5, low = 1, high = 20)]
    iterations: u32,
}

impl Method for Orthogonal {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let scores = score_for_learning(&batch.rows("example")?, Taps::empty(), 1.0)?;
        let loss = loss::token_mean(&-scores.logprob(), batch.window_targets("example")?);
        backward(&loss)?;
        add_metric("loss", loss);
        if batch.ends_window() { self.update() } else { Ok(()) }
    }
}

impl Orthogonal {
    /// Updates every parameter by its own gradient and momentum, at the learning rate of the run.
    fn update(&self) -> Result<()> {
        let muon = Muon { momentum: self.momentum.into(), iterations: self.iterations, ..Muon::default() };
        for parameter in optimizer::parameters() {
            muon.step(&parameter, learn::rate())?;
        }
        optimizer::done().map(drop)
    }
}

method! {
    Orthogonal,
    shape: "supervised",
    update: "method",
    metrics: ["loss"],
}
