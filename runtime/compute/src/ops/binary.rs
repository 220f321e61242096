//! Element-wise operations on two tensors, broadcast as in NumPy: arithmetic, minimum and maximum, `where`; comparisons
//! and logic, which return `u8` tensors of 0 and 1 and have no gradient.

use candle_core::{DType, Tensor};

use super::graph::{CandleResult, OperandGradients, Pair, derive_pair, wide};
use super::number::{is_nan, times, where_or_zero};
use super::{Estimate, Kind, Meter, Output, check, number};
use crate::error::Result;

/// Checks that both operands are floating-point of one type, charges `budget`, computes `value` on the broadcast
/// operands (in at least 32 bits), and records `gradients`, which compute the gradients of a and of b, in the autograd
/// graph.
fn apply(
    budget: &mut dyn Meter,
    a: &Tensor,
    b: &Tensor,
    value: fn(&Tensor, &Tensor) -> CandleResult<Tensor>,
    gradients: OperandGradients,
) -> Result<Output> {
    check::expect_float(a)?;
    check::same_type(a, b)?;
    let dims = check::broadcast(a.dims(), b.dims())?;
    Estimate::new(Kind::Pairwise, &dims, a.dtype(), &[a, b])?.run_within_budget(budget, || {
        let value = value(&wide(a)?.broadcast_as(dims.as_slice())?, &wide(b)?.broadcast_as(dims.as_slice())?)?;
        derive_pair(a, b, a.dtype(), &value, gradients)
    })
}

/// Broadcasts an operand to the shape of the result, `pair.y`.
fn spread(operand: &Tensor, pair: &Pair) -> CandleResult<Tensor> {
    operand.broadcast_as(pair.y.shape())
}

/// Returns a + b, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn add(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    apply(budget, a, b, Tensor::add, (|pair| Ok(pair.grad.clone()), |pair| Ok(pair.grad.clone())))
}

/// Returns a − b, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn subtract(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    apply(budget, a, b, Tensor::sub, (|pair| Ok(pair.grad.clone()), |pair| pair.grad.neg()))
}

/// Returns a · b element by element, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn multiply(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    let gradients: OperandGradients =
        (|pair| times(pair.grad, &spread(pair.b, pair)?), |pair| times(pair.grad, &spread(pair.a, pair)?));
    apply(budget, a, b, Tensor::mul, gradients)
}

/// Returns a / b element by element, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn divide(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    // −y/b rather than −a/b²: the square of a small b would be 0.
    let gradients: OperandGradients = (
        |pair| times(pair.grad, &spread(pair.b, pair)?.recip()?),
        |pair| times(pair.grad, &pair.y.div(&spread(pair.b, pair)?)?.neg()?),
    );
    apply(budget, a, b, Tensor::div, gradients)
}

/// Returns the smaller of a and b element by element, broadcast; NaN if either is NaN. Where both are equal, each gets
/// half of the gradient; where either is NaN, both get 0.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn minimum(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    let gradients: OperandGradients =
        (|pair| gradient_share(pair, below, pair.a), |pair| gradient_share(pair, below, pair.b));
    apply(budget, a, b, |a, b| extreme(a, b, below), gradients)
}

/// Returns the larger of a and b element by element, broadcast; NaN if either is NaN. Where both are equal, each gets
/// half of the gradient; where either is NaN, both get 0.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn maximum(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    let gradients: OperandGradients =
        (|pair| gradient_share(pair, above, pair.a), |pair| gradient_share(pair, above, pair.b));
    apply(budget, a, b, |a, b| extreme(a, b, above), gradients)
}

/// Returns a `u8` tensor that is 1 where a < b and 0 elsewhere.
fn below(a: &Tensor, b: &Tensor) -> CandleResult<Tensor> {
    a.lt(b)
}

/// Returns a `u8` tensor that is 1 where a > b and 0 elsewhere.
fn above(a: &Tensor, b: &Tensor) -> CandleResult<Tensor> {
    a.gt(b)
}

/// Returns a where `wins(a, b)` ([`below`] or [`above`]) is 1 or a is NaN, and b elsewhere. Both have one shape.
fn extreme(a: &Tensor, b: &Tensor, wins: fn(&Tensor, &Tensor) -> CandleResult<Tensor>) -> CandleResult<Tensor> {
    let first = wins(a, b)?.add(&is_nan(a)?)?;
    first.where_cond(a, b)
}

/// Returns the gradient of `operand`, which is `pair.a` or `pair.b`, in the shape of the result: the result's gradient
/// where `wins(operand, other)` is 1, half of it where both operands are equal, and 0 elsewhere.
fn gradient_share(
    pair: &Pair,
    wins: fn(&Tensor, &Tensor) -> CandleResult<Tensor>,
    operand: &Tensor,
) -> CandleResult<Tensor> {
    let (a, b) = (spread(pair.a, pair)?, spread(pair.b, pair)?);
    let mine = if std::ptr::eq(operand, pair.a) { wins(&a, &b)? } else { wins(&b, &a)? };
    let won = where_or_zero(&mine, pair.grad)?;
    won.add(&where_or_zero(&a.eq(&b)?, &pair.grad.affine(0.5, 0.)?)?)
}

