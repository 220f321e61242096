//! AdamW (Loshchilov & Hutter 2019) with torch's semantics on the flat parameters, and the clip of the gradient norm.
//!
//! The learning rate of a step comes from outside; see `schedule.rs`. On an accelerator the update is one kernel launch.
//! Given the same gradients, its results have the bits of the CPU's; with clipping only if the factor has, see [`Norm`].

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::{Error, Result};
use crate::fused::Floats;
use crate::parameters::{Norm, Parameters, TASK_NUMBERS, update_numbers, update_pairs, zeros};

/// The hyperparameters of AdamW. The defaults are torch's, except for a weight decay of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWSettings {
    /// The share of the first moment that a step keeps, in [0, 1).
    pub beta1: f64,
    /// The share of the second moment that a step keeps, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment; above 0.
    pub epsilon: f64,
    /// Decoupled weight decay: a step first multiplies each value by 1 − learning rate · this. Not part of the gradient.
    pub weight_decay: f64,
    /// Whether moments are divided by 1 − βᵗ. `mlx` leaves it out.
    pub bias_correction: bool,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, bias_correction: true }
    }
}

/// The optimizer and its moments.
#[derive(Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    first: Tensor,
    second: Tensor,
    step: u64,
}

impl AdamW {
    /// Creates an optimizer with moments of zero, on the device and in the layout of `parameters`, before its first
    /// step.
    ///
    /// # Errors
    /// [`Error::Argument`] for a constant outside its range.
    pub fn new(settings: AdamWSettings, parameters: &Parameters) -> Result<Self> {
        let kept = |beta: f64| (0.0..1.0).contains(&beta);
        let positive = settings.epsilon > 0.0 && settings.weight_decay >= 0.0 && settings.weight_decay.is_finite();
        if !kept(settings.beta1) || !kept(settings.beta2) || !positive {
            return Err(Error::argument(format!("these constants of AdamW are out of range: {settings:?}")));
        }
        let zeros = || zeros(parameters.layout().size, parameters.device());
        Ok(Self { settings, first: zeros()?, second: zeros()?, step: 0 })
    }

    /// The constants of AdamW that the optimizer was created with.
    #[must_use]
    pub fn settings(&self) -> &AdamWSettings {
        &self.settings
    }

    /// Clips the gradients that `parameters` holds to the Euclidean norm `limit` (0 clips nothing), updates the values with
    /// the learning rate `rate`, and returns the norm before clipping. Afterwards the gradients are unspecified: the CPU
    /// clips them in place, an accelerator does not.
    ///
    /// If the norm is not finite, values and moments stay as they are and no step is counted: the caller decides what
    /// to do. On an accelerator this waits once, for the norm, after the whole step is queued.
    pub fn step(&mut self, parameters: &Parameters, rate: f64, limit: f64) -> Result<f64> {
        let Some(accelerator) = parameters.accelerator() else {
            let norm = clip_gradients(parameters, limit)?;
            if norm.is_finite() {
                self.update(parameters, rate)?;
            }
            return Ok(norm);
        };
        let norm = Norm::of(accelerator, parameters.gradients(), limit)?;
        self.launch(accelerator, parameters, rate, &norm)?;
        let norm = norm.read(accelerator)?;
        self.step += u64::from(norm.is_finite());
        Ok(norm)
    }

    /// Updates the values on the CPU by one step of AdamW with the learning rate `rate`, without clipping, and counts the
    /// step. The gradients that `parameters` holds stay as they are.
    ///
    /// m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← w − rate·λ·w; w ← w − rate·m̂ / (√v̂ + ε).
    fn update(&mut self, parameters: &Parameters, rate: f64) -> Result<()> {
        self.fits(parameters)?;
        let [keep1, take1, keep2, take2, keep, rate, root, epsilon] = constants(&self.settings, self.step + 1, rate);
        let gradients = parameters.gradients();
        update_pairs(&self.first, gradients, |moment, g| *moment = keep1 * *moment + take1 * g)?;
        update_pairs(&self.second, gradients, |moment, g| *moment = keep2 * *moment + take2 * (g * g))?;
        let (first, second) = (Floats::of(&self.first, "first moments")?, Floats::of(&self.second, "second moments")?);
        update_numbers(parameters.values(), |values| {
            let moments = first.par_chunks(TASK_NUMBERS).zip(second.par_chunks(TASK_NUMBERS));
            values.par_chunks_mut(TASK_NUMBERS).zip(moments).for_each(|(values, (first, second))| {
                for ((value, m), v) in values.iter_mut().zip(first).zip(second) {
                    *value = keep * *value - rate * m / (v.sqrt() / root + epsilon);
                }
            });
        })?;
        self.step += 1;
        Ok(())
    }

