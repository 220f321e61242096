//! Stochastic gradient descent with momentum, as `torch.optim.SGD`.

use crate::optimizer::Parameter;
use crate::{Result, Tensor};

/// Gradient descent; plain by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    /// The share of the momentum that a step keeps; 0 for none.
    pub momentum: f64,
    /// Whether a step looks ahead by the momentum.
    pub nesterov: bool,
    /// Weight decay as in torch: added to the gradient.
    pub weight_decay: f64,
}

impl Sgd {
    /// One step with the parameter's gradient. Keeps the state `momentum` if there is a momentum.
    #[track_caller]
    pub fn step(&self, parameter: &Parameter, rate: f64) -> Result<()> {
        self.step_with(parameter, &parameter.gradient(), rate)
    }

    /// One step with another gradient in the shape of the parameter.
    ///
    /// g ← g + λ·w; m ← μm + g; w ← w − rate · m, or w − rate · (g + μm) with Nesterov.
    #[track_caller]
    pub fn step_with(&self, parameter: &Parameter, gradient: &Tensor, rate: f64) -> Result<()> {
        let decayed = parameter.value().detach().scale(self.weight_decay) + gradient;
        if self.momentum == 0.0 {
            return parameter.subtract(&decayed.scale(rate));
        }
        let momentum = parameter.state("momentum").scale(self.momentum) + &decayed;
        parameter.set_state("momentum", &momentum)?;
        let change = if self.nesterov { decayed + momentum.scale(self.momentum) } else { momentum };
        parameter.subtract(&change.scale(rate))
    }
}
