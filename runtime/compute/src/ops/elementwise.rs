//! Element-wise operations on one tensor, each with the slope that the gradient is multiplied by.
//!
//! After them, those with an argument besides the tensor: a scalar, a range, an element type.

use candle_core::{DType, Tensor};

use super::graph::{CandleResult, derive, view_backward, wide};
use super::number::{self, full_like, is_finite, times, where_or_zero};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::{Error, Result};

/// Charges `budget` by [`Kind::Elementwise`], computes `value` in at least 32 bits and rounds it to the type of x.
/// Records `slope(x, y)` times the gradient of the result y as the gradient of x, and 0 where the gradient of y is 0.
/// [`Error::Dtype`] if x is not floating-point.
fn apply(
    budget: &mut dyn Meter,
    x: &Tensor,
    value: fn(&Tensor) -> CandleResult<Tensor>,
    slope: fn(&Tensor, &Tensor) -> CandleResult<Tensor>,
) -> Result<Output> {
    apply_with(budget, Kind::Elementwise, x, value, move |x, y, grad| times(grad, &slope(x, y)?))
}

/// Checks that x is floating-point, charges `budget` by the formula of `kind`, computes `value` in at least 32 bits,
/// and rounds it to the type of x. Records `gradient_of(x, y, grad)`, the gradient of x, in the autograd graph; y is
/// the result, `grad` its gradient.
fn apply_with<F>(
    budget: &mut dyn Meter,
    kind: Kind,
    x: &Tensor,
    value: impl FnOnce(&Tensor) -> CandleResult<Tensor>,
    gradient_of: F,
) -> Result<Output>
where
    F: Fn(&Tensor, &Tensor, &Tensor) -> CandleResult<Tensor> + Send + Sync + 'static,
{
    check::expect_float(x)?;
    Estimate::new(kind, x.dims(), x.dtype(), &[x])?.run_within_budget(budget, || {
        let value = value(&wide(x)?)?;
        derive(x, x.dtype(), &value, gradient_of)
    })
}

/// Returns −x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn negate(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::neg, |x, _| x.ones_like()?.neg())
}

/// Returns |x|. The slope at 0 is 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn abs(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::abs, |x, _| x.sign())
}

/// Returns x².
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn square(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::sqr, |x, _| x.affine(2., 0.))
}

/// Returns √x; NaN below 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn sqrt(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::sqrt, |_, y| y.recip()?.affine(0.5, 0.))
}

/// Returns eˣ.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn exp(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::exp, |_, y| Ok(y.clone()))
}

/// Returns the natural logarithm of x; NaN below 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn log(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::log, |x, _| x.recip())
}

/// Returns log(1 + x), accurate near 0 (`log1p`).
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn log1p(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::log1p, |x, _| x.affine(1., 1.)?.recip())
}

/// Returns eˣ − 1, accurate near 0 (`expm1`).
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn expm1(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::expm1, |x, _| x.exp())
}

/// Returns 1 / x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn reciprocal(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::recip, |_, y| y.sqr()?.neg())
}

/// Returns the logistic function 1 / (1 + e⁻ˣ).
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn sigmoid(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    // σ(−x) rather than 1 − y, which would be rounded to 0 early.
    apply(budget, x, number::sigmoid, |x, y| y.mul(&number::sigmoid(&x.neg()?)?))
}

/// Returns the logarithm of the logistic function, −log(1 + e⁻ˣ), without overflow.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn log_sigmoid(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, |x| number::softplus(&x.neg()?)?.neg(), |x, _| number::sigmoid(&x.neg()?))
}

/// Returns log(1 + eˣ), without overflow for a large x and accurate for a very negative one.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn softplus(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::softplus, |x, _| number::sigmoid(x))
}

/// Returns max(x, 0). The slope at 0 is 0.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn relu(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, number::positive_part, |x, _| where_or_zero(&x.gt(&x.zeros_like()?)?, &x.ones_like()?))
}

/// Returns the hyperbolic tangent of x.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn tanh(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::tanh, |_, y| y.sqr()?.affine(-1., 1.))
}

/// Returns the sine of x, in radians.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn sin(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::sin, |x, _| x.cos())
}

/// Returns the cosine of x, in radians.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn cos(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply(budget, x, Tensor::cos, |x, _| x.sin()?.neg())
}

/// Returns −1, 0 or 1 by the sign of x; 0 for NaN. The result is in no graph.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn sign(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply_without_gradient(budget, x, Tensor::sign)
}

/// Returns the nearest whole number, of two as near the even one. NaN and infinities stay. The result is in no graph.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not floating-point, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn round(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    apply_without_gradient(budget, x, number::round_half_to_even)
}

/// Charges `budget` by [`Kind::Elementwise`], computes `value` in at least 32 bits and rounds it to the type of x. The
/// result is in no graph. [`Error::Dtype`] if x is not floating-point.
fn apply_without_gradient(
    budget: &mut dyn Meter,
    x: &Tensor,
    value: fn(&Tensor) -> CandleResult<Tensor>,
) -> Result<Output> {
    check::expect_float(x)?;
    let x = x.detach();
    Estimate::new(Kind::Elementwise, x.dims(), x.dtype(), &[&x])?
        .run_within_budget(budget, || Ok(value(&wide(&x)?)?.to_dtype(x.dtype())?))
}

