//! Sharpness-aware minimization (Foret et al. 2021, arXiv:2010.01412).

use crate::optimizer::{Parameter, clear_gradients};
use crate::tensor::All;
use crate::{Result, Tensor};

/// Sharpness-aware minimization: the gradient of a step is taken where the loss nearby is highest.
///
/// ```
/// # use tunebox::prelude::*;
/// # fn loss_of(batch: &Batch) -> Result<Tensor> { unimplemented!() }
/// # fn step(batch: &Batch) -> Result<()> {
/// use tunebox::optim::{AdamW, Sam};
/// use tunebox::optimizer;
///
/// let all = optimizer::all();
/// backward(&loss_of(batch)?)?;
/// let ascent = Sam::default().ascend(&all)?;
/// backward(&loss_of(batch)?)?; // scores made at the point of the ascent
/// ascent.descend(&all)?;
/// AdamW::default().step(&all, tunebox::learn::rate())?;
/// optimizer::done()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sam {
    /// The length of the step uphill.
    pub rho: f64,
}

impl Default for Sam {
    fn default() -> Self {
        Self { rho: 0.05 }
    }
}

/// The values from before a step uphill.
pub struct Ascent(Tensor);

impl Sam {
    /// Moves a parameter by `rho` along its gradient, w ← w + ρ · g / (‖g‖ + 10⁻¹²), and clears all gradients. Returns the
    /// values from before.
    #[track_caller]
    pub fn ascend(&self, parameter: &Parameter) -> Result<Ascent> {
        let (value, gradient) = (parameter.value().detach(), parameter.gradient());
        let norm = gradient.square().sum(All).sqrt().add_scalar(1e-12);
        parameter.subtract(&(gradient.scale(-self.rho) / norm))?;
        clear_gradients()?;
        Ok(Ascent(value))
    }
}

impl Ascent {
    /// Restores the values from before the step uphill, bit for bit. The gradient stays.
    #[track_caller]
    pub fn descend(self, parameter: &Parameter) -> Result<()> {
        parameter.assign(&self.0)
    }
}
