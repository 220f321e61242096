//! Tensors: handles to numbers on the host, and the operations on them (`wit/tensor.wit`).
//!
//! Every operation gives a new tensor and panics on the caller's line when its operands do not
//! fit; the host shows that line. Operators take tensors, references to them, and `f32`.

mod call;
mod operations;
mod operators;
mod shown;

use crate::bindings::tunebox::method::{tensor, types};
use crate::error::{certain, checked};
use crate::{Error, Result};

pub use call::{All, Keep, Operand, Over, choose};
pub use operations::*;
pub use types::Dtype;

/// An array of numbers on the run's device.
pub struct Tensor(tensor::Tensor);

impl Tensor {
    pub(crate) fn new(handle: tensor::Tensor) -> Self {
        Self(handle)
    }

    pub(crate) fn handle(&self) -> &tensor::Tensor {
        &self.0
    }

    /// Wraps the tensor that an operation returned. Panics at the caller's line if the host refused it.
    #[track_caller]
    pub(crate) fn from_answer(answer: std::result::Result<tensor::Tensor, types::Error>) -> Self {
        Self(certain(answer))
    }

    /// The length of each axis; empty for a scalar.
    pub fn shape(&self) -> Vec<u32> {
        self.0.shape()
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype()
    }

    /// Reads the only element. Waits for the device; counts as 4 bytes read back. Errors: `shape-mismatch` for any
    /// other number of elements; `out-of-budget`.
    #[track_caller]
    pub fn item(&self) -> Result<f32> {
        checked(self.0.item())
    }

    /// A copy of all elements in row-major order. Waits for the device.
    /// Errors: `out-of-budget` past the bytes that a step may read back.
    #[track_caller]
    pub fn copy_to_list(&self) -> Result<Vec<f32>, Error> {
        checked(self.0.copy_to_list())
    }
}

/// Groups temporary tensors: dropping it frees every tensor made since, except those kept.
/// Using a freed one ends the method.
pub struct Scope(tensor::Scope);

impl Scope {
    /// Opens a scope: tensors created from now on are freed when it is dropped.
    #[expect(clippy::new_without_default, reason = "opening a scope is an act, not a default value")]
    pub fn new() -> Self {
        Self(tensor::Scope::new())
    }

    /// Exempts a tensor from being freed with the scope.
    pub fn keep(&self, tensor: &Tensor) {
        self.0.keep(tensor.handle());
    }
}
