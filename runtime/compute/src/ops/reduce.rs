//! Reductions over one axis, or over everything when no axis is given; and functions whose result is as long as the
//! axis: running sums, softmax.
//!
//! Those that skip NaN, and variances, are in `statistics`; those with a mask in `masked`.

use candle_core::{DType, Tensor};

use super::graph::{CandleResult, derive};
use super::lanes::Lanes;
use super::number::{full_like, is_nan, nan_as_zero, times, where_or_zero};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::Result;

/// Computes a differentiable reduction of a floating-point tensor over one axis, or over all if `axis` is `None`;
/// `keep` leaves reduced axes with length 1. `value` gets x as `[outer, length, inner]` and returns `[outer, 1,
/// inner]`; `gradient_of` gets x, the result and the result's gradient in these shapes and returns the gradient of x.
/// Both get numbers of at least 32 bits; the result is rounded to the type of x.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub(super) fn reduce(
    budget: &mut dyn Meter,
    x: &Tensor,
    axis: Option<i32>,
    keep: bool,
    value: impl FnOnce(&Lanes, &Tensor) -> CandleResult<Tensor>,
    gradient_of: impl Fn(&Lanes, &Tensor, &Tensor, &Tensor) -> CandleResult<Tensor> + Send + Sync + 'static,
) -> Result<Output> {
    let lanes = Lanes::over(x, axis)?;
    check::expect_float(x)?;
    let dims = lanes.reduced(keep);
    Estimate::new(Kind::Reduce, &dims, x.dtype(), &[x])?.run_within_budget(budget, || {
        let value = value(&lanes, &lanes.view(x)?)?.reshape(dims.as_slice())?;
        derive(x, x.dtype(), &value, move |x, y, grad| {
            let (y, grad) = (lanes.view_reduced(y)?, lanes.view_reduced(grad)?);
            gradient_of(&lanes, &lanes.view(x)?, &y, &grad)?.reshape(lanes.dims())
        })
    })
}

/// Returns the sum over one axis, or over all if `axis` is `None`; `keep` leaves reduced axes with length 1.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn sum(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce(budget, x, axis, keep, |lanes, x| lanes.sum(x), |lanes, _, _, grad| lanes.spread(grad)?.contiguous())
}

/// Returns the mean over one axis, or over all if `axis` is `None`; `keep` leaves reduced axes with length 1.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn mean(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    let divided = |lanes: &Lanes, sum: &Tensor| sum.affine(1. / lanes.length as f64, 0.);
    let value = |lanes: &Lanes, x: &Tensor| divided(lanes, &lanes.sum(x)?);
    reduce(budget, x, axis, keep, value, move |lanes, _, _, grad| lanes.spread(&divided(lanes, grad)?)?.contiguous())
}

/// Returns the largest entry over one axis, or over all if `axis` is `None`; NaN if an entry is NaN. `keep` leaves
/// reduced axes with length 1. The first of equal entries gets the gradient. Takes any element type.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a
/// memory, work or time limit.
pub fn max(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    extreme(budget, x, axis, keep, Tensor::max_keepdim)
}

/// Returns the smallest entry over one axis, or over all if `axis` is `None`; NaN if an entry is NaN. `keep` leaves
/// reduced axes with length 1. The first of equal entries gets the gradient. Takes any element type.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a
/// memory, work or time limit.
pub fn min(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    extreme(budget, x, axis, keep, Tensor::min_keepdim)
}

/// A candle function that returns the largest or the smallest entry along an axis, which stays with length 1.
type Extreme = fn(&Tensor, usize) -> CandleResult<Tensor>;

/// Returns the largest or smallest entry (`pick`) over one axis, or over all if `axis` is `None`: the first NaN if
/// there is one, else the first of equal entries. Only this entry gets the gradient. `keep` leaves reduced axes with
/// length 1. Takes any element type.
fn extreme(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool, pick: Extreme) -> Result<Output> {
    let lanes = Lanes::over(x, axis)?;
    let dims = lanes.reduced(keep);
    let places = check::elements(&dims)? * 4;
    Estimate::new(Kind::Extreme, &dims, x.dtype(), &[x])?.saved(places).run_within_budget(budget, || {
        let view = lanes.view(x)?;
        let place = first_extreme(&lanes, &view, pick)?;
        let value = view.gather(&place, 1)?.reshape(dims.as_slice())?;
        derive(x, x.dtype(), &value, move |_, _, grad| {
            let taken = lanes.indices(grad)?.eq(&lanes.spread(&place)?)?;
            let grad = lanes.spread(&lanes.view_reduced(grad)?)?.contiguous()?;
            where_or_zero(&taken, &grad)?.reshape(lanes.dims())
        })
    })
}

