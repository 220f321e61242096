//! The checked operations behind `wit/tensor.wit`: one function each, over candle tensors and candle's autograd.
//!
//! Every function checks its arguments first, then says what it will cost ([`Admit`]), and only then
//! computes. None of them can panic, loop without bound or read out of bounds, whatever the
//! arguments. Gradients are those of the text in `wit/tensor.wit`: where candle has none, or a
//! wrong one, the operation brings its own (`graph`). Floating-point numbers of 16 bits are computed
//! in `f32` and rounded once. A gradient of exactly 0 stays 0 on its way back, even through a
//! slope that is NaN or infinite, so that masked entries cannot poison the others.
//!
//! Handles, scopes and traps belong to the sandbox.

mod binary;
mod chance;
mod check;
mod compare;
mod create;
mod elementwise;
mod graph;
mod index;
mod join;
mod lanes;
mod linear;
mod masked;
mod number;
mod order;
mod read;
mod reduce;
mod scalar;
mod scan;
mod shape;
mod statistics;

#[cfg(test)]
mod tests;

pub use binary::{add, choose, divide, maximum, minimum, multiply, subtract};
pub use chance::{random_normal, random_permutation, random_uniform};
pub use check::{MAX_ELEMENTS, MAX_PARTS, MAX_RANK};
pub use compare::not_equal;
pub use compare::{equal, greater, greater_equal, is_finite, less, less_equal, logical_and, logical_not, logical_or};
pub use create::{from_indices, from_list, full, ones, sequence, zeros};
pub use elementwise::{
    abs, cos, exp, exp_minus_one, log, log_one_plus, log_sigmoid, negate, reciprocal, relu, sigmoid,
};
pub use elementwise::{sin, softplus, sqrt, square, tanh};
pub use graph::{gradients, on_deep_stack};
pub use index::{gather, index_add, index_select, segment_sum};
pub use join::{concat, stack};
pub use linear::{dot, matmul, outer};
pub use masked::{masked_mean, masked_sum};
pub use order::{argsort, quantile, sort, top};
pub use read::{item, list, read_bytes};
pub use reduce::{all, any, argmax, count, log_sum_exp, max, mean, min, norm, sum};
pub use scalar::{add_scalar, cast, clamp, detach, power, replace_non_finite, scale};
pub use scan::{cumulative_sum, log_softmax, softmax};
pub use shape::{chunk, expand, flip, reshape, roll, slice, squeeze, transpose, unsqueeze};
pub use statistics::{mean_of_finite, standard_deviation, standard_deviation_of_finite, sum_of_finite, variance};

use candle_core::{DType, Tensor};

use crate::budget::{Ledger, Reservation};
use crate::error::Result;

/// What an operation will need, told before anything is allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that stay taken as long as the result, or a graph through it, lives.
    pub bytes: u64,
    /// Bytes of temporaries, free again when the operation returns.
    pub scratch: u64,
    /// Numbers read or written, multiply-adds for a product. A result with a gradient pays its way back here too.
    pub work: u64,
}

/// Who pays: it takes the bytes of `cost` (scratch included), or refuses.
pub trait Admit {
    /// Admits an operation before it is done.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] or [`crate::Error::OutOfWork`]; the operation then does nothing.
    fn admit(&mut self, cost: Cost) -> Result<Reservation>;
}

/// A ledger alone counts bytes and lets any amount of work pass.
impl Admit for Ledger {
    fn admit(&mut self, cost: Cost) -> Result<Reservation> {
        self.reserve(cost.bytes.saturating_add(cost.scratch))
    }
}

/// The result of an operation.
#[derive(Debug)]
pub struct Made {
    /// The numbers.
    pub tensor: Tensor,
    /// The bytes of the result; none for a view, which shares those of its operand.
    pub reservation: Option<Reservation>,
}

impl Made {
    fn view(tensor: Tensor) -> Self {
        Self { tensor, reservation: None }
    }
}

/// An estimate under way: how many numbers come in, how many go out, how many temporaries it takes.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    elements: u64,
    dtype: DType,
    inputs: u64,
    copies: u64,
    extra_scratch: u64,
    extra_work: u64,
    tracked: bool,
    saved: u64,
}

impl Estimate {
    /// A result of this shape, made from `operands`.
    fn new(dims: &[usize], dtype: DType, operands: &[&Tensor]) -> Result<Self> {
        let inputs = operands.iter().map(|operand| operand.elem_count() as u64).sum();
        let tracked = operands.iter().any(|operand| operand.track_op());
        Ok(Self {
            elements: check::elements(dims)?,
            dtype,
            inputs,
            copies: 2,
            extra_scratch: 0,
            extra_work: 0,
            tracked,
            saved: 0,
        })
    }

    /// Temporaries as large as the operands and the result together, at most this many alive at once.
    fn copies(mut self, copies: u64) -> Self {
        self.copies = copies;
        self
    }

    /// Numbers in temporaries beyond that, as when operands are repeated to a common shape.
    fn scratch(mut self, elements: u64) -> Self {
        self.extra_scratch = elements;
        self
    }

    /// Work beside reading and writing every number once.
    fn work(mut self, extra: u64) -> Self {
        self.extra_work = extra;
        self
    }

    /// Bytes that the gradient keeps beside the operands and the result.
    fn saved(mut self, bytes: u64) -> Self {
        self.saved = bytes;
        self
    }

    /// Asks for what the estimate says, does it, and gives the scratch back.
    fn pay(self, budget: &mut dyn Admit, make: impl FnOnce() -> Result<Tensor>) -> Result<Made> {
        let bytes = self.elements * self.dtype.size_in_bytes() as u64 + if self.tracked { self.saved } else { 0 };
        let touched = self.elements + self.inputs;
        let wide = self.dtype.size_in_bytes().max(4) as u64;
        let once = touched.saturating_add(self.extra_work);
        let cost = Cost {
            bytes,
            scratch: touched.saturating_mul(self.copies).saturating_add(self.extra_scratch).saturating_mul(wide),
            work: if self.tracked { once.saturating_mul(3) } else { once },
        };
        let reservation = budget.admit(cost)?;
        let tensor = make()?;
        Ok(Made { tensor, reservation: Some(reservation.shrunk_to(bytes)) })
    }
}
