//! Sums and means under a mask: what is masked counts exactly 0, even if it is NaN.

use candle_core::{DType, Tensor};

use super::graph::{Pair, Raw, derive_pair, wide};
use super::lanes::Lanes;
use super::number::{is_nan, times};
use super::{Admit, Estimate, Kind, Made, check};
use crate::error::Result;

/// Σ x·m with a mask that is `u8` or of the type of x, both broadcast, over one axis or all.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if x is not floating-point or
/// the mask has another type, [`crate::Error::Argument`] for an axis that is not there, and what `budget` refuses.
pub fn masked_sum(budget: &mut dyn Admit, x: &Tensor, mask: &Tensor, axis: Option<i32>, keep: bool) -> Result<Made> {
    masked(budget, x, mask, axis, keep, Divisor::One)
}

/// [`masked_sum`] divided by max(Σ m, 1).
///
/// # Errors
/// As [`masked_sum`].
pub fn masked_mean(budget: &mut dyn Admit, x: &Tensor, mask: &Tensor, axis: Option<i32>, keep: bool) -> Result<Made> {
    masked(budget, x, mask, axis, keep, Divisor::Mask)
}

/// What the sum is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Divisor {
    /// Nothing.
    One,
    /// max(Σ m, 1).
    Mask,
}

/// Σ x·m over an axis or all, divided as `divisor` says, with both gradients. A `u8` mask counts as 0 and 1 and gets none.
fn masked(
    budget: &mut dyn Admit,
    x: &Tensor,
    mask: &Tensor,
    axis: Option<i32>,
    keep: bool,
    divisor: Divisor,
) -> Result<Made> {
    check::float(x)?;
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
    estimate.pay(budget, || {
        let mask = &if mask.dtype() == DType::U8 { truth(mask, x.dtype())? } else { mask.clone() };
        let sum = Sum { lanes, divisor };
        let value = sum.value(&wide(x)?, &wide(mask)?)?.reshape(reduced.as_slice())?;
        let other = sum.clone();
        let pulls = (move |pair: &Pair| sum.pull_x(pair), move |pair: &Pair| other.pull_mask(pair));
        derive_pair(x, mask, x.dtype(), &value, pulls)
    })
}

/// A `u8` mask as 0 and 1 in another type.
fn truth(mask: &Tensor, dtype: DType) -> Raw<Tensor> {
    mask.ne(&mask.zeros_like()?)?.to_dtype(dtype)
}

/// A masked sum: its lanes, and what it is divided by.
#[derive(Debug, Clone)]
struct Sum {
    lanes: Lanes,
    divisor: Divisor,
}

impl Sum {
    /// An operand in the common shape, as lanes.
    fn view(&self, operand: &Tensor) -> Raw<Tensor> {
        self.lanes.view(&operand.broadcast_as(self.lanes.dims())?)
    }

    /// max(Σ m, 1), or 1.
    fn divide_by(&self, mask: &Tensor) -> Raw<Tensor> {
        let total = self.lanes.sum(mask)?;
        let one = total.ones_like()?;
        match self.divisor {
            Divisor::One => Ok(one),
            Divisor::Mask => total.lt(&one)?.where_cond(&one, &total),
        }
    }

    /// The divided sum of each lane, from wide operands of any shape that fits.
    fn value(&self, x: &Tensor, mask: &Tensor) -> Raw<Tensor> {
        let (x, mask) = (self.view(x)?, self.view(mask)?);
        self.lanes.sum(&times(&mask, &x)?)?.div(&self.divide_by(&mask)?)
    }

    /// The gradient of the sum itself, spread along the lanes.
    fn spread(&self, pair: &Pair, mask: &Tensor) -> Raw<Tensor> {
        let grad = self.lanes.view_reduced(pair.grad)?.div(&self.divide_by(mask)?)?;
        self.lanes.spread(&grad)?.contiguous()
    }

    /// The gradient of x in the common shape.
    fn pull_x(&self, pair: &Pair) -> Raw<Tensor> {
        let mask = self.view(pair.b)?;
        times(&self.spread(pair, &mask)?, &mask)?.reshape(self.lanes.dims())
    }

    /// The gradient of the mask in the common shape.
    fn pull_mask(&self, pair: &Pair) -> Raw<Tensor> {
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
