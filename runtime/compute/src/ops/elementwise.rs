//! Functions of one number: the value, and the slope that the gradient is multiplied with.
//!
//! Those with an argument beside the tensor are in `scalar`.

use candle_core::Tensor;

use super::graph::{Raw, derive, wide};
use super::number::{self, times, where_or_zero};
use super::{Admit, Estimate, Kind, Made, check};
use crate::error::Result;

/// A function of one number with its slope, from x and y.
fn apply(
    budget: &mut dyn Admit,
    x: &Tensor,
    value: fn(&Tensor) -> Raw<Tensor>,
    slope: fn(&Tensor, &Tensor) -> Raw<Tensor>,
) -> Result<Made> {
    check::float(x)?;
    Estimate::new(Kind::Elementwise, x.dims(), x.dtype(), &[x])?.pay(budget, || {
        let value = value(&wide(x)?)?;
        derive(x, x.dtype(), &value, move |x, y, grad| times(grad, &slope(x, y)?))
    })
}

/// −x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and what `budget` refuses; so for every function of this file.
pub fn negate(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::neg, |x, _| x.ones_like()?.neg())
}

/// |x|; the slope at 0 is 0.
///
/// # Errors
/// As [`negate`].
pub fn abs(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::abs, |x, _| x.sign())
}

/// x².
///
/// # Errors
/// As [`negate`].
pub fn square(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::sqr, |x, _| x.affine(2., 0.))
}

/// √x; NaN below 0.
///
/// # Errors
/// As [`negate`].
pub fn sqrt(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::sqrt, |_, y| y.recip()?.affine(0.5, 0.))
}

/// eˣ.
///
/// # Errors
/// As [`negate`].
pub fn exp(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::exp, |_, y| Ok(y.clone()))
}

/// The natural logarithm; NaN below 0.
///
/// # Errors
/// As [`negate`].
pub fn log(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::log, |x, _| x.recip())
}

/// log(1 + x), exact near 0.
///
/// # Errors
/// As [`negate`].
pub fn log_one_plus(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, number::log_one_plus, |x, _| x.affine(1., 1.)?.recip())
}

/// eˣ − 1, exact near 0.
///
/// # Errors
/// As [`negate`].
pub fn exp_minus_one(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, number::exp_minus_one, |x, _| x.exp())
}

/// 1 / x.
///
/// # Errors
/// As [`negate`].
pub fn reciprocal(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::recip, |_, y| y.sqr()?.neg())
}

/// 1 / (1 + e⁻ˣ).
///
/// # Errors
/// As [`negate`].
pub fn sigmoid(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    // σ(−x) rather than 1 − y, which would be rounded to 0 early.
    apply(budget, x, number::sigmoid, |x, y| y.mul(&number::sigmoid(&x.neg()?)?))
}

/// log σ(x) = −softplus(−x).
///
/// # Errors
/// As [`negate`].
pub fn log_sigmoid(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, |x| number::softplus(&x.neg()?)?.neg(), |x, _| number::sigmoid(&x.neg()?))
}

/// log(1 + eˣ), exact at both ends.
///
/// # Errors
/// As [`negate`].
pub fn softplus(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, number::softplus, |x, _| number::sigmoid(x))
}

/// max(x, 0); the slope at 0 is 0.
///
/// # Errors
/// As [`negate`].
pub fn relu(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, number::positive_part, |x, _| where_or_zero(&x.gt(&x.zeros_like()?)?, &x.ones_like()?))
}

/// The hyperbolic tangent.
///
/// # Errors
/// As [`negate`].
pub fn tanh(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::tanh, |_, y| y.sqr()?.affine(-1., 1.))
}

/// The sine, in radians.
///
/// # Errors
/// As [`negate`].
pub fn sin(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::sin, |x, _| x.cos())
}

/// The cosine, in radians.
///
/// # Errors
/// As [`negate`].
pub fn cos(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    apply(budget, x, Tensor::cos, |x, _| x.sin()?.neg())
}
