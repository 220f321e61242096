//! Stochastic gradient descent as `torch.optim.SGD` computes it, without dampening.

use candle_core::DType;

use super::part::{StateTensor, View, each_piece};
use crate::error::Result;

/// The hyperparameters of SGD. The defaults are torch's: no momentum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdSettings {
    /// The share of the momentum that a step keeps, in [0, 1); 0 keeps no momentum.
    pub momentum: f64,
    /// Whether a step takes the gradient plus `momentum` times the new momentum, instead of the new momentum. Only with
    /// a momentum above 0.
    pub nesterov: bool,
    /// Weight decay, finite and at least 0. As in torch it is not decoupled: the decay times the value is added to the
    /// gradient, after clipping.
    pub weight_decay: f64,
}

impl SgdSettings {
    /// Whether the momentum is in the range that its field states, and above 0 for Nesterov's variant.
    pub(super) fn is_valid(&self) -> bool {
        (0.0..1.0).contains(&self.momentum) && (self.momentum > 0.0 || !self.nesterov)
    }

    /// The state for `count` numbers: the momentum, unless it is 0.
    pub(super) fn state(&self, count: usize) -> Vec<StateTensor> {
        if self.momentum == 0.0 { Vec::new() } else { vec![("momentum", DType::F32, count)] }
    }

    /// Updates values and momentum by one step: d = g + λ·w; with a momentum m ← μm + d, and d ← m, or d + μm for
    /// Nesterov's variant; w ← w − rate·d, where λ is the weight decay. The gradients stay as they are.
    pub(super) fn update(&self, view: &View<'_>) -> Result<()> {
        let [mu, decay, rate] = [self.momentum, self.weight_decay, view.rate].map(|number| number as f32);
        let Some(momentum) = view.state.first() else {
            return each_piece([&view.values, &view.gradients], |[values, gradients]| {
                for (value, g) in values.iter_mut().zip(gradients) {
                    *value -= rate * (*g + decay * *value);
                }
            });
        };
        let nesterov = self.nesterov;
        each_piece([&view.values, &view.gradients, momentum], |[values, gradients, momentum]| {
            for ((value, g), m) in values.iter_mut().zip(gradients).zip(momentum) {
                let slope = *g + decay * *value;
                *m = mu * *m + slope;
                *value -= rate * if nesterov { slope + mu * *m } else { *m };
            }
        })
    }
}
