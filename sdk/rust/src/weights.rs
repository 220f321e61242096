//! The weights by role and layer, for methods that edit a model (`wit/weights.wit`). Granted by name.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn finish(direction: &Tensor) -> Result<()> {
//! use tunebox::weights::{self, Form, Role};
//!
//! // Keeps the output of every feed-forward part from writing along a direction, as an adapter.
//! weights::keep_as(Form::Adapter)?;
//! for layer in 0..tunebox::hidden::layers() {
//!     let (rows, columns) = weights::shape(Role::Down, layer)?; // (dimension, inner width)
//!     weights::project_out(Role::Down, layer, direction, 1.0, false)?;
//! }
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::weights;
use crate::error::checked;
use crate::{Result, Tensor};

pub use weights::{Form, Role};

/// Sets how later edits are stored: in the weights, or beside them as an adapter.
#[track_caller]
pub fn keep_as(form: Form) -> Result<()> {
    checked(weights::keep_as(form))
}

/// The shape of a matrix: rows and columns, (out, in). `layer` is ignored for the embedding and the head.
#[track_caller]
pub fn shape(role: Role, layer: u32) -> Result<(u32, u32)> {
    checked(weights::shape(role, layer))
}

/// Reads rows `first .. first + count` of a matrix `[out, in]` as a tensor. Counts against the bytes read back.
#[track_caller]
pub fn read_rows(role: Role, layer: u32, first: u32, count: u32) -> Result<Tensor> {
    checked(weights::read_rows(role, layer, first, count)).map(Tensor::new)
}

/// W ← W + `scale` · `left` `right`ᵀ, with `left` `[out]` and `right` `[in]`.
#[track_caller]
pub fn add_outer(role: Role, layer: u32, left: &Tensor, right: &Tensor, scale: f32) -> Result<()> {
    checked(weights::add_outer(role, layer, left.handle(), right.handle(), scale))
}

/// W ← W − `strength` · r rᵀ W with r = `direction` / ‖`direction`‖; each row of the embedding is projected.
#[track_caller]
pub fn project_out(role: Role, layer: u32, direction: &Tensor, strength: f32, keep_norms: bool) -> Result<()> {
    checked(weights::project_out(role, layer, direction.handle(), strength, keep_norms))
}