/// Returns x + `value`.
///
/// # Errors
/// [`Error::Argument`] if `value` is not finite, [`Error::Dtype`] if x is not floating-point, and the error of `budget`
/// if the operation exceeds a memory, work or time limit.
pub fn add_scalar(budget: &mut dyn Meter, x: &Tensor, value: f64) -> Result<Output> {
    check::expect_finite(value, "value")?;
    apply_with(budget, Kind::Scalar, x, |x| x.affine(1., value), |_, _, grad| Ok(grad.clone()))
}

/// Returns x · `value`.
///
/// # Errors
/// [`Error::Argument`] if `value` is not finite, [`Error::Dtype`] if x is not floating-point, and the error of `budget`
/// if the operation exceeds a memory, work or time limit.
pub fn scale(budget: &mut dyn Meter, x: &Tensor, value: f64) -> Result<Output> {
    check::expect_finite(value, "value")?;
    apply_with(budget, Kind::Scalar, x, |x| x.affine(value, 0.), move |_, _, grad| grad.affine(value, 0.))
}

/// Returns x to the power `exponent`; NaN for a negative base with a fractional exponent. With `exponent` 0 the
/// gradient is 0 everywhere.
///
/// # Errors
/// [`Error::Argument`] if `exponent` is not finite, [`Error::Dtype`] if x is not floating-point, and the error of
/// `budget` if the operation exceeds a memory, work or time limit.
pub fn power(budget: &mut dyn Meter, x: &Tensor, exponent: f64) -> Result<Output> {
    check::expect_finite(exponent, "exponent")?;
    let slope = move |x: &Tensor| {
        if exponent == 0. { x.zeros_like() } else { x.powf(exponent - 1.)?.affine(exponent, 0.) }
    };
    apply_with(budget, Kind::Scalar, x, |x| x.powf(exponent), move |x, _, grad| times(grad, &slope(x)?))
}

/// Limits x to at least `low` and at most `high`; `None` sets no limit. The gradient is 0 outside, 1 inside and at the
/// limits. NaN stays NaN.
///
/// # Errors
/// [`Error::Argument`] if a limit is not finite or `low` is above `high`, [`Error::Dtype`] if x is not floating-point,
/// and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn clamp(budget: &mut dyn Meter, x: &Tensor, low: Option<f64>, high: Option<f64>) -> Result<Output> {
    low.map_or(Ok(()), |low| check::expect_finite(low, "low"))?;
    high.map_or(Ok(()), |high| check::expect_finite(high, "high"))?;
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        return Err(Error::argument(format!("`low` {low} is above `high` {high}")));
    }
    let dtype = x.dtype();
    let value = move |x: &Tensor| {
        let mut value = x.clone();
        if let Some(low) = low {
            let low = full_like(x, low, dtype)?;
            value = x.lt(&low)?.where_cond(&low, &value)?;
        }
        if let Some(high) = high {
            let high = full_like(x, high, dtype)?;
            value = x.gt(&high)?.where_cond(&high, &value)?;
        }
        Ok(value)
    };
    // Inside and at the borders the value is x itself, in the type of x; NaN is not inside.
    apply_with(budget, Kind::Scalar, x, value, |x, y, grad| where_or_zero(&x.eq(y)?, grad))
}

/// Replaces NaN and both infinities by `value`; the gradient there is 0.
///
/// # Errors
/// [`Error::Argument`] if `value` is not finite, [`Error::Dtype`] if x is not floating-point, and the error of `budget`
/// if the operation exceeds a memory, work or time limit.
pub fn replace_non_finite(budget: &mut dyn Meter, x: &Tensor, value: f64) -> Result<Output> {
    check::expect_finite(value, "value")?;
    let dtype = x.dtype();
    apply_with(
        budget,
        Kind::Scalar,
        x,
        |x| is_finite(x)?.where_cond(x, &full_like(x, value, dtype)?),
        |x, _, grad| where_or_zero(&is_finite(x)?, grad),
    )
}

/// Returns a view of `x` that is not part of the autograd graph: no gradient flows back through it.
///
/// # Errors
/// Never: it returns a [`Result`] like the other operations.
pub fn detach(x: &Tensor) -> Result<Output> {
    Ok(Output::view(x.detach(), || view_backward(x, |_, grad| Ok(grad.clone()))))
}

/// Converts to another element type: rounds between floating-point types, truncates towards 0 and saturates to an
/// integer type. Has a gradient between floating-point types only. Returns a view if the type is the same.
///
/// # Errors
/// The error of `budget` if the operation exceeds a memory, work or time limit.
pub fn cast(budget: &mut dyn Meter, x: &Tensor, dtype: DType) -> Result<Output> {
    if x.dtype() == dtype {
        return Ok(Output::view(x.clone(), || view_backward(x, |_, grad| Ok(grad.clone()))));
    }
    let source = if dtype.is_float() { x.clone() } else { x.detach() };
    Estimate::new(Kind::Cast, x.dims(), dtype, &[&source])?.run_within_budget(budget, || {
        let value = source.detach().contiguous()?.to_dtype(dtype)?;
        derive(&source, dtype, &value, |_, _, grad| Ok(grad.clone()))
    })
}
