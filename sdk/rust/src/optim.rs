//! Optimizers for methods that update the parameters themselves: one step of a [`Parameter`], with its state on the
//! host.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn update(batch: &Batch) -> Result<()> {
//! use tunebox::optim::AdamW;
//! use tunebox::optimizer;
//!
//! if batch.ends_window() {
//!     AdamW::default().step(&optimizer::all(), tunebox::learn::rate())?;
//!     optimizer::done()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Each computes in `f32` with a parameter's own gradient; `step_with` takes another one, such as a clipped gradient.
//! Results are those of the named implementations but for rounding.

mod adamw;
mod lion;
mod muon;
mod sam;
mod sgd;

pub use adamw::AdamW;
pub use lion::Lion;
pub use muon::Muon;
pub use sam::{Ascent, Sam};
pub use sgd::Sgd;

use crate::optimizer::Parameter;
use crate::tensor::All;
use crate::{Result, Tensor};

/// Scales gradients together so that their common norm is at most `limit`, as `torch.nn.utils.clip_grad_norm_` does: by
/// min(1, limit / (norm + 10⁻⁶)).
pub fn clip(gradients: Vec<Tensor>, limit: f32) -> Vec<Tensor> {
    let squares = gradients.iter().map(|gradient| gradient.square().sum(All));
    let Some(sum) = squares.reduce(|sum, square| sum + square) else { return gradients };
    let factor = (limit / (sum.sqrt() + 1e-6)).minimum(crate::tensor::full(&[], 1.0));
    gradients.into_iter().map(|gradient| gradient * &factor).collect()
}

/// Subtracts `change` and the decoupled weight decay, `rate` · `decay` · value, from a parameter.
#[track_caller]
fn subtract_with_decay(parameter: &Parameter, change: Tensor, rate: f64, decay: f64) -> Result<()> {
    if decay > 0.0 {
        return parameter.subtract(&(change + parameter.value().detach().scale(rate * decay)));
    }
    parameter.subtract(&change)
}
