//! Lion (Chen et al. 2023, arXiv:2302.06675).

use super::subtract_with_decay;
use crate::optimizer::Parameter;
use crate::{Result, Tensor};

/// Lion with its authors' defaults, but without weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// The share of the momentum in the sign that a step takes.
    pub beta1: f64,
    /// The share of the momentum that a step keeps.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for Lion {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }
    }
}

impl Lion {
    /// One step with the parameter's gradient. Keeps the state `momentum`.
    #[track_caller]
    pub fn step(&self, parameter: &Parameter, rate: f64) -> Result<()> {
        self.step_with(parameter, &parameter.gradient(), rate)
    }

    /// One step with another gradient in the shape of the parameter.
    ///
    /// w ← w − rate · (sign(β₁m + (1−β₁)g) + λ·w); m ← β₂m + (1−β₂)g.
    #[track_caller]
    pub fn step_with(&self, parameter: &Parameter, gradient: &Tensor, rate: f64) -> Result<()> {
        let momentum = parameter.state("momentum");
        let mixed = |beta: f64| momentum.scale(beta) + gradient.scale(1.0 - beta);
        let change = mixed(self.beta1).sign().scale(rate);
        parameter.set_state("momentum", &mixed(self.beta2))?;
        subtract_with_decay(parameter, change, rate, self.weight_decay)
    }
}
