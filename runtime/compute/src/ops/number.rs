//! Arithmetic that several operations share. All of it is outside the autograd graph. Functions fail only as candle
//! does.

use candle_core::{DType, Tensor};

use super::graph::CandleResult;

/// Returns `gradient` · `slope`, and exactly 0 where the gradient is 0, even if the slope is NaN or infinite.
pub(super) fn times(gradient: &Tensor, slope: &Tensor) -> CandleResult<Tensor> {
    let zero = gradient.zeros_like()?;
    gradient.eq(&zero)?.where_cond(&zero, &gradient.mul(slope)?)
}

/// Returns 1 where x is NaN and 0 elsewhere, as `u8`. Integers are never NaN.
pub(super) fn is_nan(x: &Tensor) -> CandleResult<Tensor> {
    x.ne(x)
}

/// Returns 1 where x is neither NaN nor infinite and 0 elsewhere, as `u8`. Integers are always finite.
pub(super) fn is_finite(x: &Tensor) -> CandleResult<Tensor> {
    if x.dtype().is_int() {
        return Tensor::ones(x.dims(), DType::U8, x.device());
    }
    x.sub(x)?.eq(&x.zeros_like()?)
}

/// Returns `a` where the condition (`u8`) is not 0, and 0 elsewhere.
pub(super) fn where_or_zero(condition: &Tensor, a: &Tensor) -> CandleResult<Tensor> {
    condition.where_cond(a, &a.zeros_like()?)
}

/// Returns x with every NaN replaced by 0.
pub(super) fn nan_as_zero(x: &Tensor) -> CandleResult<Tensor> {
    where_or_zero(&x.eq(x)?, x)
}

/// Returns a tensor in the shape and type of `like`, on its device, of which every element is `value`, first rounded to
/// `dtype`. The result is a broadcast view of one element.
pub(super) fn full_like(like: &Tensor, value: f64, dtype: DType) -> CandleResult<Tensor> {
    let value = Tensor::new(value, &candle_core::Device::Cpu)?.to_dtype(dtype)?.to_dtype(like.dtype())?;
    value.to_device(like.device())?.broadcast_as(like.shape())
}

/// Returns log(1 + x), accurate near 0: x / (u − 1) · log(u) with u = 1 + x as rounded, because the error of rounding u
/// cancels in the quotient (Kahan). Returns x itself where u is rounded to 1 and where x is ∞.
pub(super) fn log1p(x: &Tensor) -> CandleResult<Tensor> {
    let u = x.affine(1., 1.)?;
    let rounded = u.affine(1., -1.)?;
    let exact = x.div(&rounded)?.mul(&u.log()?)?;
    let tiny = rounded.eq(&x.zeros_like()?)?;
    // An infinite x gives ∞ / ∞ · ∞ above; x itself is the answer there as well.
    let infinite = x.eq(&full_like(x, f64::INFINITY, x.dtype())?)?;
    let same = tiny.add(&infinite)?;
    same.where_cond(x, &exact)
}

/// Returns eˣ − 1, accurate near 0: (u − 1) · x / log(u) with u = eˣ as rounded (Kahan). Returns u − 1 where |x| ≥ 1,
/// and x where u is rounded to 1.
pub(super) fn expm1(x: &Tensor) -> CandleResult<Tensor> {
    let u = x.exp()?;
    let less = u.affine(1., -1.)?;
    let exact = less.mul(x)?.div(&u.log()?)?;
    // Far from 0 nothing cancels, and the quotient above would be 0/0 or ∞/∞.
    let far = x.abs()?.ge(&x.ones_like()?)?;
    let tiny = less.eq(&x.zeros_like()?)?;
    far.where_cond(&less, &tiny.where_cond(x, &exact)?)
}

/// Returns the logistic function 1 / (1 + e⁻ˣ). Where e⁻ˣ overflows the quotient is 0, which is the limit.
pub(super) fn sigmoid(x: &Tensor) -> CandleResult<Tensor> {
    x.neg()?.exp()?.affine(1., 1.)?.recip()
}

/// Returns log(1 + eˣ) without overflow, as max(x, 0) + log(1 + e^−|x|).
pub(super) fn softplus(x: &Tensor) -> CandleResult<Tensor> {
    positive_part(x)?.add(&log1p(&x.abs()?.neg()?.exp()?)?)
}

/// Returns max(x, 0); NaN stays NaN.
pub(super) fn positive_part(x: &Tensor) -> CandleResult<Tensor> {
    let zero = x.zeros_like()?;
    x.le(&zero)?.where_cond(&zero, x)
}

/// Returns the nearest whole number, of two as near the even one. NaN and infinities stay.
pub(super) fn round_half_to_even(x: &Tensor) -> CandleResult<Tensor> {
    // The tensor library rounds halves away from 0. Half of such an x is a quarter off, so twice its rounded half is
    // even.
    let half = x.affine(0.5, 0.)?.round()?;
    let is_tie = x.sub(&x.floor()?)?.eq(&full_like(x, 0.5, x.dtype())?)?;
    is_tie.where_cond(&half.add(&half)?, &x.round()?)
}
