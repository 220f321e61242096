//! The run's teachers (`wit/teacher.wit`): frozen models from which the policy can learn.
//!
//! ```
//! # use tunebox::prelude::*;
//! use tunebox::{model::score_for_learning_against, teacher};
//!
//! # fn step(batch: &Batch) -> Result<()> {
//! let rows = batch.rows("example")?;
//! let scores = score_for_learning_against(&teacher::open("teacher")?, 0.0, &rows, Taps::empty(), 1.0)?;
//! backward(&loss::token_mean(&scores.divergence(), batch.window_targets("example")?))
//! # }
//! ```

use crate::bindings::tunebox::method::teacher;
use crate::error::checked;
use crate::{Result, View};

/// The names of the run's teachers, in alphabetical order.
pub fn names() -> Vec<String> {
    teacher::names()
}

/// The weights of a teacher, to score, sample and capture with, and as the other side of a divergence; without gradient.
/// Errors: a name that the run does not have.
#[track_caller]
pub fn open(name: &str) -> Result<View> {
    checked(teacher::open(name)).map(View::new)
}
