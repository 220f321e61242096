//! Sorting, the largest entries, and quantiles.
//!
//! The order is computed on the host, whatever the device: the sort is stable, puts NaN last, and has no size limit of
//! a kernel. Values and gradients are then moved on the device.

use std::cmp::Ordering;

use candle_core::{DType, Tensor};

use super::graph::{CandleResult, derive, wide};
use super::lanes::Lanes;
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::{Error, Result, ensure};

/// Sorts the entries along an axis, ascending or, if `descending`, descending. The sort is stable, and NaN comes last
/// in either direction. Takes any element type. Waits for the device.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn sort(budget: &mut dyn Meter, x: &Tensor, axis: i32, descending: bool) -> Result<Output> {
    let lanes = Lanes::along(x, axis)?;
    let count = lanes.length;
    sort_lanes(budget, x, lanes, descending, count)
}

/// Returns the `count` largest entries along an axis, largest first (`topk`); NaN counts as the smallest. Of equal
/// entries the one with the lower index comes first. Takes any element type. Waits for the device.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, or a `count` of 0 or above the axis length, and the error of
/// `budget` if the operation exceeds a memory, work or time limit.
pub fn topk(budget: &mut dyn Meter, x: &Tensor, axis: i32, count: u32) -> Result<Output> {
    let lanes = Lanes::along(x, axis)?;
    let count = count as usize;
    let outside = || Error::argument(format!("the {count} largest of {} entries", lanes.length));
    ensure((1..=lanes.length).contains(&count), outside)?;
    sort_lanes(budget, x, lanes, true, count)
}

/// Sorts each lane, stably and with NaN last, and returns its first `count` entries. The gradient of an entry goes back
/// to where the entry was; entries that are left out get 0. Waits for the device.
fn sort_lanes(budget: &mut dyn Meter, x: &Tensor, lanes: Lanes, descending: bool, count: usize) -> Result<Output> {
    let dims = lanes.with_length(count);
    let numbers = x.elem_count() as u64;
    let estimate =
        Estimate::new(Kind::Sort, &dims, x.dtype(), &[x])?.measured(lanes.numbers_times_doublings()).saved(numbers * 4);
    estimate.run_within_budget(budget, || {
        let places = places_in_order(&lanes, x, descending)?;
        let taken = places.narrow(1, 0, count)?.contiguous()?;
        let value = lanes.view(x)?.gather(&taken, 1)?.reshape(dims.as_slice())?;
        if !x.track_op() {
            return Ok(value.to_dtype(x.dtype())?.into());
        }
        let ranks = ranks_of(&lanes, &places)?;
        derive(x, x.dtype(), &value, move |_, _, grad| {
            let grad = grad.contiguous()?.reshape((lanes.outer, count, lanes.inner))?;
            let grad = grad.pad_with_zeros(1, 0, lanes.length - count)?.contiguous()?;
            grad.gather(&ranks, 1)?.reshape(lanes.dims())
        })
    })
}

/// Returns the indices that sort the entries along an axis, ascending or, if `descending`, descending, as `u32`. The
/// sort is stable, and NaN comes last in either direction. No gradient. Waits for the device.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn argsort(budget: &mut dyn Meter, x: &Tensor, axis: i32, descending: bool) -> Result<Output> {
    let x = x.detach();
    let lanes = Lanes::along(&x, axis)?;
    Estimate::new(Kind::Order, x.dims(), DType::U32, &[&x])?
        .measured(lanes.numbers_times_doublings())
        .run_within_budget(budget, || Ok(places_in_order(&lanes, &x, descending)?.reshape(lanes.dims())?))
}

/// Sorts each lane on the host, stably and with NaN last, and returns the indices of its entries in sorted order:
/// `[outer, length, inner]`, as `u32`, on the device of x. Waits for the device.
fn places_in_order(lanes: &Lanes, x: &Tensor, descending: bool) -> CandleResult<Tensor> {
    let rows = lanes.view(x)?.transpose(1, 2)?.contiguous()?.flatten_all()?;
    let places = if rows.dtype().is_float() {
        let numbers = rows.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        sorted_places(&numbers, lanes.length, |a, b| compare_nan_last(*a, *b, descending))
    } else {
        let numbers = rows.to_dtype(DType::I64)?.to_vec1::<i64>()?;
        sorted_places(&numbers, lanes.length, |a, b| if descending { b.cmp(a) } else { a.cmp(b) })
    };
    let places = Tensor::from_vec(places, (lanes.outer, lanes.inner, lanes.length), x.device())?;
    places.transpose(1, 2)?.contiguous()
}