/// Returns the index within each lane of its first NaN or, in a lane without NaN, of the first entry equal to the one
/// that `pick` (largest or smallest) returns: `[outer, 1, inner]`, as `u32`. x is `[outer, length, inner]`.
fn first_extreme(lanes: &Lanes, x: &Tensor, pick: Extreme) -> CandleResult<Tensor> {
    let hits = if x.dtype().is_float() {
        let nan = is_nan(x)?;
        // What replaces NaN does not matter: in a lane with NaN, `nan` decides below.
        let numbers = nan_as_zero(x)?;
        let hits = numbers.eq(&lanes.spread(&pick(&numbers, 1)?)?)?;
        let poisoned = lanes.spread(&lanes.count_nonzero(&nan)?.ne(0_u32)?)?.contiguous()?;
        poisoned.where_cond(&nan, &hits)?
    } else {
        x.eq(&lanes.spread(&pick(x, 1)?)?)?
    };
    let places = lanes.indices(x)?.contiguous()?;
    // Every lane has a hit. If a device finds none nevertheless, the last index, unlike `length`, is still in the lane.
    let nowhere = full_like(&places, lanes.length as f64 - 1., DType::U32)?;
    hits.where_cond(&places, &nowhere)?.min_keepdim(1)
}

/// Returns the index along `axis` of the largest entry, as `u32`, or its row-major index in the whole tensor if `axis`
/// is `None`. The first NaN counts as the largest entry; of equal entries the first counts. `keep` leaves reduced axes
/// with length 1. Takes any element type. No gradient.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a
/// memory, work or time limit.
pub fn argmax(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    let x = x.detach();
    let lanes = Lanes::over(&x, axis)?;
    let dims = lanes.reduced(keep);
    Estimate::new(Kind::Extreme, &dims, DType::U32, &[&x])?.run_within_budget(budget, || {
        Ok(first_extreme(&lanes, &lanes.view(&x)?, Tensor::max_keepdim)?.reshape(dims.as_slice())?)
    })
}

/// Returns log Σ eˣ over one axis, or over all if `axis` is `None`, without overflow. `keep` leaves reduced axes with
/// length 1. If all summed entries are −∞, the result is −∞ and their gradient is 0.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn logsumexp(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce(budget, x, axis, keep, lane_log_sum_exp, |lanes, x, y, grad| {
        // An empty sum (y = −∞) depends on nothing.
        let base = y.eq(&full_like(y, f64::NEG_INFINITY, y.dtype())?)?.where_cond(&y.zeros_like()?, y)?;
        let share = x.sub(&lanes.spread(&base)?)?.exp()?;
        times(&lanes.spread(grad)?.contiguous()?, &share)
    })
}

/// Returns log Σ eˣ of each lane, without overflow: `[outer, 1, inner]`.
pub(super) fn lane_log_sum_exp(lanes: &Lanes, x: &Tensor) -> CandleResult<Tensor> {
    let largest = lane_peak(x)?;
    lanes.sum(&x.sub(&lanes.spread(&largest)?)?.exp()?)?.log()?.add(&largest)
}

/// Returns the largest number of each lane, NaN counted as 0: `[outer, 1, inner]`. Returns 0 where that number is
/// infinite. Callers subtract it before they compute exponentials, so that these do not overflow.
pub(super) fn lane_peak(x: &Tensor) -> CandleResult<Tensor> {
    let peak = nan_as_zero(x)?.max_keepdim(1)?;
    super::number::is_finite(&peak)?.where_cond(&peak, &peak.zeros_like()?)
}

/// Returns the Euclidean norm √Σ x² over one axis, or over all if `axis` is `None`. Divides by the largest magnitude
/// before it squares, so that squares do not overflow. `keep` leaves reduced axes with length 1. Where the norm is 0,
/// the gradient is 0.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn norm(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| {
        let peak = lane_peak(&x.abs()?)?;
        let unit = peak.eq(&peak.zeros_like()?)?.where_cond(&peak.ones_like()?, &peak)?;
        lanes.sum(&x.div(&lanes.spread(&unit)?)?.sqr()?)?.sqrt()?.mul(&unit)
    };
    reduce(budget, x, axis, keep, value, |lanes, x, y, grad| {
        let grad = where_or_zero(&y.ne(&y.zeros_like()?)?, grad)?;
        times(&lanes.spread(&grad)?.contiguous()?, &x.div(&lanes.spread(y)?)?)
    })
}

/// Counts the entries of a `u8` tensor that are not 0 over one axis, or over all if `axis` is `None`, as `f32`; `keep`
/// leaves reduced axes with length 1. No gradient.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not `u8`, and the error
/// of `budget` if the operation exceeds a memory, work or time limit.
pub fn count(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce_truth(budget, x, axis, keep, DType::F32, |lanes, x| lanes.count_nonzero(x)?.to_dtype(DType::F32))
}

/// Returns 1 if any entry of a `u8` tensor is not 0, else 0, over one axis, or over all if `axis` is `None`, as `u8`;
/// `keep` leaves reduced axes with length 1. No gradient.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not `u8`, and the error
/// of `budget` if the operation exceeds a memory, work or time limit.
pub fn any(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce_truth(budget, x, axis, keep, DType::U8, |lanes, x| lanes.count_nonzero(x)?.ne(0_u32))
}

