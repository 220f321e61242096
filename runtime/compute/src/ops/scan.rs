//! Functions along an axis whose result is as long as the axis: running sums, softmax.

use candle_core::Tensor;

use super::graph::{Raw, derive};
use super::lanes::Lanes;
use super::reduce::{lane_log_sum_exp, lane_peak};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::Result;

/// Checks that x is floating-point, charges `budget`, computes `value` along an axis, and records the gradient in the
/// autograd graph. `pull` gets the lanes, the result and the result's gradient and returns the gradient of x.
fn apply(
    budget: &mut dyn Meter,
    x: &Tensor,
    axis: i32,
    value: fn(&Lanes, &Tensor) -> Raw<Tensor>,
    pull: fn(&Lanes, &Tensor, &Tensor) -> Raw<Tensor>,
) -> Result<Output> {
    check::float(x)?;
    let lanes = Lanes::along(x, axis)?;
    let estimate = Estimate::new(Kind::Scan, x.dims(), x.dtype(), &[x])?.measured(lanes.numbers_times_doublings());
    estimate.pay(budget, || {
        let value = value(&lanes, &lanes.view(x)?)?.reshape(lanes.dims())?;
        derive(x, x.dtype(), &value, move |_, y, grad| {
            pull(&lanes, &lanes.view(y)?, &lanes.view(grad)?)?.reshape(lanes.dims())
        })
    })
}

/// Returns the running sums along an axis, in log₂ n sweeps (Hillis and Steele): the order of the sums does not depend
/// on the device.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that is not there, [`crate::Error::Dtype`] if x is not floating-point, and
/// what `budget` refuses.
pub fn cumulative_sum(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    // The gradient of an entry is the sum of all gradients from it on: the same sums, from the end.
    apply(budget, x, axis, |lanes, x| running(lanes, x, false), |lanes, _, grad| running(lanes, grad, true))
}

/// Returns the running sums of each lane from its start, or from its end if `backwards`: `[outer, length, inner]`.
fn running(lanes: &Lanes, x: &Tensor, backwards: bool) -> Raw<Tensor> {
    let mut sums = x.clone();
    let mut step = 1;
    while step < lanes.length {
        let rest = lanes.length - step;
        sums = if backwards {
            let tail = sums.narrow(1, rest, step)?;
            Tensor::cat(&[&sums.narrow(1, 0, rest)?.add(&sums.narrow(1, step, rest)?)?, &tail], 1)?
        } else {
            let head = sums.narrow(1, 0, step)?;
            Tensor::cat(&[&head, &sums.narrow(1, step, rest)?.add(&sums.narrow(1, 0, rest)?)?], 1)?
        };
        step *= 2;
    }
    Ok(sums)
}

/// Returns the softmax along an axis, without overflow.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that is not there, [`crate::Error::Dtype`] if x is not floating-point,
/// and what `budget` refuses.
pub fn softmax(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| {
        let powers = x.sub(&lanes.spread(&lane_peak(x)?)?)?.exp()?;
        powers.div(&lanes.spread(&lanes.sum(&powers)?)?)
    };
    apply(budget, x, axis, value, |lanes, y, grad| {
        let mean = lanes.sum(&grad.mul(y)?)?;
        y.mul(&grad.sub(&lanes.spread(&mean)?)?)
    })
}

/// Returns the logarithm of the softmax along an axis, without overflow.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that is not there, [`crate::Error::Dtype`] if x is not floating-point,
/// and what `budget` refuses.
pub fn log_softmax(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| x.sub(&lanes.spread(&lane_log_sum_exp(lanes, x)?)?);
    apply(budget, x, axis, value, |lanes, y, grad| grad.sub(&y.exp()?.mul(&lanes.spread(&lanes.sum(grad)?)?)?))
}
