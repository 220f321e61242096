//! Fine-tuning whose updates are made by an optimizer of the SDK, with an extra parameter beside it.

use tunebox::optim::{self, AdamW, Ascent, Lion, Muon, Sam, Sgd};
use tunebox::optimizer::{self, Parameter};
use tunebox::prelude::*;
use tunebox::tensor::{All, full};
use tunebox::learn;

/// What people may set.
#[derive(Settings)]
pub struct OwnUpdates {
    /// The optimizer.
    #[setting(default = "adamw")]
    by: Optimizer,

    /// Whether all parameters are updated as one vector.
    #[setting(default = true)]
    at_once: bool,

    /// The largest norm of the gradient; 0 for no limit.
    #[setting(default = 0.0, low = 0.0)]
    clip: f32,

    /// Whether the method forgets to end its updates.
    #[setting(default = false)]
    forgets: bool,

    /// Whether a step only computes a gradient of the extra parameter, and forgets it.
    #[setting(default = false)]
    forgets_extra: bool,

    /// The length of the extra parameter.
    #[setting(default = 2, low = 1, high = 9)]
    length: u32,

    /// Whether the method reports NaN as the norm.
    #[setting(default = false)]
    hides_norm: bool,
}

/// The optimizer.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Optimizer {
    Adamw,
    Lion,
    Muon,
    Sgd,
    Sam,
}

impl Method for OwnUpdates {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        optimizer::extra("offset", &full(&[settings.length], 0.5))?;
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        if self.forgets_extra {
            return backward(&optimizer::extra("offset", &full(&[self.length], 0.0))?.value().square().sum(All));
        }
        self.learn(batch)?;
        if !batch.ends_window() || self.forgets {
            return Ok(());
        }
        let offset = optimizer::extra("offset", &full(&[self.length], 0.0))?;
        backward(&(offset.value() - 1.0).square().sum(All))?;
        Sgd::default().step(&offset, 0.1)?;
        metric("offset", offset.value().detach().mean(All));
        if self.by == Optimizer::Sam {
            let all = optimizer::all();
            let ascent: Ascent = Sam::default().ascend(&all)?;
            self.learn(batch)?;
            ascent.descend(&all)?;
        }
        let parameters = if self.at_once { vec![optimizer::all()] } else { optimizer::parameters() };
        self.update(&parameters)?;
        let norm = optimizer::done()?;
        metric("norm", if self.hides_norm { f32::NAN } else { norm });
        Ok(())
    }
}

impl OwnUpdates {
    /// Back-propagates the loss of a batch.
    fn learn(&self, batch: &Batch) -> Result<()> {
        let scores = score_for_learning(&batch.rows("example")?, Taps::empty(), 1.0)?;
        let loss = loss::token_mean(&-scores.logprob(), batch.window_targets("example")?);
        backward(&loss)?;
        add_metric("loss", loss);
        Ok(())
    }

    /// One step of the optimizer on each parameter.
    fn update(&self, parameters: &[Parameter]) -> Result<()> {
        let gradients: Vec<Tensor> = parameters.iter().map(Parameter::gradient).collect();
        let gradients = if self.clip > 0.0 { optim::clip(gradients, self.clip) } else { gradients };
        for (parameter, gradient) in parameters.iter().zip(&gradients) {
            let rate = learn::rate();
            match self.by {
                Optimizer::Adamw | Optimizer::Sam => AdamW::default().step_with(parameter, gradient, rate)?,
                Optimizer::Lion => Lion::default().step_with(parameter, gradient, rate)?,
                Optimizer::Muon => Muon::default().step_with(parameter, gradient, rate)?,
                Optimizer::Sgd => {
                    Sgd { momentum: 0.9, ..Sgd::default() }.step_with(parameter, gradient, rate)?;
                }
            }
        }
        Ok(())
    }
}

method! {
    OwnUpdates,
    shape: "supervised",
    update: "method",
    metrics: ["loss", "offset", "norm"],
}
