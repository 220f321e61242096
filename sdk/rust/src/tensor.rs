//! Tensors: handles to numbers on the host, and the operations on them (`wit/tensor.wit`).
//!
//! Every operation gives a new tensor and panics on the caller's line when its operands do not
//! fit; the host shows that line. Operators take tensors, references to them, and numbers.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(x: &Tensor) -> Result<()> {
//! use tunebox::tensor::{self, Dtype, Scope};
//!
//! let scope = Scope::new(); // frees what is made below, but for what it keeps
//! let noise = tensor::randn("noise", &x.shape()) * 0.1;
//! let y = (x + noise).softmax(-1); // [rows, width]
//! let best = y.argmax(-1).copy_to_indices()?; // read back from the device
//! let entropy = -(&y * y.log()).sum(-1).mean(All);
//! let sharp = y.greater(0.5).cast(Dtype::F32).mean(Keep(-1)); // [rows, 1]
//! scope.keep(&entropy);
//! # Ok(())
//! # }
//! ```

mod call;
mod operations;
mod operators;
mod shown;

use std::rc::Rc;

use crate::bindings::tunebox::method::{tensor, types};
use crate::error::{certain, checked};
use crate::{Error, Result};

pub use call::{All, Keep, Operand, Over, where_};
pub use operations::*;
pub use types::Dtype;

/// An array of numbers on the run's device.
///
/// A clone is another name of the same tensor, in the same graph: it costs no call of the host and no memory there. The
/// host frees the tensor with the last of them.
///
/// ```
/// use tunebox::tensor::{All, Keep, Tensor, where_};
///
/// // Advantages of groups, `[groups, completions]`; 0 where a group's rewards do not differ.
/// fn advantages(rewards: &Tensor) -> Tensor {
///     let centered = rewards - rewards.mean(Keep(1));
///     let spread = rewards.std(Keep(1), 1); // [groups, 1]
///     where_(&spread.greater(1e-6), &centered / (&spread + 1e-4), 0)
/// }
///
/// fn size(rewards: &Tensor) -> tunebox::Result<f32> {
///     advantages(rewards).square().mean(All).sqrt().item() // read back from the device
/// }
/// ```
#[derive(Clone)]
pub struct Tensor(Rc<tensor::Tensor>);

impl Tensor {
    pub(crate) fn new(handle: tensor::Tensor) -> Self {
        Self(Rc::new(handle))
    }

    pub(crate) fn handle(&self) -> &tensor::Tensor {
        &self.0
    }

    /// Wraps the tensor that an operation returned. Panics at the caller's line if the host refused it.
    #[track_caller]
    pub(crate) fn from_answer(answer: std::result::Result<tensor::Tensor, types::Error>) -> Self {
        Self::new(certain(answer))
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

    /// A copy of all elements of a `u32` or `u8` tensor, such as the result of `argmax`, in row-major order. Waits for the
    /// device; counts as 4 bytes read back for each. Errors: `dtype-mismatch` for another element type; `out-of-budget`.
    #[track_caller]
    pub fn copy_to_indices(&self) -> Result<Vec<u32>, Error> {
        checked(self.0.copy_to_indices())
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
