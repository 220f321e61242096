//! The weights by role and layer, for methods that edit a model (`wit/weights.wit`). Granted by name.

use crate::bindings::tunebox::method::weights;
use crate::error::checked;
use crate::{Result, Tensor};

pub use weights::{Form, Role};

/// Sets how later edits are stored: in the weights, or beside them as an adapter.
#[track_caller]
pub fn keep_as(form: Form) -> Result<()> {
    checked(weights::keep_as(form))
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
