//! Functions of one number that take an argument beside the tensor: a scalar, a range, an element type.

use candle_core::{DType, Tensor};

use super::graph::{Raw, derive, pull_view, wide};
use super::number::{filled, is_finite, times, where_or_zero};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::{Error, Result};

/// Checks that x is floating-point, charges `budget`, computes `value` in at least 32 bits, and records `pull(x, y,
/// grad)`, the gradient of x, in the autograd graph.
fn apply<F>(budget: &mut dyn Meter, x: &Tensor, value: impl FnOnce(&Tensor) -> Raw<Tensor>, pull: F) -> Result<Output>
where
    F: Fn(&Tensor, &Tensor, &Tensor) -> Raw<Tensor> + Send + Sync + 'static,
{
    check::float(x)?;
    Estimate::new(Kind::Scalar, x.dims(), x.dtype(), &[x])?.pay(budget, || {
        let value = value(&wide(x)?)?;
        derive(x, x.dtype(), &value, pull)
    })
}

/// Returns x + `value`.
///
/// # Errors
/// [`Error::Argument`] if `value` is not finite, [`Error::Dtype`] if x is not floating-point, and what `budget`
/// refuses.
pub fn add_scalar(budget: &mut dyn Meter, x: &Tensor, value: f64) -> Result<Output> {
    check::finite(value, "value")?;
    apply(budget, x, |x| x.affine(1., value), |_, _, grad| Ok(grad.clone()))
}

/// Returns x · `value`.
///
/// # Errors
/// [`Error::Argument`] if `value` is not finite, [`Error::Dtype`] if x is not floating-point, and what `budget`
/// refuses.
pub fn scale(budget: &mut dyn Meter, x: &Tensor, value: f64) -> Result<Output> {
    check::finite(value, "value")?;
    apply(budget, x, |x| x.affine(value, 0.), move |_, _, grad| grad.affine(value, 0.))
}

/// Returns x to the power `exponent`; NaN for a negative base with a fractional exponent.
///
/// # Errors
/// [`Error::Argument`] if `exponent` is not finite, [`Error::Dtype`] if x is not floating-point, and what `budget`
/// refuses.
pub fn power(budget: &mut dyn Meter, x: &Tensor, exponent: f64) -> Result<Output> {
    check::finite(exponent, "exponent")?;
    let slope = move |x: &Tensor| {
        if exponent == 0. { x.zeros_like() } else { x.powf(exponent - 1.)?.affine(exponent, 0.) }
    };
    apply(budget, x, |x| x.powf(exponent), move |x, _, grad| times(grad, &slope(x)?))
}

/// Limits x to at least `low` and at most `high`; `None` sets no limit. The gradient is 0 outside, 1 inside and at the
/// limits. NaN stays NaN.
///
/// # Errors
/// [`Error::Argument`] if a limit is not finite or `low` is above `high`, [`Error::Dtype`] if x is not floating-point,
/// and what `budget` refuses.
pub fn clamp(budget: &mut dyn Meter, x: &Tensor, low: Option<f64>, high: Option<f64>) -> Result<Output> {
    low.map_or(Ok(()), |low| check::finite(low, "low"))?;
    high.map_or(Ok(()), |high| check::finite(high, "high"))?;
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        return Err(Error::argument(format!("`low` {low} is above `high` {high}")));
    }
    let dtype = x.dtype();
    let value = move |x: &Tensor| {
        let mut value = x.clone();
        if let Some(low) = low {
            let low = filled(x, low, dtype)?;
            value = x.lt(&low)?.where_cond(&low, &value)?;
        }
        if let Some(high) = high {
            let high = filled(x, high, dtype)?;
            value = x.gt(&high)?.where_cond(&high, &value)?;
        }
        Ok(value)
    };
    // Inside and at the borders the value is x itself, in the type of x; NaN is not inside.
    apply(budget, x, value, |x, y, grad| where_or_zero(&x.eq(y)?, grad))
}

/// Replaces NaN and both infinities by `value`; the gradient there is 0.
///
/// # Errors
/// [`Error::Argument`] if `value` is not finite, [`Error::Dtype`] if x is not floating-point, and what `budget`
/// refuses.
pub fn replace_non_finite(budget: &mut dyn Meter, x: &Tensor, value: f64) -> Result<Output> {
    check::finite(value, "value")?;
    let dtype = x.dtype();
    apply(
        budget,
        x,
        |x| is_finite(x)?.where_cond(x, &filled(x, value, dtype)?),
        |x, _, grad| where_or_zero(&is_finite(x)?, grad),
    )
}

/// Returns a view of `x` that is not part of the autograd graph: no gradient flows back through it.
///
/// # Errors
/// None: the result has the type of the other views.
pub fn detach(x: &Tensor) -> Result<Output> {
    Ok(Output::view(x.detach(), || pull_view(x, |_, grad| Ok(grad.clone()))))
}

/// Converts to another element type: rounds between floating-point types, truncates towards 0 and saturates to an
/// integer type. Has a gradient between floating-point types only. Returns a view if the type is the same.
///
/// # Errors
/// What `budget` refuses.
pub fn cast(budget: &mut dyn Meter, x: &Tensor, dtype: DType) -> Result<Output> {
    if x.dtype() == dtype {
        return Ok(Output::view(x.clone(), || pull_view(x, |_, grad| Ok(grad.clone()))));
    }
    let source = if dtype.is_float() { x.clone() } else { x.detach() };
    Estimate::new(Kind::Cast, x.dims(), dtype, &[&source])?.pay(budget, || {
        let value = source.detach().contiguous()?.to_dtype(dtype)?;
        derive(&source, dtype, &value, |_, _, grad| Ok(grad.clone()))
    })
}
