//! MeZO (arXiv:2305.17333): fine-tuning without gradients, in the memory of scoring.
//!
//! The loss is read at w + εz and at w − εz, where z is standard normal noise. Their difference over 2ε is the slope
//! along z, and the update is w ← w − rate · slope · z. The noise is never stored: a name and a number give it again.

use tunebox::prelude::*;
use tunebox::tensor::All;
use tunebox::{learn, optimizer, run};

/// The name of the noise.
const NOISE: &str = "mezo";

/// What people may set.
#[derive(Settings)]
pub struct ZerothOrder {
    /// How far the parameters are moved to measure the slope.
    #[setting(default = 0.001, above = 0.0, high = 1.0)]
    epsilon: f32,
}

impl Method for ZerothOrder {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let number = run::position();
        let above = loss_along(batch, number, self.epsilon)?;
        let below = loss_along(batch, number, -self.epsilon)?;
        let slope = (above - below) / (2.0 * self.epsilon);
        optimizer::add_noise(NOISE, number, -(learn::rate() as f32) * slope)?;
        optimizer::done()?;
        metric("loss", (above + below) / 2.0);
        metric("slope", slope);
        Ok(())
    }
}

/// The loss with `distance` times the noise `number` added to the parameters, which are restored afterwards.
fn loss_along(batch: &Batch, number: u32, distance: f32) -> Result<f32> {
    let _moved = optimizer::perturb(NOISE, number, distance)?;
    let scores = score(&policy(), &batch.rows("example")?, Taps::empty(), 1.0)?;
    (-scores.logprob().sum(All) / batch.window_targets("example")? as f32).item()
}

method! {
    ZerothOrder,
    shape: "supervised",
    batch: "window",
    update: "method",
    metrics: ["loss", "slope"],
    paper: "arXiv:2305.17333",
}
