//! AdamW (Loshchilov & Hutter 2019) with torch's semantics.
//!
//! On an accelerator the update is one kernel launch. Given the same gradients, its results have the bits of the CPU's;
//! with clipping only if the factor has, see [`Norm`].

use candle_core::DType;

use super::part::{StateTensor, View, each_piece};
use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::Result;
use crate::parameters::Norm;

/// The hyperparameters of AdamW. The defaults are torch's, except for a weight decay of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWSettings {
    /// The share of the first moment that a step keeps, in [0, 1).
    pub beta1: f64,
    /// The share of the second moment that a step keeps, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment; above 0.
    pub epsilon: f64,
    /// Decoupled weight decay, finite and at least 0: a step first multiplies each value by 1 − learning rate · weight
    /// decay. Not part of the gradient.
    pub weight_decay: f64,
    /// Whether the moments of step t, counted from 1, are divided by 1 − βᵗ before use. `mlx` leaves the division out.
    pub bias_correction: bool,
}

impl Default for AdamWSettings {
    /// torch's defaults, but without weight decay.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, bias_correction: true }
    }
}

impl AdamWSettings {
    /// Whether every setting is in the range that its field states. The weight decay is not looked at.
    pub(super) fn is_valid(&self) -> bool {
        let is_share = |beta: f64| (0.0..1.0).contains(&beta);
        is_share(self.beta1) && is_share(self.beta2) && self.epsilon > 0.0
    }

    /// The state for `count` numbers: first and second moments, f32.
    pub(super) fn state(count: usize) -> Vec<StateTensor> {
        vec![("first", DType::F32, count), ("second", DType::F32, count)]
    }

    /// Updates values and moments on the CPU. The gradients stay as they are.
    pub(super) fn update(&self, view: &View<'_>) -> Result<()> {
        let constants = self.constants(view.step, view.rate);
        let tensors = [&view.values, &view.gradients, &view.state[0], &view.state[1]];
        each_piece(tensors, |[values, gradients, first, second]| {
            update_piece(&constants, values, gradients, [first, second]);
        })
    }

    /// Queues the update on the accelerator, with the gradients times the clip factor of `norm`. Also rewrites the
    /// operand copy of the values, if there is one. The kernel writes nothing if the norm is not finite, or if an
    /// earlier kernel met an index out of range.
    pub(super) fn launch(&self, accelerator: &Accelerator, view: &View<'_>, norm: &Norm) -> Result<()> {
        let constants = self.constants(view.step, view.rate);
        let constants = accelerator.upload(&constants, &[constants.len()])?;
        let (operand_copy, count) = (view.operand_copy.as_ref(), view.values.elem_count());
        let (values, gradients, factor) = (&view.values, &view.gradients, &norm.factor);
        let (first, second, fault) = (&view.state[0], &view.state[1], Argument::FaultWord);
        let arguments =
            arguments![values, first, second, gradients, operand_copy, &constants, factor, count as u64, fault];
        let act = operand_copy.map_or(DType::F32, |operand_copy| operand_copy.dtype());
        accelerator.launch(&kernel::ADAMW, act, accelerator.flat(count), &arguments)
    }

    /// Computes the constants of the step number `step`, counted from 1, for the learning rate `rate`: `[β₁, 1 − β₁,
    /// β₂, 1 − β₂, keep, r, root, ε]` of w ← keep·w − r·m / (√v / root + ε). keep is 1 − rate · weight decay, r is rate
    /// / (1 − β₁ᵗ), root is √(1 − β₂ᵗ), where t is `step`; without bias correction r is `rate` and root is 1. Computed
    /// in f64 and then rounded. The order is that of `Step` in `kernels/optimizer.h`.
    pub(super) fn constants(&self, step: u64, rate: f64) -> [f32; 8] {
        let Self { beta1, beta2, epsilon, weight_decay, bias_correction } = *self;
        let corrected = |beta: f64| if bias_correction { 1.0 - beta.powf(step as f64) } else { 1.0 };
        let (keep, rate, root) = (1.0 - rate * weight_decay, rate / corrected(beta1), corrected(beta2).sqrt());
        [beta1, 1.0 - beta1, beta2, 1.0 - beta2, keep, rate, root, epsilon].map(|number| number as f32)
    }
}

/// Updates `values` and their `[first, second]` moments by one step, all of one length:
/// m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← w − rate·λ·w − rate·m̂ / (√v̂ + ε), where λ is the weight decay.
/// m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) for step t, counted from 1; without bias correction m̂ = m and v̂ = v.
/// `constants` are those of [`AdamWSettings::constants`].
pub(super) fn update_piece(constants: &[f32; 8], values: &mut [f32], gradients: &[f32], moments: [&mut [f32]; 2]) {
    let [keep1, take1, keep2, take2, keep, rate, root, epsilon] = *constants;
    let [first, second] = moments;
    for (((value, g), m), v) in values.iter_mut().zip(gradients).zip(first).zip(second) {
        *m = keep1 * *m + take1 * g;
        *v = keep2 * *v + take2 * (g * g);
        *value = keep * *value - rate * *m / (v.sqrt() / root + epsilon);
    }
}