/// Returns 1 if no entry of a `u8` tensor is 0, else 0, over one axis, or over all if `axis` is `None`, as `u8`; `keep`
/// leaves reduced axes with length 1. No gradient.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not `u8`, and the error
/// of `budget` if the operation exceeds a memory, work or time limit.
pub fn all(budget: &mut dyn Meter, x: &Tensor, axis: Option<i32>, keep: bool) -> Result<Output> {
    reduce_truth(budget, x, axis, keep, DType::U8, |lanes, x| lanes.count_nonzero(&x.eq(&x.zeros_like()?)?)?.eq(0_u32))
}

/// Reduces a `u8` tensor over one axis, or over all if `axis` is `None`; `keep` leaves reduced axes with length 1.
/// `value` gets the tensor as `[outer, length, inner]` and returns `[outer, 1, inner]` of type `dtype`. No gradient.
/// [`crate::Error::Dtype`] if x is not `u8`.
fn reduce_truth(
    budget: &mut dyn Meter,
    x: &Tensor,
    axis: Option<i32>,
    keep: bool,
    dtype: DType,
    value: fn(&Lanes, &Tensor) -> CandleResult<Tensor>,
) -> Result<Output> {
    check::expect_dtype(x, DType::U8, "the operand")?;
    let lanes = Lanes::over(x, axis)?;
    let dims = lanes.reduced(keep);
    Estimate::new(Kind::Truth, &dims, dtype, &[x])?
        .run_within_budget(budget, || Ok(value(&lanes, &lanes.view(x)?)?.reshape(dims.as_slice())?))
}

/// Checks that x is floating-point, charges `budget`, computes `value` along an axis, and records the gradient in the
/// autograd graph. `value` gets x and returns the result, in the shape of x. `gradient_of` gets the result and the
/// result's gradient and returns the gradient of x. All are `[outer, length, inner]` in at least 32 bits; the result is
/// rounded to the type of x.
fn scan(
    budget: &mut dyn Meter,
    x: &Tensor,
    axis: i32,
    value: fn(&Lanes, &Tensor) -> CandleResult<Tensor>,
    gradient_of: fn(&Lanes, &Tensor, &Tensor) -> CandleResult<Tensor>,
) -> Result<Output> {
    check::expect_float(x)?;
    let lanes = Lanes::along(x, axis)?;
    let estimate = Estimate::new(Kind::Scan, x.dims(), x.dtype(), &[x])?.measured(lanes.numbers_times_doublings());
    estimate.run_within_budget(budget, || {
        let value = value(&lanes, &lanes.view(x)?)?.reshape(lanes.dims())?;
        derive(x, x.dtype(), &value, move |_, y, grad| {
            gradient_of(&lanes, &lanes.view(y)?, &lanes.view(grad)?)?.reshape(lanes.dims())
        })
    })
}

/// Returns the running sums along an axis: entry i of the result is the sum of entries 0 … i. Computes them in log₂ n
/// sweeps (Hillis and Steele), in an order of additions that does not depend on the device.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn cumsum(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    // The gradient of an entry is the sum of all gradients from it on: the same sums, from the end.
    scan(budget, x, axis, |lanes, x| running_sums(lanes, x, false), |lanes, _, grad| running_sums(lanes, grad, true))
}

/// Returns the running sums of each lane, `[outer, length, inner]`: entry i is the sum of entries 0 … i, or of entries
/// i … length − 1 if `backwards`. Sweep k adds to each entry the one 2ᵏ places before it (after it if `backwards`).
fn running_sums(lanes: &Lanes, x: &Tensor, backwards: bool) -> CandleResult<Tensor> {
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

/// Returns the softmax along an axis, without overflow. NaN where all entries along the axis are −∞.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn softmax(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| {
        let powers = x.sub(&lanes.spread(&lane_peak(x)?)?)?.exp()?;
        powers.div(&lanes.spread(&lanes.sum(&powers)?)?)
    };
    scan(budget, x, axis, value, |lanes, y, grad| {
        let mean = lanes.sum(&grad.mul(y)?)?;
        y.mul(&grad.sub(&lanes.spread(&mean)?)?)
    })
}

/// Returns the logarithm of the softmax along an axis, without overflow. NaN where all entries along the axis are −∞.
///
/// # Errors
/// [`crate::Error::Argument`] for an axis that does not exist, [`crate::Error::Dtype`] if x is not floating-point, and
/// the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn log_softmax(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    let value = |lanes: &Lanes, x: &Tensor| x.sub(&lanes.spread(&lane_log_sum_exp(lanes, x)?)?);
    scan(budget, x, axis, value, |lanes, y, grad| grad.sub(&y.exp()?.mul(&lanes.spread(&lanes.sum(grad)?)?)?))
}
