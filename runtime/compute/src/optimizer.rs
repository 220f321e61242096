//! Optimizers on the flat parameters, and the clip of the gradient norm. Each file of `optimizer/` has one update rule.
//!
//! The learning rate of a step comes from outside; see `schedule.rs`. Results do not depend on the number of threads.
//! On an accelerator AdamW is the only rule.

mod adamw;
mod adamw_8bit;
mod lion;
mod muon;
mod part;
mod settings;
mod sgd;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::parameters::{Norm, Parameters, TASK_NUMBERS, update_numbers, zeros};

pub use adamw::AdamWSettings;
pub use lion::LionSettings;
pub use muon::MuonSettings;
use part::{Part, parts};
pub use settings::{OptimizerKind, OptimizerSettings, UpdateRule};
pub use sgd::SgdSettings;

/// An optimizer with its state.
#[derive(Debug)]
pub struct Optimizer {
    settings: OptimizerSettings,
    /// The parts of the parameters that are updated one after another.
    parts: Vec<Part>,
    /// The state, each tensor flat with its name. On an accelerator all are f32 and laid out as the gradient buffer.
    state: Vec<(&'static str, Tensor)>,
    /// The numbers in a buffer of the parameters, gaps included.
    size: usize,
    /// The number of steps taken so far.
    step: u64,
}

impl Optimizer {
    /// Creates an optimizer before its first step, with a state of zeros on the device of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a setting outside the range that its field states, and for a rule that does not run on
    /// the device. Also when the device has no memory for the state.
    pub fn new(settings: OptimizerSettings, parameters: &Parameters) -> Result<Self> {
        if !settings.is_valid() {
            return Err(Error::argument(format!("these settings of the optimizer are out of range: {settings:?}")));
        }
        if parameters.accelerator().is_some() && !settings.kind().runs_on_accelerators() {
            return Err(no_kernel(settings.kind()));
        }
        let (parts, shapes) = parts(&settings, parameters.layout());
        let tensor = |(name, dtype, count): (&'static str, DType, usize)| match dtype {
            DType::F32 => Ok((name, zeros(count, parameters.device())?)),
            _ => Ok((name, Tensor::zeros(count, dtype, parameters.device())?)),
        };
        let state = shapes.into_iter().map(tensor).collect::<Result<_>>()?;
        Ok(Self { settings, parts, state, size: parameters.layout().size, step: 0 })
    }

    /// The settings that the optimizer was created with.
    #[must_use]
    pub fn settings(&self) -> &OptimizerSettings {
        &self.settings
    }

    /// Clips the gradients that `parameters` holds to the Euclidean norm `limit` (0 clips nothing), updates the values
    /// with the learning rate `rate`, and returns the norm before clipping. Afterwards the gradients are unspecified.
    ///
    /// If the norm is not finite, returns it, leaves values and state as they are, and does not advance the step
    /// counter: the caller decides what to do. On an accelerator this waits once, for the norm, after the whole step is
    /// queued.
    ///
    /// # Errors
    /// [`Error::Shape`] if `parameters` do not have as many numbers as those that the optimizer was created for. When
    /// the device fails, or one of its kernels met an index out of range; then the step counter does not advance
    /// either.
    pub fn step(&mut self, parameters: &Parameters, rate: f64, limit: f64) -> Result<f64> {
        let held = parameters.layout().size;
        if held != self.size {
            return Err(Error::shape(format!("the optimizer is for {} numbers, given were {held}", self.size)));
        }
        let norm = match parameters.accelerator() {
            None => self.step_on_cpu(parameters, rate, limit)?,
            Some(accelerator) => self.step_on_accelerator(accelerator, parameters, rate, limit)?,
        };
        self.step += u64::from(norm.is_finite());
        Ok(norm)
    }

    /// Clips the gradients and updates all parts on the CPU. Returns the norm before clipping; if it is not finite,
    /// nothing changes. Does not advance the step counter.
    fn step_on_cpu(&self, parameters: &Parameters, rate: f64, limit: f64) -> Result<f64> {
        let norm = clip_gradients(parameters, limit)?;
        if norm.is_finite() {
            for part in &self.parts {
                self.settings.rule.update(&part.view(parameters, &self.state, self.step + 1, rate)?)?;
            }
        }
        Ok(norm)
    }

