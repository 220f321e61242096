//! AdamW (Loshchilov & Hutter 2019), as `torch.optim.AdamW`.

use super::subtract_with_decay;
use crate::optimizer::Parameter;
use crate::{Result, Tensor};

/// AdamW with torch's defaults, but without weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The share of the first moment that a step keeps.
    pub beta1: f64,
    /// The share of the second moment that a step keeps.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

impl AdamW {
    /// One step with the parameter's gradient. Keeps the states `first`, `second` and `step`.
    #[track_caller]
    pub fn step(&self, parameter: &Parameter, rate: f64) -> Result<()> {
        self.step_with(parameter, &parameter.gradient(), rate)
    }

    /// One step with another gradient in the shape of the parameter.
    ///
    /// m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← w − rate·λ·w − rate / (1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + ε).
    #[track_caller]
    pub fn step_with(&self, parameter: &Parameter, gradient: &Tensor, rate: f64) -> Result<()> {
        let count = count_step(parameter)?;
        let corrected = |beta: f64| 1.0 - beta.powi(count);
        let first = parameter.state("first").scale(self.beta1) + gradient.scale(1.0 - self.beta1);
        parameter.set_state("first", &first)?;
        let second = parameter.state("second").scale(self.beta2) + gradient.square().scale(1.0 - self.beta2);
        parameter.set_state("second", &second)?;
        let root = second.sqrt().scale(corrected(self.beta2).sqrt().recip()).add_scalar(self.epsilon);
        let change = first.scale(rate / corrected(self.beta1)) / root;
        subtract_with_decay(parameter, change, rate, self.weight_decay)
    }
}

/// Adds 1 to the state `step` of a parameter, a scalar that starts at 0, and returns the sum.
fn count_step(parameter: &Parameter) -> Result<i32> {
    let state = parameter.state("step");
    // Before the first step, the state has the shape of the parameter.
    let before = if state.shape().is_empty() { state.item()? } else { 0.0 };
    parameter.set_state("step", &crate::tensor::full(&[], before + 1.0))?;
    Ok(before as i32 + 1)
}
