//! The checked operations behind `wit/tensor.wit`: one function each, over candle tensors, with backward functions of
//! their own (`graph`) instead of candle's autograd.
//!
//! Every function checks its arguments first, then charges its cost to a [`Meter`], and only then computes. None of
//! them can panic, loop without bound or read out of bounds, whatever the arguments. Gradients are those that
//! `wit/tensor.wit` documents. Floating-point numbers of 16 bits are computed in `f32` and rounded once. A gradient of
//! exactly 0 stays 0 in the backward pass, even where a slope is NaN or infinite, so that masked entries cannot poison
//! the others.
//!
//! Handles, scopes and traps belong to the sandbox.
#![cfg_attr(
    not(test),
    deny(
        clippy::panic,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::unreachable,
        clippy::todo
    )
)]

mod binary;
mod check;
mod cost;
mod create;
mod elementwise;
mod graph;
mod index;
mod lanes;
mod linear;
mod masked;
mod node;
mod number;
mod order;
mod read;
mod reduce;
mod shape;
mod statistics;

#[cfg(test)]
mod tests;

pub use binary::{
    add, divide, equal, greater, greater_equal, is_finite, less, less_equal, logical_and, logical_not, logical_or,
    maximum, minimum, multiply, not_equal, subtract, where_,
};
pub use check::{MAX_ELEMENTS, MAX_PARTS, MAX_RANK};
pub use cost::{Cost, Formula, Kind, VERSION as COSTS};
pub use create::{arange, from_indices, from_list, full, ones, rand, randn, randperm, zeros};
pub use elementwise::*;
pub use graph::GradFn;
pub use index::{gather, index_add, index_select, segment_sum};
pub use linear::{dot, matmul, outer};
pub use masked::{masked_mean, masked_sum};
pub use node::{Node, depth_of, gradients};
pub use order::{argsort, quantile, sort, topk};
pub use read::{indices, item, list, read_bytes};
pub use reduce::{all, any, argmax, count, cumsum, log_softmax, logsumexp, max, mean, min, norm, softmax, sum};
pub use shape::{chunk, concat, expand, flip, reshape, roll, slice, squeeze, stack, transpose, unsqueeze};
pub use statistics::{nanmean, nanstd, nansum, std, var};

use candle_core::Tensor;
use cost::Estimate;

use crate::budget::{Budget, Reservation};
use crate::error::Result;

/// Limits operations: charges the cost of each before it runs, or rejects it.
pub trait Meter {
    /// Charges an operation before it runs: reserves its bytes, temporaries included, and counts its work. Returns the
    /// reservation, of which the caller releases the temporaries when the operation has run.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::OutOfWork`] or [`crate::Error::OutOfTime`]; the operation then
    /// does not run.
    fn charge(&mut self, cost: Cost) -> Result<Reservation>;

    /// Checks a time limit. A backward pass calls this before it goes through each operation, with the cost of going
    /// through that operation. The work of the whole pass was charged before. Does nothing by default.
    ///
    /// # Errors
    /// [`crate::Error::OutOfTime`]; the backward pass then stops and returns this error.
    fn continue_gradient(&mut self, _cost: &Cost) -> Result<()> {
        Ok(())
    }
}

/// A budget alone limits bytes, not work or time.
impl Meter for Budget {
    /// Reserves the bytes of the operation, temporaries included. Neither counts nor limits its work.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] if the reserved bytes would pass the limit of the budget.
    fn charge(&mut self, cost: Cost) -> Result<Reservation> {
        self.reserve(cost.bytes.saturating_add(cost.scratch))
    }
}

/// The result of an operation.
#[derive(Debug)]
pub struct Output {
    /// The result itself. A view shares its memory with the operand.
    pub tensor: Tensor,
    /// The reserved bytes of the result; `None` for a view, which shares those of its operand.
    pub reservation: Option<Reservation>,
    /// The cost of one backward pass through this operation; zero if the result is not in the autograd graph.
    pub backward: Cost,
    /// The backward function, which passes a gradient to the operands; `None` if the result is not in the autograd
    /// graph.
    pub grad_fn: Option<GradFn>,
}

impl Output {
    /// Wraps a result that shares the bytes of its operand: reserves nothing. Calls `grad_fn` only if the result is in
    /// the autograd graph; else there is no backward function, and the backward cost is zero.
    fn view(tensor: Tensor, grad_fn: impl FnOnce() -> GradFn) -> Self {
        let (backward, grad_fn) = (cost::backward_of_view(&tensor), tensor.track_op().then(grad_fn));
        Self { tensor, reservation: None, backward, grad_fn }
    }
}
