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
    /// Decoupled weight decay, finite and at least 0: a step first multiplies each value by 1 − learning rate · weight
    /// decay. Not part of the gradient.
    pub weight_decay: f64,
    /// Whether the moments of step t, counted from 1, are divided by 1 − βᵗ before use. `mlx` leaves the division out.
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
    /// The first moments, f32, in the layout of the gradient buffer, gaps included.
    first: Tensor,
    /// The second moments, f32, in the layout of the gradient buffer, gaps included.
    second: Tensor,
    /// The number of steps taken so far.
    step: u64,
}

impl AdamW {
    /// Creates an optimizer with moments of zero, on the device and in the layout of `parameters`, before its first
    /// step.
    ///
    /// # Errors
    /// [`Error::Argument`] for a setting outside the range that its field states. Also when the device has no memory for
    /// the moments.
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
    /// If the norm is not finite, returns it, leaves values and moments as they are, and does not advance the step counter:
    /// the caller decides what to do. On an accelerator this waits once, for the norm, after the whole step is queued.
    ///
    /// # Errors
    /// [`Error::Shape`] if `parameters` do not have as many numbers as the moments. When the device fails, or one of its
    /// kernels met an index out of range; then the step counter does not advance either.
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

    /// Updates the values on the CPU by one step of AdamW with the learning rate `rate`, without clipping, and advances the
    /// step counter. The gradients that `parameters` holds stay as they are. Fails if the moments have another size.
    ///
    /// m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← w − rate·λ·w − rate·m̂ / (√v̂ + ε), where λ is the weight decay.
    /// m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) for step t, counted from 1; without bias correction m̂ = m and v̂ = v.
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

    /// Queues the update of step `self.step + 1` on the accelerator, with the gradients times the clip factor of `norm`.
    /// Also rewrites the operand copy of the values, if `parameters` have one. Does not advance the step counter. The
    /// kernel writes nothing if the norm is not finite, or if an earlier kernel met an index out of range. Fails if the
    /// moments have another size than the gradients.
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
    /// tensors `[parameters.len()]` on the CPU, without the gaps between slots. On the CPU the returned tensors share the
    /// optimizer's memory, so later steps change them; from an accelerator they are copies, for which this waits.
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

    /// The number of steps taken so far, including those before a restored state. Leaves out steps whose gradient norm was
    /// not finite.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Replaces moments and step count by a state that [`state`](Self::state) returned, on any device. Copies `first` and
    /// `second` to the device of `parameters` as f32, there with gaps between slots if it is an accelerator.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both moments have the shape `[parameters.len()]`, and when the device fails. On an error the
    /// optimizer keeps its old state.
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

    /// Fails with [`Error::Shape`] unless the optimizer's moments have the size of the gradient buffer of `parameters`.
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

/// Computes the constants of the step number `step`, counted from 1, for the learning rate `rate`:
/// `[β₁, 1 − β₁, β₂, 1 − β₂, keep, r, root, ε]` of w ← keep·w − r·m / (√v / root + ε). keep is 1 − rate · weight decay,
/// r is rate / (1 − β₁ᵗ), root is √(1 − β₂ᵗ), where t is `step`; without bias correction r is `rate` and root is 1.
/// Computed in f64 and then rounded. The order is that of `Step` in `kernels/optimizer.h`.
fn constants(settings: &AdamWSettings, step: u64, rate: f64) -> [f32; 8] {
    let AdamWSettings { beta1, beta2, epsilon, weight_decay, bias_correction } = *settings;
    let corrected = |beta: f64| if bias_correction { 1.0 - beta.powf(step as f64) } else { 1.0 };
    let (keep, rate, root) = (1.0 - rate * weight_decay, rate / corrected(beta1), corrected(beta2).sqrt());
    [beta1, 1.0 - beta1, beta2, 1.0 - beta2, keep, rate, root, epsilon].map(|number| number as f32)
}

#[cfg(test)]
mod tests;