/// Compares two numbers for sorting, with NaN after all others in either direction.
fn compare_nan_last(a: f64, b: f64, descending: bool) -> Ordering {
    let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    a.is_nan().cmp(&b.is_nan()).then(if descending { order.reverse() } else { order })
}

/// Sorts each row of `length` numbers by `order` and returns the indices, within the row, of its entries in sorted
/// order. The sort is stable.
fn sorted_places<T>(numbers: &[T], length: usize, order: impl Fn(&T, &T) -> Ordering) -> Vec<u32> {
    let mut places: Vec<u32> = Vec::with_capacity(numbers.len());
    for row in numbers.chunks(length) {
        let mut entries: Vec<(u32, &T)> = (0_u32..).zip(row).collect();
        entries.sort_by(|a, b| order(a.1, b.1));
        places.extend(entries.iter().map(|(place, _)| *place));
    }
    places
}

/// Inverts the indices of [`places_in_order`], on the host: returns for each entry its position in sorted order,
/// `[outer, length, inner]`, as `u32`. Waits for the device.
fn ranks_of(lanes: &Lanes, places: &Tensor) -> CandleResult<Tensor> {
    let rows = places.transpose(1, 2)?.contiguous()?.flatten_all()?.to_vec1::<u32>()?;
    let mut ranks = vec![0_u32; rows.len()];
    for (row, ranks) in rows.chunks(lanes.length).zip(ranks.chunks_mut(lanes.length)) {
        for (rank, place) in (0_u32..).zip(row) {
            if let Some(slot) = ranks.get_mut(*place as usize) {
                *slot = rank;
            }
        }
    }
    let ranks = Tensor::from_vec(ranks, (lanes.outer, lanes.inner, lanes.length), places.device())?;
    ranks.transpose(1, 2)?.contiguous()
}

/// Returns the `q` quantile of all entries, with linear interpolation between neighbors, as a scalar; NaN if an entry
/// is NaN. Has the type of x and no gradient. Sorts on the host, so it waits for the device.
///
/// # Errors
/// [`Error::Argument`] if `q` is not in 0 … 1, [`Error::Dtype`] if x is not floating-point, and the error of `budget`
/// if the operation exceeds a memory, work or time limit.
pub fn quantile(budget: &mut dyn Meter, x: &Tensor, q: f64) -> Result<Output> {
    check::expect_float(x)?;
    ensure((0. ..=1.).contains(&q), || Error::argument(format!("`q` is {q}, not between 0 and 1")))?;
    let x = x.detach();
    let work = Lanes::over(&x, None)?.numbers_times_doublings();
    Estimate::new(Kind::Order, &[], x.dtype(), &[&x])?.measured(work).run_within_budget(budget, || {
        let mut numbers = wide(&x)?.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let value =
            if numbers.iter().any(|number| number.is_nan()) { f64::NAN } else { interpolate_quantile(&mut numbers, q) };
        Ok(Tensor::new(value, &candle_core::Device::Cpu)?.to_dtype(x.dtype())?.to_device(x.device())?)
    })
}

/// Sorts the n numbers and returns the value at index q · (n − 1), by linear interpolation between neighbors. There
/// must be at least one number, and none may be NaN.
fn interpolate_quantile(numbers: &mut [f64], q: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let place = q * (numbers.len() - 1) as f64;
    let below = place.floor();
    let low = numbers.get(below as usize).copied().unwrap_or(f64::NAN);
    let high = numbers.get(below as usize + 1).copied().unwrap_or(low);
    // Without this case, infinite neighbors would give ∞ − ∞ or 0 · ∞, which is NaN.
    if place == below || low == high { low } else { low + (high - low) * (place - below) }
}
