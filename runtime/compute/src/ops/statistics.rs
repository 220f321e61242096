//! Variances, and reductions that skip NaN.

use candle_core::Tensor;

use super::graph::Raw;
use super::lanes::Lanes;
use super::number::{filled, is_nan, times, where_or_zero};
use super::reduce::reduce;
use super::{Admit, Made};
use crate::error::Result;

/// The variance with divisor n − `correction`; NaN when that is not positive.
///
/// # Errors
/// As [`super::sum`].
pub fn variance(budget: &mut dyn Admit, x: &Tensor, axis: Option<i32>, keep: bool, correction: u32) -> Result<Made> {
    let lanes = Lanes::over(x, axis)?;
    let share = share(&lanes, correction);
    let value = move |lanes: &Lanes, x: &Tensor| lane_variance(lanes, x, share);
    reduce(budget, x, lanes, keep, value, move |lanes, x, _, grad| {
        let slope = deviations(lanes, x)?.affine(2. * share, 0.)?;
        times(&lanes.spread(grad)?.contiguous()?, &slope)
    })
}

/// The square root of [`variance`]; the gradient at 0 is 0.
///
/// # Errors
/// As [`super::sum`].
pub fn standard_deviation(
    budget: &mut dyn Admit,
    x: &Tensor,
    axis: Option<i32>,
    keep: bool,
    correction: u32,
) -> Result<Made> {
    let lanes = Lanes::over(x, axis)?;
    let share = share(&lanes, correction);
    let value = move |lanes: &Lanes, x: &Tensor| lane_variance(lanes, x, share)?.sqrt();
    reduce(budget, x, lanes, keep, value, move |lanes, x, y, grad| {
        let flat = y.eq(&y.zeros_like()?)?;
        let grad = flat.where_cond(&grad.zeros_like()?, grad)?;
        let slope = deviations(lanes, x)?.affine(share, 0.)?.div(&lanes.spread(y)?)?;
        times(&lanes.spread(&grad)?.contiguous()?, &slope)
    })
}

/// 1 / (n − correction), or NaN when that is not positive.
fn share(lanes: &Lanes, correction: u32) -> f64 {
    let divisor = lanes.length as f64 - f64::from(correction);
    if divisor > 0. { divisor.recip() } else { f64::NAN }
}

/// x − mean of its lane.
fn deviations(lanes: &Lanes, x: &Tensor) -> Raw<Tensor> {
    let mean = lanes.sum(x)?.affine(1. / lanes.length as f64, 0.)?;
    x.sub(&lanes.spread(&mean)?)
}

fn lane_variance(lanes: &Lanes, x: &Tensor, share: f64) -> Raw<Tensor> {
    lanes.sum(&deviations(lanes, x)?.sqr()?)?.affine(share, 0.)
}

/// The sum of the entries that are not NaN; 0 when there is none.
///
/// # Errors
/// As [`super::sum`].
pub fn sum_of_finite(budget: &mut dyn Admit, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Made> {
    let lanes = Lanes::over(x, axis)?;
    let value = |lanes: &Lanes, x: &Tensor| lanes.sum(&numbers(x)?);
    reduce(budget, x, lanes, keep, value, |lanes, x, _, grad| {
        where_or_zero(&x.eq(x)?, &lanes.spread(grad)?.contiguous()?)
    })
}

/// The mean of the entries that are not NaN; NaN when there is none.
///
/// # Errors
/// As [`super::sum`].
pub fn mean_of_finite(budget: &mut dyn Admit, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Made> {
    let lanes = Lanes::over(x, axis)?;
    let value = |lanes: &Lanes, x: &Tensor| lanes.sum(&numbers(x)?)?.div(&present(lanes, x)?);
    reduce(budget, x, lanes, keep, value, |lanes, x, _, grad| {
        let grad = lanes.spread(&grad.div(&present(lanes, x)?)?)?.contiguous()?;
        where_or_zero(&x.eq(x)?, &grad)
    })
}

/// [`standard_deviation`] over the entries that are not NaN. No gradient.
///
/// # Errors
/// As [`super::sum`].
pub fn standard_deviation_of_finite(
    budget: &mut dyn Admit,
    x: &Tensor,
    axis: Option<i32>,
    keep: bool,
    correction: u32,
) -> Result<Made> {
    let x = x.detach();
    let lanes = Lanes::over(&x, axis)?;
    let value = move |lanes: &Lanes, x: &Tensor| {
        let count = present(lanes, x)?;
        let mean = lanes.sum(&numbers(x)?)?.div(&count)?;
        let deviations = where_or_zero(&x.eq(x)?, &x.sub(&lanes.spread(&mean)?)?)?;
        let divisor = count.affine(1., -f64::from(correction))?;
        let nothing = divisor.le(&divisor.zeros_like()?)?;
        let divisor = nothing.where_cond(&filled(&divisor, f64::NAN, divisor.dtype())?, &divisor)?;
        lanes.sum(&deviations.sqr()?)?.div(&divisor)?.sqrt()
    };
    reduce(budget, &x, lanes, keep, value, |_, x, _, _| x.zeros_like())
}

/// x with 0 in the place of NaN.
fn numbers(x: &Tensor) -> Raw<Tensor> {
    is_nan(x)?.where_cond(&x.zeros_like()?, x)
}

/// How many entries of each lane are not NaN, in the type of x.
fn present(lanes: &Lanes, x: &Tensor) -> Raw<Tensor> {
    lanes.marked(&x.eq(x)?)?.to_dtype(x.dtype())
}
