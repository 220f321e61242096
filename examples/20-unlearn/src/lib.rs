//! Unlearning by redirected hidden states: RMU of "The WMDP Benchmark" (Li et al., 2024, arXiv:2403.03218).
//!
//! At one layer, the activations h of texts to forget are drawn to a fixed random direction u, and those of texts to keep to
//! what they were: loss = mean (h_forget − c · u)² + α · mean (h_keep − h_keep before training)².

use tunebox::hidden::{self, Site, Token};
use tunebox::prelude::*;
use tunebox::tensor::rand;

/// What people may set.
#[derive(Settings)]
pub struct Unlearning {
    /// The layer whose output is redirected; the blocks above it train nothing.
    #[setting(default = 2, low = 0)]
    layer: u32,

    /// The length c of the activations that forgotten texts get.
    #[setting(default = 20.0, above = 0.0)]
    length: f32,

    /// The weight α of the texts to keep.
    #[setting(default = 100.0, low = 0.0)]
    keep: f32,
}

/// The settings, and the direction u of length c.
pub struct Rmu {
    settings: Unlearning,
    target: Tensor,
}

impl Method for Rmu {
    type Settings = Unlearning;

    fn init(settings: Unlearning) -> Result<Self> {
        let direction = rand("target", &[hidden::dimension()]);
        let target = &direction * (settings.length / direction.norm(All).item()?);
        Ok(Self { settings, target })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let (forget, keep) = (batch.rows("negative")?, batch.rows("positive")?);
        let layers = [self.settings.layer];
        let before = hidden::capture(&reference()?, &keep, &layers, Site::ResidualAfter, Token::Targets)?;
        let redirected = self.distance(&forget, &self.target)? * (1.0 / batch.window_targets("negative")? as f32);
        let kept = self.distance(&keep, &before)? * (1.0 / batch.window_targets("positive")? as f32);
        backward(&(&redirected + &kept * self.settings.keep))?;
        add_metric("redirected", redirected);
        add_metric("kept", kept);
        Ok(())
    }
}

impl Rmu {
    /// The mean square distance of a token's activations from `target`, summed over the target tokens of the rows.
    fn distance(&self, rows: &Rows, target: &Tensor) -> Result<Tensor> {
        let layers = [self.settings.layer];
        let now = hidden::capture_for_learning(rows, &layers, Site::ResidualAfter, Token::Targets)?;
        let each = (now - target).square().mean(-1).squeeze(0); // [rows, width]
        Ok((each * rows.mask()).sum(All))
    }
}

method! {
    Rmu,
    shape: "contrast",
    metrics: ["redirected", "kept"],
    paper: "arXiv:2403.03218",
}