/// Returns a where `condition` (`u8`) is not 0 and b elsewhere (`where` of PyTorch), broadcast. A value that is not
/// taken has gradient 0 even if it is NaN. a and b have one element type, which may be any.
///
/// # Errors
/// [`crate::Error::Shape`] if the three shapes cannot be broadcast, [`crate::Error::Dtype`] if the condition is not
/// `u8` or a and b differ in type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn where_(budget: &mut dyn Meter, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Output> {
    check::expect_dtype(condition, DType::U8, "the condition")?;
    check::same_type(a, b)?;
    let dims = check::broadcast(condition.dims(), &check::broadcast(a.dims(), b.dims())?)?;
    let count = check::elements(&dims)?;
    Estimate::new(Kind::Where, &dims, a.dtype(), &[condition, a, b])?.saved(count).run_within_budget(budget, || {
        let spread = |operand: &Tensor| operand.detach().broadcast_as(dims.as_slice())?.contiguous();
        let condition = spread(condition)?;
        let value = condition.where_cond(&spread(a)?, &spread(b)?)?;
        let other = condition.eq(&condition.zeros_like()?)?;
        let taken = move |pair: &Pair| where_or_zero(&condition, pair.grad);
        let left = move |pair: &Pair| where_or_zero(&other, pair.grad);
        derive_pair(a, b, a.dtype(), &value, (taken, left))
    })
}

/// Checks that both operands have one element type, charges `budget`, and returns `relation` of the broadcast operands,
/// a `u8` tensor of 0 and 1. No gradient.
fn compare(
    budget: &mut dyn Meter,
    a: &Tensor,
    b: &Tensor,
    relation: fn(&Tensor, &Tensor) -> CandleResult<Tensor>,
) -> Result<Output> {
    check::same_type(a, b)?;
    let (a, b) = (&a.detach(), &b.detach());
    let dims = check::broadcast(a.dims(), b.dims())?;
    Estimate::new(Kind::Compare, &dims, DType::U8, &[a, b])?.run_within_budget(budget, || {
        Ok(relation(&a.broadcast_as(dims.as_slice())?, &b.broadcast_as(dims.as_slice())?)?)
    })
}

/// Returns 1 where a = b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.eq(b))
}

/// Returns 1 where a ≠ b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn not_equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.ne(b))
}

/// Returns 1 where a < b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn less(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.lt(b))
}

/// Returns 1 where a ≤ b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn less_equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.le(b))
}

/// Returns 1 where a > b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn greater(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.gt(b))
}

/// Returns 1 where a ≥ b and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Shape`] if the shapes cannot be broadcast, [`crate::Error::Dtype`] if the types differ, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn greater_equal(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    compare(budget, a, b, |a, b| a.ge(b))
}

/// Returns 1 where x is neither NaN nor infinite and 0 elsewhere, as `u8`. Takes any element type.
///
/// # Errors
/// The error of `budget` if the operation exceeds a memory, work or time limit.
pub fn is_finite(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    let x = x.detach();
    Estimate::new(Kind::Finite, x.dims(), DType::U8, &[&x])?.run_within_budget(budget, || Ok(number::is_finite(&x)?))
}

/// Returns 1 where x (`u8`) is 0 and 0 elsewhere, as `u8`.
///
/// # Errors
/// [`crate::Error::Dtype`] if x is not `u8`, and the error of `budget` if the operation exceeds a memory, work or time
/// limit.
pub fn logical_not(budget: &mut dyn Meter, x: &Tensor) -> Result<Output> {
    check::expect_dtype(x, DType::U8, "the operand")?;
    Estimate::new(Kind::Compare, x.dims(), DType::U8, &[x])?.run_within_budget(budget, || Ok(x.eq(&x.zeros_like()?)?))
}

/// Returns 1 where both operands (`u8`) are not 0 and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Dtype`] if an operand is not `u8`, [`crate::Error::Shape`] if the shapes cannot be broadcast, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn logical_and(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    check::expect_dtype(a, DType::U8, "the first operand")?;
    check::expect_dtype(b, DType::U8, "the second operand")?;
    compare(budget, a, b, |a, b| a.ne(&a.zeros_like()?)?.minimum(&b.ne(&b.zeros_like()?)?))
}

/// Returns 1 where at least one operand (`u8`) is not 0 and 0 elsewhere, as `u8`, broadcast.
///
/// # Errors
/// [`crate::Error::Dtype`] if an operand is not `u8`, [`crate::Error::Shape`] if the shapes cannot be broadcast, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn logical_or(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    check::expect_dtype(a, DType::U8, "the first operand")?;
    check::expect_dtype(b, DType::U8, "the second operand")?;
    compare(budget, a, b, |a, b| a.ne(&a.zeros_like()?)?.maximum(&b.ne(&b.zeros_like()?)?))
}
