//! Trained parameters, for a method that updates them itself (`wit/optimizer.wit`): their values, gradients and state,
//! extra parameters, and perturbations.
//!
//! Such a method declares `update: "method"` in [`method!`](crate::method!). It updates when its gradient is complete,
//! and then calls [`done`]:
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch) -> Result<()> {
//! let rows = batch.rows("example")?;
//! let scores = score_for_learning(&rows, Taps::empty(), 1.0)?;
//! backward(&loss::token_mean(&-scores.logprob(), batch.window_targets("example")?))?;
//! if batch.ends_window() {
//!     let all = tunebox::optimizer::all();
//!     all.subtract(&(all.gradient() * tunebox::learn::rate() as f32))?; // plain gradient descent
//!     tunebox::optimizer::done()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`optim`](crate::optim) has the usual optimizers. Functions that return a tensor panic at the caller's line where
//! the host refuses; all others return a [`Result`].
//!
//! A method that scores again after it changed the parameters, such as one without gradients, declares `batch:
//! "window"`, so that each call of `step` is one whole update:
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn loss_of(batch: &Batch) -> Result<f32> { unimplemented!() }
//! # fn step(batch: &Batch) -> Result<()> {
//! use tunebox::optimizer::{add_noise, done, perturb};
//!
//! let number = tunebox::run::position();
//! let moved = perturb("noise", number, 1e-3)?; // `let _ =` would drop it at once
//! let above = loss_of(batch)?; // `policy()` is the perturbed model
//! drop(moved);
//! let moved = perturb("noise", number, -1e-3)?;
//! let below = loss_of(batch)?;
//! drop(moved);
//! add_noise("noise", number, -(tunebox::learn::rate() as f32) * (above - below) / 2e-3)?;
//! done()?;
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::optimizer;
use crate::error::{certain, checked};
use crate::{Result, Tensor};

/// A trained parameter: a matrix or vector of what the run trains, all of it as one vector ([`all`]), or an extra
/// parameter of the method's own ([`extra`]).
pub struct Parameter(optimizer::Parameter);

impl Parameter {
    /// Its name as in the adapter's file without PEFT's prefix, such as
    /// `model.layers.0.self_attn.q_proj.lora_A.weight`; `*` for [`all`].
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// What it is: `lora-a`, `lora-b`, `magnitude`, `weight`, `bias`, `all` or `extra`; a later host may have others.
    pub fn role(&self) -> String {
        self.0.role()
    }

    /// The block that it belongs to, from 0; `None` outside of the blocks.
    pub fn layer(&self) -> Option<u32> {
        self.0.layer()
    }

    /// The length of each axis.
    pub fn shape(&self) -> Vec<u32> {
        self.0.shape()
    }

    /// A copy of the value, `f32`. For an extra parameter it is differentiable: [`backward`](crate::learn::backward)
    /// adds to its gradient.
    #[track_caller]
    pub fn value(&self) -> Tensor {
        Tensor::new(certain(self.0.value()))
    }

    /// A copy of the gradient that has accumulated, `f32`; zeros if none has.
    #[track_caller]
    pub fn gradient(&self) -> Tensor {
        Tensor::new(certain(self.0.gradient()))
    }

    /// State of this name, which the run keeps and saves in its checkpoints; zeros in the parameter's shape before
    /// [`set_state`](Self::set_state). Panics for a name that is not allowed.
    #[track_caller]
    pub fn state(&self, name: &str) -> Tensor {
        Tensor::new(certain(self.0.state(name)))
    }

    /// Replaces the state of this name by an `f32` tensor of any shape. Errors: a number that is not finite; more than
    /// 16 names a parameter.
    #[track_caller]
    pub fn set_state(&self, name: &str, value: &Tensor) -> Result<()> {
        checked(self.0.set_state(name, value.handle()))
    }

    /// Replaces the value. Errors: another shape or type, a number that is not finite, a perturbation that is active,
    /// and `unsupported` where the host updates the parameter.
    #[track_caller]
    pub fn assign(&self, value: &Tensor) -> Result<()> {
        checked(self.0.assign(value.handle()))
    }

    /// value ← value − `change`. Errors: those of [`assign`](Self::assign).
    #[track_caller]
    pub fn subtract(&self, change: &Tensor) -> Result<()> {
        checked(self.0.subtract(change.handle()))
    }
}

/// Noise on all parameters that the run trains. Dropping it restores their values bit for bit, so bind it to a name for
/// as long as it should last.
#[must_use = "the noise ends when this is dropped"]
pub struct Perturbation(
    #[expect(dead_code, reason = "dropping the handle ends the perturbation")] optimizer::Perturbation,
);

/// Every parameter that the run trains, in the order of [`all`]; without extra ones.
pub fn parameters() -> Vec<Parameter> {
    optimizer::parameters().into_iter().map(Parameter).collect()
}

/// All parameters that the run trains as one vector. One call for all of them is fastest; its tensors are as large as
/// what the run trains.
pub fn all() -> Parameter {
    Parameter(optimizer::all())
}

/// Returns an extra parameter of the method, such as a value head. Creates it with the value `initial` (`f32`, any
/// shape) if the name is new; in a run that continues an adapter, with the value that was saved under this name beside
/// the adapter, if there is one. The run saves extra parameters in checkpoints and in its artifact; the method updates
/// them. Errors: another shape than before, a number that is not finite, or more than 64 extra parameters.
#[track_caller]
pub fn extra(name: &str, initial: &Tensor) -> Result<Parameter> {
    checked(optimizer::extra(name, initial.handle())).map(Parameter)
}

/// Counts the changes since the last call as one update and clears all gradients. Returns the norm of the gradient that
/// was cleared. Errors: `unsupported` where the host updates the parameters.
#[track_caller]
pub fn done() -> Result<f32> {
    checked(optimizer::done())
}

/// Sets all gradients to zero without counting an update.
#[track_caller]
pub fn clear_gradients() -> Result<()> {
    checked(optimizer::clear_gradients())
}

/// Adds `scale` · z to all parameters that the run trains, until the result is dropped or the call of the method ends.
/// z are standard normal numbers that depend on the run's seed, `sequence` and `number` alone. Errors: a perturbation
/// is active.
#[track_caller]
pub fn perturb(sequence: &str, number: u32, scale: f32) -> Result<Perturbation> {
    checked(optimizer::perturb(sequence, number, scale)).map(Perturbation)
}

/// value ← value + `scale` · z for all parameters that the run trains, with the z of [`perturb`]. Errors: `unsupported`
/// where the host updates the parameters; a perturbation is active.
#[track_caller]
pub fn add_noise(sequence: &str, number: u32, scale: f32) -> Result<()> {
    checked(optimizer::add_noise(sequence, number, scale))
}
