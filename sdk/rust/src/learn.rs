//! Gradients and weight updates (`wit/learn.wit`).
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(rows: &Rows) -> Result<()> {
//! // Two updates on the same rows. The run makes the second one, when `step` returns.
//! for number in 0..2 {
//!     if number > 0 {
//!         let norm = update()?;
//!         metric("gradient-norm", norm);
//!     }
//!     let scores = score_for_learning(rows, Taps::empty(), 1.0)?;
//!     backward(&loss::token_mean(&-scores.logprob(), rows.targets()))?;
//! }
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::learn;
use crate::error::checked;
use crate::{Result, Scores, Tensor};

/// Back-propagates a loss of one element, built from the taps of scores for learning, with its
/// whole denominator in it. Errors: `invalid-argument` if it is not finite, depends on no tap, on a tap without
/// gradient that was not detached, or on scores that a gradient went through before.
#[track_caller]
pub fn backward(loss: &Tensor) -> Result<()> {
    checked(learn::backward(loss.handle()))
}

/// Back-propagates gradients that the method computed itself: dL/d(log-probability) and dL/d(entropy), each
/// `[rows, width]`. Errors: `shape-mismatch`; scores of another view than the policy, from before the last
/// update, or that a gradient went through before.
#[track_caller]
pub fn backward_from(scores: &Scores, logprob: &Tensor, entropy: Option<&Tensor>) -> Result<()> {
    checked(learn::backward_from(scores.handle(), logprob.handle(), entropy.map(Tensor::handle)))
}

/// From now on, rows may get several gradients for one update, which add up: for a method that divides its losses
/// accordingly. Without this, a second gradient through rows of the batch is an error.
pub fn allow_repeats() {
    learn::allow_repeats();
}

/// Updates the weights now and clears the gradient; returns the gradient norm before clipping.
/// Errors: `invalid-argument` when nothing has accumulated.
#[track_caller]
pub fn update() -> Result<f32> {
    checked(learn::update())
}

/// The learning rate of the coming update.
pub fn rate() -> f64 {
    learn::rate()
}