    /// Queues clip and update on an accelerator, waits for the norm before clipping and returns it. The kernels write
    /// nothing if it is not finite. Does not advance the step counter. Fails for a rule other than AdamW.
    fn step_on_accelerator(
        &self,
        accelerator: &Accelerator,
        parameters: &Parameters,
        rate: f64,
        limit: f64,
    ) -> Result<f64> {
        let UpdateRule::AdamW(adamw) = &self.settings.rule else {
            return Err(no_kernel(self.settings.kind()));
        };
        let norm = Norm::of(accelerator, parameters.gradients(), limit)?;
        for part in &self.parts {
            let view = part.view(parameters, &self.state, self.step + 1, rate)?;
            adamw.launch(accelerator, &view, &norm)?;
        }
        norm.read(accelerator)
    }

    /// Returns the state that a checkpoint needs beside the number of [`steps`](Self::steps): flat tensors of the CPU
    /// with their names. Those with a number for each parameter have no gaps between slots. On the CPU the tensors
    /// share the optimizer's memory, so later steps change them; from an accelerator they are copies, for which this
    /// waits.
    ///
    /// # Errors
    /// When the device fails.
    pub fn state(&self, parameters: &Parameters) -> Result<Vec<(&'static str, Tensor)>> {
        let on_cpu = |(name, tensor): &(&'static str, Tensor)| match parameters.accelerator() {
            None => Ok((*name, tensor.clone())),
            Some(accelerator) => Ok((*name, parameters.layout().gather(accelerator, tensor)?)),
        };
        self.state.iter().map(on_cpu).collect()
    }

    /// The number of steps taken so far, including those before a restored state. Leaves out steps whose gradient norm
    /// was not finite.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Replaces state and step count by copies of what [`state`](Self::state) and [`steps`](Self::steps) returned, on
    /// any device, in any order.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the names are those of this optimizer's state, [`Error::Shape`] for a tensor of
    /// another size or type; also when the device fails. On an error the optimizer keeps its old state.
    pub fn restore(&mut self, parameters: &Parameters, state: &[(impl AsRef<str>, Tensor)], step: u64) -> Result<()> {
        let find = |name: &str| state.iter().find(|(known, _)| known.as_ref() == name).map(|(_, tensor)| tensor);
        if state.len() != self.state.len() || self.state.iter().any(|(name, _)| find(name).is_none()) {
            return Err(self.foreign_state(state.iter().map(|(name, _)| name.as_ref())));
        }
        let fitted = |(name, own): &(&'static str, Tensor)| {
            let Some(given) = find(name) else { return Ok((*name, own.clone())) };
            let count = if parameters.accelerator().is_some() { parameters.len() } else { own.elem_count() };
            if given.dims() != [count] || given.dtype() != own.dtype() {
                let (dims, dtype) = (given.dims(), given.dtype().as_str());
                let wanted = own.dtype().as_str();
                return Err(Error::shape(format!("`{name}` is {dtype} {dims:?}, {wanted} [{count}] is needed")));
            }
            match parameters.accelerator() {
                None => Ok((*name, given.copy()?)),
                Some(accelerator) => Ok((*name, parameters.layout().spread(accelerator, given)?)),
            }
        };
        (self.state, self.step) = (self.state.iter().map(fitted).collect::<Result<_>>()?, step);
        Ok(())
    }

    /// Resets the state to zeros and the step count to 0.
    ///
    /// # Errors
    /// When the device has no memory for the state.
    pub fn reset(&mut self, parameters: &Parameters) -> Result<()> {
        *self = Self::new(self.settings, parameters)?;
        Ok(())
    }

    /// The error about a state with the tensors `given`, which are not those of this optimizer.
    fn foreign_state<'a>(&self, given: impl Iterator<Item = &'a str>) -> Error {
        let list = |names: Vec<&str>| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        let (given, own) = (list(given.collect()), list(self.state.iter().map(|(name, _)| *name).collect()));
        Error::argument(format!(
            "this is the state of another optimizer: it holds {given}, and {} keeps {own}",
            self.settings.kind()
        ))
    }
}

/// The error about an optimizer that has no kernel for accelerators.
fn no_kernel(kind: OptimizerKind) -> Error {
    Error::argument(format!("the optimizer {kind} runs on the CPU only; on an accelerator there is only adamw"))
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
        update_numbers(parameters.gradients(), |numbers: &mut [f32]| {
            numbers.par_iter_mut().with_min_len(TASK_NUMBERS).for_each(|number| *number *= factor);
        })?;
    }
    Ok(norm)
}

#[cfg(test)]
mod tests;