    /// Queues the update of step `self.step + 1`, with the gradients times the clip factor of `norm`. Also
    /// rewrites the operand copy of the values. Does not advance the step counter. The kernel writes
    /// nothing if the norm is not finite, or if a kernel before met an index out of range.
    fn launch(&self, accelerator: &Accelerator, parameters: &Parameters, rate: f64, norm: &Norm) -> Result<()> {
        self.fits(parameters)?;
        let constants = constants(&self.settings, self.step + 1, rate);
        let constants = accelerator.upload(&constants, &[constants.len()])?;
        let (operand_copy, count) = (parameters.operand_copy(), self.first.elem_count());
        let (values, gradients, factor) = (parameters.values(), parameters.gradients(), &norm.factor);
        let (first, second, fault) = (&self.first, &self.second, Argument::FaultWord);
        let arguments =
            arguments![values, first, second, gradients, operand_copy, &constants, factor, count as u64, fault];
        let act = operand_copy.map_or(DType::F32, |operand_copy| operand_copy.dtype());
        accelerator.launch(&kernel::ADAMW, act, accelerator.flat(count), &arguments)
    }

    /// Returns what a checkpoint needs: (first moments, second moments, number of steps so far). The moments are f32
    /// tensors `[len]` on the CPU. If `parameters` are on the CPU, they share the optimizer's memory, so later steps change
    /// them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn state(&self, parameters: &Parameters) -> Result<(Tensor, Tensor, u64)> {
        let moment = |moment: &Tensor| match parameters.accelerator() {
            None => Ok(moment.clone()),
            Some(accelerator) => parameters.layout().gathered(accelerator, moment),
        };
        Ok((moment(&self.first)?, moment(&self.second)?, self.step))
    }

    /// The number of steps taken so far, with those of a restored state. A step whose gradient norm was not finite does not
    /// count.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Replaces moments and step count by a state that [`state`](Self::state) returned, on any device.
    ///
    /// # Errors
    /// [`Error::Shape`] when a moment does not have as many numbers as `parameters`.
    pub fn restore(&mut self, parameters: &Parameters, first: &Tensor, second: &Tensor, step: u64) -> Result<()> {
        let fitted = |moment: &Tensor| -> Result<Tensor> {
            if moment.dims() != [parameters.len()] {
                let (given, wanted) = (moment.dims(), [parameters.len()]);
                return Err(Error::shape(format!("a moment has shape {given:?}, {wanted:?} is needed")));
            }
            match parameters.accelerator() {
                None => Ok(moment.to_dtype(DType::F32)?.copy()?),
                Some(accelerator) => parameters.layout().spread(accelerator, moment),
            }
        };
        (self.first, self.second, self.step) = (fitted(first)?, fitted(second)?, step);
        Ok(())
    }

    /// Checks that the optimizer's moments have the size of the gradients of `parameters`.
    fn fits(&self, parameters: &Parameters) -> Result<()> {
        if parameters.gradients().dims() == self.first.dims() {
            return Ok(());
        }
        let (held, given) = (self.first.elem_count(), parameters.len());
        Err(Error::shape(format!("the optimizer has moments for {held} numbers, given were {given}")))
    }
}

/// Multiplies the gradients on the CPU by min(1, limit / (norm + 10⁻⁶)), or by 1 for the limit 0, and returns their
/// Euclidean norm before the multiplication.
///
/// If the norm is not finite, the gradients stay as they are: the caller decides what to do.
fn clip_gradients(parameters: &Parameters, limit: f64) -> Result<f64> {
    let norm = parameters.gradient_norm()?;
    let factor = limit / (norm + 1e-6);
    if limit > 0.0 && norm.is_finite() && factor < 1.0 {
        let factor = factor as f32;
        update_numbers(parameters.gradients(), |numbers| {
            numbers.par_iter_mut().with_min_len(TASK_NUMBERS).for_each(|number| *number *= factor);
        })?;
    }
    Ok(norm)
}

/// Computes the constants of the step number `step`, counted from 1, for the learning rate `rate`, in the order of
/// `Step` in `kernels/optimizer.h`: how much of each moment is kept and how much of the gradient taken, and the keep, the
/// rate, the root and the ε of w ← keep·w − rate·m / (√v / root + ε).
fn constants(settings: &AdamWSettings, step: u64, rate: f64) -> [f32; 8] {
    let AdamWSettings { beta1, beta2, epsilon, weight_decay, bias_correction } = *settings;
    let corrected = |beta: f64| if bias_correction { 1.0 - beta.powf(step as f64) } else { 1.0 };
    let (keep, rate, root) = (1.0 - rate * weight_decay, rate / corrected(beta1), corrected(beta2).sqrt());
    [beta1, 1.0 - beta1, beta2, 1.0 - beta2, keep, rate, root, epsilon].map(|number| number as f32)
}

#[cfg(test)]
mod tests;
