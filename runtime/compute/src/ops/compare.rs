//! Comparisons and logic. Truth values are `u8`, 0 or 1, and have no gradient.

use candle_core::{DType, Tensor};

use super::graph::Raw;
use super::{Admit, Estimate, Kind, Made, check, number};
use crate::error::Result;

/// Compares two tensors of one element type on their common shape.
fn compare(
    budget: &mut dyn Admit,
    a: &Tensor,
    b: &Tensor,
    relation: fn(&Tensor, &Tensor) -> Raw<Tensor>,
) -> Result<Made> {
    check::same_type(a, b)?;
    let (a, b) = (&a.detach(), &b.detach());
    let dims = check::broadcast(a.dims(), b.dims())?;
    Estimate::new(Kind::Compare, &dims, DType::U8, &[a, b])?
        .pay(budget, || Ok(relation(&a.broadcast_as(dims.as_slice())?, &b.broadcast_as(dims.as_slice())?)?))
}

/// 1 where a = b.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and
/// what `budget` refuses; so for every comparison.
pub fn equal(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    compare(budget, a, b, |a, b| a.eq(b))
}

/// 1 where a ≠ b.
///
/// # Errors
/// As [`equal`].
pub fn not_equal(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    compare(budget, a, b, |a, b| a.ne(b))
}

/// 1 where a < b.
///
/// # Errors
/// As [`equal`].
pub fn less(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    compare(budget, a, b, |a, b| a.lt(b))
}

/// 1 where a ≤ b.
///
/// # Errors
/// As [`equal`].
pub fn less_equal(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    compare(budget, a, b, |a, b| a.le(b))
}

/// 1 where a > b.
///
/// # Errors
/// As [`equal`].
pub fn greater(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    compare(budget, a, b, |a, b| a.gt(b))
}

/// 1 where a ≥ b.
///
/// # Errors
/// As [`equal`].
pub fn greater_equal(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    compare(budget, a, b, |a, b| a.ge(b))
}

/// 1 where x is neither NaN nor infinite.
///
/// # Errors
/// What `budget` refuses.
pub fn is_finite(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    let x = x.detach();
    Estimate::new(Kind::Finite, x.dims(), DType::U8, &[&x])?.pay(budget, || Ok(number::is_finite(&x)?))
}

/// 1 where a `u8` is 0, and 0 elsewhere.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not `u8`, and what `budget` refuses.
pub fn logical_not(budget: &mut dyn Admit, x: &Tensor) -> Result<Made> {
    check::exactly(x, DType::U8, "the operand")?;
    Estimate::new(Kind::Compare, x.dims(), DType::U8, &[x])?.pay(budget, || Ok(x.eq(&x.zeros_like()?)?))
}

/// 1 where both `u8` are not 0.
///
/// # Errors
/// As [`equal`], and [`crate::Error::Dtype`] if an operand is not `u8`.
pub fn logical_and(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    check::exactly(a, DType::U8, "the first operand")?;
    check::exactly(b, DType::U8, "the second operand")?;
    compare(budget, a, b, |a, b| a.ne(&a.zeros_like()?)?.minimum(&b.ne(&b.zeros_like()?)?))
}

/// 1 where either `u8` is not 0.
///
/// # Errors
/// As [`logical_and`].
pub fn logical_or(budget: &mut dyn Admit, a: &Tensor, b: &Tensor) -> Result<Made> {
    check::exactly(a, DType::U8, "the first operand")?;
    check::exactly(b, DType::U8, "the second operand")?;
    compare(budget, a, b, |a, b| a.ne(&a.zeros_like()?)?.maximum(&b.ne(&b.zeros_like()?)?))
}
