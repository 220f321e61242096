//! Lion (Chen et al. 2023, arXiv:2302.06675): steps of one size, in the direction of the sign of a momentum.

use candle_core::DType;

use super::part::{StateTensor, View, each_piece};
use crate::error::Result;

/// The hyperparameters of Lion. The defaults are those of the authors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionSettings {
    /// The share of the momentum in the direction of a step, in [0, 1); the rest is the gradient.
    pub beta1: f64,
    /// The share of the momentum that a step keeps, in [0, 1).
    pub beta2: f64,
    /// Decoupled weight decay, finite and at least 0: a step first multiplies each value by 1 − learning rate · weight
    /// decay.
    pub weight_decay: f64,
}

impl Default for LionSettings {
    /// The authors' defaults, without weight decay.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }
    }
}

impl LionSettings {
    /// Whether both betas are in the range that their fields state.
    pub(super) fn is_valid(&self) -> bool {
        [self.beta1, self.beta2].iter().all(|beta| (0.0..1.0).contains(beta))
    }

    /// The state for `count` numbers: the momentum.
    pub(super) fn state(count: usize) -> Vec<StateTensor> {
        vec![("momentum", DType::F32, count)]
    }

    /// Updates values and momentum by one step: w ← w − rate·(sign(β₁m + (1−β₁)g) + λ·w); m ← β₂m + (1−β₂)g, where λ is
    /// the weight decay and the sign of 0 is 0. The gradients stay as they are.
    pub(super) fn update(&self, view: &View<'_>) -> Result<()> {
        let Self { beta1, beta2, weight_decay } = *self;
        let constants = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, 1.0 - view.rate * weight_decay, view.rate];
        let [keep1, take1, keep2, take2, keep, rate] = constants.map(|number| number as f32);
        each_piece([&view.values, &view.gradients, &view.state[0]], |[values, gradients, momentum]| {
            for ((value, g), m) in values.iter_mut().zip(gradients).zip(momentum) {
                let direction = keep1 * *m + take1 * *g;
                let sign = if direction == 0.0 { 0.0 } else { direction.signum() };
                *value = keep * *value - rate * sign;
                *m = keep2 * *m + take2 * *g;
            }
        })
    }
}
