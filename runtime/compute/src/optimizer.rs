//! AdamW (Loshchilov & Hutter 2019) with torch's semantics on the flat parameters, and the clip of the gradient norm.
//!
//! The learning rate of a step comes from outside; see `schedule.rs`.

use candle_core::{CpuStorage, Device, InplaceOp2, InplaceOp3, Layout, Tensor};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::parameters::{Parameters, TASK_NUMBERS, numbers, numbers_mut};
use crate::precision::{Precision, Purpose, zeros};

/// The constants of AdamW. The defaults are torch's, but without decay, as trainers of language models have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWSettings {
    /// How much of the first moment a step keeps.
    pub beta1: f64,
    /// How much of the second moment a step keeps.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// The share of a value that decays, times the rate; not part of the gradient.
    pub weight_decay: f64,
    /// Whether moments are divided by 1 − βᵗ. `mlx` leaves it out.
    pub bias_correction: bool,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, bias_correction: true }
    }
}

/// The optimiser and its moments.
#[derive(Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    first: Tensor,
    second: Tensor,
    step: u64,
}

impl AdamW {
    /// An optimiser for `len` numbers that has made no step.
    ///
    /// # Errors
    /// [`Error::Argument`] for a constant outside its range.
    pub fn new(settings: AdamWSettings, len: usize, device: &Device) -> Result<Self> {
        let kept = |beta: f64| (0.0..1.0).contains(&beta);
        let positive = settings.epsilon > 0.0 && settings.weight_decay >= 0.0 && settings.weight_decay.is_finite();
        if !kept(settings.beta1) || !kept(settings.beta2) || !positive {
            return Err(Error::argument(format!("these constants of AdamW are out of range: {settings:?}")));
        }
        let zeros = || zeros(Purpose::Moment, len, device);
        Ok(Self { settings, first: zeros()?, second: zeros()?, step: 0 })
    }

    /// The constants.
    #[must_use]
    pub fn settings(&self) -> &AdamWSettings {
        &self.settings
    }

    /// One step down the gradients that `parameters` holds; they stay as they are.
    ///
    /// m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← w − rate·λ·w; w ← w − rate·m̂ / (√v̂ + ε).
    pub fn update(&mut self, parameters: &Parameters, rate: f64) -> Result<()> {
        if parameters.len() != self.first.elem_count() {
            let (held, given) = (self.first.elem_count(), parameters.len());
            return Err(Error::shape(format!("the optimiser has moments for {held} numbers, given were {given}")));
        }
        let (settings, step) = (self.settings, self.step + 1);
        let corrected = |beta: f64| if settings.bias_correction { 1.0 - beta.powf(step as f64) } else { 1.0 };
        let (first, second) = (corrected(settings.beta1), corrected(settings.beta2));
        self.first.inplace_op2(
            parameters.gradients(),
            &Moment { keep: settings.beta1 as f32, take: (1.0 - settings.beta1) as f32, square: false },
        )?;
        self.second.inplace_op2(
            parameters.gradients(),
            &Moment { keep: settings.beta2 as f32, take: (1.0 - settings.beta2) as f32, square: true },
        )?;
        let descent = Descent {
            keep: (1.0 - rate * settings.weight_decay) as f32,
            pace: (rate / first) as f32,
            root: second.sqrt() as f32,
            epsilon: settings.epsilon as f32,
        };
        parameters.values().inplace_op3(&self.first, &self.second, &descent)?;
        self.step = step;
        Ok(())
    }

    /// The first and second moments, `[len]` each, and the number of steps made: all that a checkpoint needs.
    /// The moments are views that see later updates.
    #[must_use]
    pub fn state(&self) -> (Tensor, Tensor, u64) {
        (self.first.clone(), self.second.clone(), self.step)
    }

    /// Goes on from a state that [`state`](Self::state) gave.
    pub fn restore(&mut self, first: &Tensor, second: &Tensor, step: u64) -> Result<()> {
        let fitted = |moment: &Tensor| -> Result<Tensor> {
            if moment.dims() != self.first.dims() {
                let (given, wanted) = (moment.dims(), self.first.dims());
                return Err(Error::shape(format!("a moment has shape {given:?}, {wanted:?} is needed")));
            }
            Ok(moment.to_device(self.first.device())?.to_dtype(Precision::dtype(Purpose::Moment))?.copy()?)
        };
        (self.first, self.second, self.step) = (fitted(first)?, fitted(second)?, step);
        Ok(())
    }
}

/// Multiplies the gradients with min(1, limit / (norm + 10⁻⁶)) and returns the norm before.
///
/// A norm that is not finite leaves them as they are: the caller decides what a broken step means.
pub fn clip(parameters: &Parameters, limit: f64) -> Result<f64> {
    let norm = parameters.gradient_norm()?;
    let factor = limit / (norm + 1e-6);
    if norm.is_finite() && factor < 1.0 {
        parameters.scale_gradients(factor as f32)?;
    }
    Ok(norm)
}

/// moment ← keep·moment + take·g, or g².
struct Moment {
    keep: f32,
    take: f32,
    square: bool,
}

impl InplaceOp2 for Moment {
    fn name(&self) -> &'static str {
        "moment"
    }

    fn cpu_fwd(
        &self,
        moment: &mut CpuStorage,
        layout: &Layout,
        gradient: &CpuStorage,
        gradient_layout: &Layout,
    ) -> candle_core::Result<()> {
        let (moment, gradient) = (numbers_mut(moment, layout)?, numbers(gradient, gradient_layout)?);
        moment.par_chunks_mut(TASK_NUMBERS).zip(gradient.par_chunks(TASK_NUMBERS)).for_each(|(moment, gradient)| {
            for (moment, g) in moment.iter_mut().zip(gradient) {
                let number = if self.square { g * g } else { *g };
                *moment = self.keep * *moment + self.take * number;
            }
        });
        Ok(())
    }
}

/// w ← keep·w − pace·m / (√v / root + ε).
struct Descent {
    keep: f32,
    pace: f32,
    root: f32,
    epsilon: f32,
}

impl InplaceOp3 for Descent {
    fn name(&self) -> &'static str {
        "descent"
    }

    fn cpu_fwd(
        &self,
        values: &mut CpuStorage,
        layout: &Layout,
        first: &CpuStorage,
        first_layout: &Layout,
        second: &CpuStorage,
        second_layout: &Layout,
    ) -> candle_core::Result<()> {
        let values = numbers_mut(values, layout)?.par_chunks_mut(TASK_NUMBERS);
        let first = numbers(first, first_layout)?.par_chunks(TASK_NUMBERS);
        let second = numbers(second, second_layout)?.par_chunks(TASK_NUMBERS);
        values.zip(first).zip(second).for_each(|((values, first), second)| {
            for ((value, m), v) in values.iter_mut().zip(first).zip(second) {
                *value = self.keep * *value - self.pace * m / (v.sqrt() / self.root + self.epsilon);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
