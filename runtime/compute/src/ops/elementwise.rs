//! Functions of one number: the value, and the slope that the gradient is multiplied with.
//!
//! Those with an argument beside the tensor are in `scalar`.

use candle_core::Tensor;

use super::graph::{Raw, derive, wide};
use super::number::{self, times, where_or_zero};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::Result;

/// Checks that x is floating-point, charges `budget`, computes `value` in at least 32 bits, and records the gradient in
/// the autograd graph: `slope(x, y)` times the result's gradient, where y is the result.
fn apply(
    budget: &mut dyn Meter,
    x: &Tensor,
    value: fn(&Tensor) -> Raw<Tensor>,
    slope: fn(&Tensor, &Tensor) -> Raw<Tensor>,
) -> Result<Output> {
    check::float(x)?;
    Estimate::new(Kind::Elementwise, x.dims(), x.dtype(), &[x])?.pay(budget, || {
        let value = value(&wide(x)?)?;
        derive(x, x.dtype(), &value, move |x, y, grad| times(grad, &slope(x, y)?))
    })
}

/// Returns −x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn negate(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::neg, |x, _| x.ones_like()?.neg())
}

/// Returns |x|. The slope at 0 is 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn abs(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::abs, |x, _| x.sign())
}

/// Returns x².
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn square(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::sqr, |x, _| x.affine(2., 0.))
}

/// Returns √x; NaN below 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn sqrt(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::sqrt, |_, y| y.recip()?.affine(0.5, 0.))
}

/// Returns eˣ.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn exp(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::exp, |_, y| Ok(y.clone()))
}

/// Returns the natural logarithm of x; NaN below 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn log(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::log, |x, _| x.recip())
}

/// Returns log(1 + x), accurate near 0 (`log1p`).
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn log_one_plus(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::log_one_plus, |x, _| x.affine(1., 1.)?.recip())
}

/// Returns eˣ − 1, accurate near 0 (`expm1`).
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn exp_minus_one(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::exp_minus_one, |x, _| x.exp())
}

/// Returns 1 / x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn reciprocal(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::recip, |_, y| y.sqr()?.neg())
}

/// Returns the logistic function 1 / (1 + e⁻ˣ).
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn sigmoid(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    // σ(−x) rather than 1 − y, which would be rounded to 0 early.
    apply(budget, x, number::sigmoid, |x, y| y.mul(&number::sigmoid(&x.neg()?)?))
}

/// Returns the logarithm of the logistic function, −log(1 + e⁻ˣ), without overflow.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn log_sigmoid(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, |x| number::softplus(&x.neg()?)?.neg(), |x, _| number::sigmoid(&x.neg()?))
}

/// Returns log(1 + eˣ), without overflow for a large x and accurate for a very negative one.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn softplus(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::softplus, |x, _| number::sigmoid(x))
}

/// Returns max(x, 0). The slope at 0 is 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn relu(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::positive_part, |x, _| where_or_zero(&x.gt(&x.zeros_like()?)?, &x.ones_like()?))
}

/// Returns the hyperbolic tangent of x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn tanh(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::tanh, |_, y| y.sqr()?.affine(-1., 1.))
}

/// Returns the sine of x, in radians.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn sin(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::sin, |x, _| x.cos())
}

/// Returns the cosine of x, in radians.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses.
pub fn cos(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::cos, |x, _| x.sin()?.neg())
}
