//! Comparisons and logic. Truth values are `u8`, 0 or 1, and have no gradient.

use candle_core::{DType, Tensor};

use super::graph::Raw;
use super::{Estimate, Kind, Meter, Output, check, number};
use crate::error::Result;

/// Computes `relation` (a `u8` tensor of 0 and 1) on the broadcast operands, which have one element type. No gradient.
fn compare(
    budget: &mut dyn Meter,
    a: &Tensor,
    b: &Tensor,
    relation: fn(&Tensor, &Tensor) -> Raw<Tensor>,
) -> Result<Output> {
    check::same_type(a, b)?;
    let (a, b) = (&a.detach(), &b.detach());
    let dims = check::broadcast(a.dims(), b.dims())?;
    Estimate::new(Kind::Compare, &dims, DType::U8, &[a, b])?
        .pay(budget, || Ok(relation(&a.broadcast_as(dims.as_slice())?, &b.broadcast_as(dims.as_slice())?)?))
}

/// Returns 1 where a = b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and what
/// `budget` refuses.
pub fn equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.eq(b))
}

/// Returns 1 where a ≠ b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and
/// what `budget` refuses.
pub fn not_equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.ne(b))
}

/// Returns 1 where a < b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and
/// what `budget` refuses.
pub fn less(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.lt(b))
}

/// Returns 1 where a ≤ b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and
/// what `budget` refuses.
pub fn less_equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.le(b))
}

/// Returns 1 where a > b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and
/// what `budget` refuses.
pub fn greater(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.gt(b))
}

/// Returns 1 where a ≥ b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and
/// what `budget` refuses.
pub fn greater_equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.ge(b))
}

/// Returns 1 where x is neither NaN nor infinite and 0 elsewhere, as `u8`. Takes any element type.
///
/// # Errors
/// What `budget` refuses.
pub fn is_finite(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    let x = x.detach();
    Estimate::new(Kind::Finite, x.dims(), DType::U8, &[&x])?.pay(budget, || Ok(number::is_finite(&x)?))
}

/// Returns 1 where x (`u8`) is 0 and 0 elsewhere, as `u8`.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not `u8`, and what `budget` refuses.
pub fn logical_not(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    check::exactly(x, DType::U8, "the operand")?;
    Estimate::new(Kind::Compare, x.dims(), DType::U8, &[x])?.pay(budget, || Ok(x.eq(&x.zeros_like()?)?))
}

/// Returns 1 where both operands (`u8`) are not 0 and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Dtype`] if an operand is not `u8`, [`crate::Error::Shape`] if the shapes cannot be broadcast, and
/// what `budget` refuses.
pub fn logical_and(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    check::exactly(a, DType::U8, "the first operand")?;
    check::exactly(b, DType::U8, "the second operand")?;
    compare(budget, a, b, |a, b| a.ne(&a.zeros_like()?)?.minimum(&b.ne(&b.zeros_like()?)?))
}

/// Returns 1 where at least one operand (`u8`) is not 0 and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Dtype`] if an operand is not `u8`, [`crate::Error::Shape`] if the shapes cannot be broadcast, and
/// what `budget` refuses.
pub fn logical_or(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    check::exactly(a, DType::U8, "the first operand")?;
    check::exactly(b, DType::U8, "the second operand")?;
    compare(budget, a, b, |a, b| a.ne(&a.zeros_like()?)?.maximum(&b.ne(&b.zeros_like()?)?))
}
