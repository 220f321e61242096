//! Sums and means under a mask: an entry with mask 0 counts exactly 0, even if it is NaN.

use candle_core::{DType, Tensor};

use super::graph::{CandleResult, Pair, derive_pair, wide};
use super::lanes::Lanes;
use super::number::{is_nan, times};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::Result;

/// Returns Σ x·m over one axis, or over all if `axis` is `None`; `keep` leaves reduced axes with length 1. The mask m
/// is `u8` (not 0 counts as 1) or of the type of x; both are broadcast. An entry with m = 0 counts 0 even if it is NaN.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if x is not floating-point or the
/// mask has another type, [`crate::Error::Argument`] for an axis that does not exist, and the error of `budget` if the
/// operation exceeds a memory, work or time limit.
pub fn masked_sum(budget: &mut dyn Meter, x: &Tensor, mask: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce_masked(budget, x, mask, axis, keep, Divisor::One)
}

/// Returns Σ x·m divided by max(Σ m, 1), over one axis, or over all if `axis` is `None`; `keep` leaves reduced axes
/// with length 1. The mask m is `u8` (not 0 counts as 1) or of the type of x; both are broadcast. An entry with m = 0
/// counts 0 even if it is NaN.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if x is not floating-point or the
/// mask has another type, [`crate::Error::Argument`] for an axis that does not exist, and the error of `budget` if the
/// operation exceeds a memory, work or time limit.
pub fn masked_mean(budget: &mut dyn Meter, x: &Tensor, mask: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce_masked(budget, x, mask, axis, keep, Divisor::Mask)
}

/// What the sum is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Divisor {
    /// Nothing.
    One,
    /// max(Σ m, 1).
    Mask,
}

/// Returns Σ x·m over one axis, or over all if `axis` is `None`, divided by `divisor`, with the gradients of x and of
/// the mask. A `u8` mask counts as 0 and 1 and has no gradient. `keep` leaves reduced axes with length 1.
fn reduce_masked(
    budget: &mut dyn Meter,
    x: &Tensor,
    mask: &Tensor,
    axis: Option<i32>,
    keep: bool,
    divisor: Divisor,
) -> Result<Output> {
    check::expect_float(x)?;
    if mask.dtype() != DType::U8 {
        check::same_type(x, mask)?;
    }
    let dims = check::broadcast(x.dims(), mask.dims())?;
    let lanes = Lanes::over(&x.detach().broadcast_as(dims.as_slice())?, axis)?;
    let reduced = lanes.reduced(keep);
    let full = check::elements(&dims)?;
    // A mask of truth values is widened once, and the graph keeps that copy.
    let saved = if mask.dtype() == DType::U8 { mask.elem_count() as u64 * 8 } else { 0 };
    let estimate = Estimate::new(Kind::Masked, &reduced, x.dtype(), &[x, mask])?.measured(full).saved(saved);
    estimate.run_within_budget(budget, || {
        let mask = &if mask.dtype() == DType::U8 { mask_as_numbers(mask, x.dtype())? } else { mask.clone() };
        let sum = MaskedSum { lanes, divisor };
        let value = sum.value(&wide(x)?, &wide(mask)?)?.reshape(reduced.as_slice())?;
        let other = sum.clone();
        let gradients = (move |pair: &Pair| sum.x_gradient(pair), move |pair: &Pair| other.mask_gradient(pair));
        derive_pair(x, mask, x.dtype(), &value, gradients)
    })
}

/// Converts a `u8` mask to 0 and 1 in another type.
fn mask_as_numbers(mask: &Tensor, dtype: DType) -> CandleResult<Tensor> {
    mask.ne(&mask.zeros_like()?)?.to_dtype(dtype)
}

/// A masked sum: its lanes, and what it is divided by.
#[derive(Debug, Clone)]
struct MaskedSum {
    lanes: Lanes,
    divisor: Divisor,
}

impl MaskedSum {
    /// Broadcasts an operand to the common shape and reshapes it to `[outer, length, inner]`.
    fn view(&self, operand: &Tensor) -> CandleResult<Tensor> {
        self.lanes.view(&operand.broadcast_as(self.lanes.dims())?)
    }

    /// The divisor of each lane: max(Σ m, 1) for [`Divisor::Mask`], else 1.
    fn lane_divisors(&self, mask: &Tensor) -> CandleResult<Tensor> {
        let total = self.lanes.sum(mask)?;
        let one = total.ones_like()?;
        match self.divisor {
            Divisor::One => Ok(one),
            Divisor::Mask => total.lt(&one)?.where_cond(&one, &total),
        }
    }

    /// Computes Σ x·m of each lane divided by its divisor, from operands in at least 32 bits that can be broadcast.
    fn value(&self, x: &Tensor, mask: &Tensor) -> CandleResult<Tensor> {
        let (x, mask) = (self.view(x)?, self.view(mask)?);
        self.lanes.sum(&times(&mask, &x)?)?.div(&self.lane_divisors(&mask)?)
    }

    /// Divides the gradient of the result by each lane's divisor and broadcasts it along the lanes: `[outer, length,
    /// inner]`. `mask` has that shape too.
    fn spread(&self, pair: &Pair, mask: &Tensor) -> CandleResult<Tensor> {
        let grad = self.lanes.view_reduced(pair.grad)?.div(&self.lane_divisors(mask)?)?;
        self.lanes.spread(&grad)?.contiguous()
    }

    /// Returns the gradient of x in the common (broadcast) shape: the mask times the result's gradient, divided by the
    /// lane's divisor.
    fn x_gradient(&self, pair: &Pair) -> CandleResult<Tensor> {
        let mask = self.view(pair.b)?;
        times(&self.spread(pair, &mask)?, &mask)?.reshape(self.lanes.dims())
    }

    /// Returns the gradient of the mask in the common (broadcast) shape: the result's gradient, divided by the lane's
    /// divisor, times x. In a mean y over a lane with Σ m above 1, x − y takes the place of x. The gradient is 0 where
    /// the mask is 0 and x is NaN.
    fn mask_gradient(&self, pair: &Pair) -> CandleResult<Tensor> {
        let (x, mask) = (self.view(pair.a)?, self.view(pair.b)?);
        let mut slope = x.clone();
        if self.divisor == Divisor::Mask {
            let y = self.lanes.spread(&self.lanes.view_reduced(pair.y)?)?;
            let counts = self.lanes.sum(&mask)?;
            let counts = self.lanes.spread(&counts.gt(&counts.ones_like()?)?)?.contiguous()?;
            slope = counts.where_cond(&x.sub(&y)?, &x)?;
        }
        // What is masked counts 0 whatever it is, so NaN under a zero has no slope.
        let hidden = mask.eq(&mask.zeros_like()?)?.mul(&is_nan(&x)?)?;
        let slope = hidden.where_cond(&x.zeros_like()?, &slope)?;
        times(&self.spread(pair, &mask)?, &slope)?.reshape(self.lanes.dims())
    }
}
