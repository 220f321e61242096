//! Variances, and reductions that skip NaN.

use candle_core::Tensor;

use super::graph::CandleResult;
use super::lanes::Lanes;
use super::number::{full_like, nan_as_zero, times, where_or_zero};
use super::reduce::reduce;
use super::{Meter, Output};
use crate::error::Result;

/// Returns the variance with divisor n − `correction` over one axis, or over all if `axis` is `None`; NaN if the
/// divisor is not positive. `keep` leaves reduced axes with length 1.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn var(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool, correction: u32) -> Result<Output> {
    let value = move |lanes: &Lanes, x: &Tensor| lane_variance(lanes, x, correction);
    reduce(budget, x, axis, keep, value, move |lanes, x, _, grad| {
        let slope = deviations(lanes, x)?.affine(2. * inverse_divisor(lanes, correction), 0.)?;
        times(&lanes.spread(grad)?.contiguous()?, &slope)
    })
}

/// Returns the square root of the variance with divisor n − `correction` over one axis, or over all if `axis` is
/// `None`; NaN if the divisor is not positive. `keep` leaves reduced axes with length 1. The gradient where the
/// deviation is 0 is 0.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn std(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool, correction: u32) -> Result<Output> {
    let value = move |lanes: &Lanes, x: &Tensor| lane_variance(lanes, x, correction)?.sqrt();
    reduce(budget, x, axis, keep, value, move |lanes, x, y, grad| {
        let grad = where_or_zero(&y.ne(&y.zeros_like()?)?, grad)?;
        let slope = deviations(lanes, x)?.affine(inverse_divisor(lanes, correction), 0.)?.div(&lanes.spread(y)?)?;
        times(&lanes.spread(&grad)?.contiguous()?, &slope)
    })
}

/// Returns 1 / (n − `correction`) for lanes of n entries, or NaN if n is not above `correction`.
fn inverse_divisor(lanes: &Lanes, correction: u32) -> f64 {
    let divisor = lanes.length as f64 - f64::from(correction);
    if divisor > 0. { divisor.recip() } else { f64::NAN }
}

/// Subtracts from each entry the mean of its lane: `[outer, length, inner]`, like x.
fn deviations(lanes: &Lanes, x: &Tensor) -> CandleResult<Tensor> {
    let mean = lanes.sum(x)?.affine(1. / lanes.length as f64, 0.)?;
    x.sub(&lanes.spread(&mean)?)
}

/// Returns the variance of each lane with divisor n − `correction`: `[outer, 1, inner]`.
fn lane_variance(lanes: &Lanes, x: &Tensor, correction: u32) -> CandleResult<Tensor> {
    lanes.sum(&deviations(lanes, x)?.sqr()?)?.affine(inverse_divisor(lanes, correction), 0.)
}

/// Returns the sum of the entries that are not NaN over one axis, or over all if `axis` is `None`; 0 if there are none.
/// Infinite entries count. `keep` leaves reduced axes with length 1.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn nansum(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| lanes.sum(&nan_as_zero(x)?);
    reduce(budget, x, axis, keep, value, |lanes, x, _, grad| {
        where_or_zero(&x.eq(x)?, &lanes.spread(grad)?.contiguous()?)
    })
}

/// Returns the mean of the entries that are not NaN over one axis, or over all if `axis` is `None`; NaN if there are
/// none. Infinite entries count. `keep` leaves reduced axes with length 1.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn nanmean(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| lanes.sum(&nan_as_zero(x)?)?.div(&count_present(lanes, x)?);
    reduce(budget, x, axis, keep, value, |lanes, x, _, grad| {
        let grad = lanes.spread(&grad.div(&count_present(lanes, x)?)?)?.contiguous()?;
        where_or_zero(&x.eq(x)?, &grad)
    })
}

/// Returns the standard deviation, with divisor n − `correction`, of the n entries that are not NaN over one axis, or
/// over all if `axis` is `None`; NaN if the divisor is not positive. Infinite entries count. `keep` leaves reduced axes
/// with length 1. No gradient.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn nanstd(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool, correction: u32) -> Result<Output> {
    let x = x.detach();
    let value = move |lanes: &Lanes, x: &Tensor| {
        let count = count_present(lanes, x)?;
        let mean = lanes.sum(&nan_as_zero(x)?)?.div(&count)?;
        let deviations = where_or_zero(&x.eq(x)?, &x.sub(&lanes.spread(&mean)?)?)?;
        let divisor = count.affine(1., -f64::from(correction))?;
        let nothing = divisor.le(&divisor.zeros_like()?)?;
        let divisor = nothing.where_cond(&full_like(&divisor, f64::NAN, divisor.dtype())?, &divisor)?;
        lanes.sum(&deviations.sqr()?)?.div(&divisor)?.sqrt()
    };
    reduce(budget, &x, axis, keep, value, |_, x, _, _| x.zeros_like())
}

/// Counts the entries of each lane that are not NaN, in the type of x: `[outer, 1, inner]`.
fn count_present(lanes: &Lanes, x: &Tensor) -> CandleResult<Tensor> {
    lanes.count_nonzero(&x.eq(x)?)?.to_dtype(x.dtype())
}
