//! Reads and adds at the indices in another tensor. Every index is checked before candle sees it, because its device
//! kernels do not check.

use candle_core::{DType, Tensor};

use super::graph::{derive, derive_pair, wide};
use super::lanes::Lanes;
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::{Error, Result, ensure};

/// Returns the entries of x at the indices along an axis: out[i][j] = x[index[i][j]][j] for axis 0, and so on for other
/// axes. `index` (`u32`) has the shape of x apart from that axis. Takes any element type. Gradients of an entry that is
/// read several times add up.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist or an index out of range, [`Error::Shape`] if the other axes
/// differ, [`Error::Dtype`] if `index` is not `u32`, and the error of `budget` if the operation exceeds a memory, work
/// or time limit.
pub fn gather(budget: &mut dyn Meter, x: &Tensor, axis: i32, index: &Tensor) -> Result<Output> {
    check::expect_dtype(index, DType::U32, "the index")?;
    let axis = check::axis(x, axis)?;
    check::same_but(x, index, axis, "the index")?;
    let index = &index.detach();
    let saved = index.elem_count() as u64 * 4;
    Estimate::new(Kind::Gather, index.dims(), x.dtype(), &[x, index])?.saved(saved).run_within_budget(budget, || {
        let index = check::check_indices(index, check::length(x.dims(), axis))?;
        let value = wide(x)?.gather(&index, axis)?;
        derive(x, x.dtype(), &value, move |x, _, grad| x.zeros_like()?.scatter_add(&index, grad, axis))
    })
}

/// Returns the entries of an axis whose indices `index` lists (`u32`, one axis), in that order. Indices may repeat;
/// gradients of a repeated entry add up. Takes any element type.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist or an index out of range, [`Error::Shape`] if `index` has not
/// one axis, [`Error::Dtype`] if it is not `u32`, and the error of `budget` if the operation exceeds a memory, work or
/// time limit.
pub fn index_select(budget: &mut dyn Meter, x: &Tensor, axis: i32, index: &Tensor) -> Result<Output> {
    let axis = check::axis(x, axis)?;
    check_one_axis(index, "the index")?;
    let dims = check::resize_axis(x.dims(), axis, index.elem_count());
    let index = &index.detach();
    let saved = index.elem_count() as u64 * 4;
    Estimate::new(Kind::Gather, &dims, x.dtype(), &[x, index])?.saved(saved).run_within_budget(budget, || {
        let index = check::check_indices(index, check::length(x.dims(), axis))?;
        let value = wide(x)?.index_select(&index, axis)?;
        derive(x, x.dtype(), &value, move |x, _, grad| x.zeros_like()?.index_add(&index, grad, axis))
    })
}

/// Returns a copy of x with entry i of `source` added to entry `index[i]` of the axis. `index` (`u32`) has one axis;
/// indices may repeat.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist or an index out of range, [`Error::Shape`] if `index` has not
/// one axis or `source` is not as long as `index` on the axis and as x on the others, [`Error::Dtype`] if x and
/// `source` are not floating-point of one type or `index` is not `u32`, and the error of `budget` if the operation
/// exceeds a memory, work or time limit.
pub fn index_add(budget: &mut dyn Meter, x: &Tensor, axis: i32, index: &Tensor, source: &Tensor) -> Result<Output> {
    check::expect_float(x)?;
    check::same_type(x, source)?;
    let axis = check::axis(x, axis)?;
    check_one_axis(index, "the index")?;
    check::same_but(x, source, axis, "the source")?;
    let (entries, places) = (check::length(source.dims(), axis), index.elem_count());
    let differ = || Error::shape(format!("axis {axis} of the source holds {entries} entries for {places} places"));
    ensure(entries == places, differ)?;
    let index = &index.detach();
    let saved = index.elem_count() as u64 * 4;
    Estimate::new(Kind::Scatter, x.dims(), x.dtype(), &[x, index, source])?.saved(saved).run_within_budget(
        budget,
        || {
            let index = check::check_indices(index, check::length(x.dims(), axis))?;
            let value = wide(x)?.index_add(&index, &wide(source)?, axis)?;
            let gradients = (
                |pair: &super::graph::Pair| Ok(pair.grad.clone()),
                move |pair: &super::graph::Pair| pair.grad.index_select(&index, axis),
            );
            derive_pair(x, source, x.dtype(), &value, gradients)
        },
    )
}

/// Sums the entries of axis 0 by segment: row s of the result, `[count, …]`, is the sum of all entries i with
/// `segments[i] = s`, and 0 if there is none. `segments` (`u32`) has one axis.
///
/// # Errors
/// [`Error::Shape`] if x has no axis or `segments` is not as long as its axis 0, [`Error::Dtype`] if x is not
/// floating-point or `segments` not `u32`, [`Error::Argument`] if `count` is 0 or a number in `segments` is not below
/// `count`, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn segment_sum(budget: &mut dyn Meter, x: &Tensor, segments: &Tensor, count: u32) -> Result<Output> {
    check::expect_float(x)?;
    check_one_axis(segments, "`segments`")?;
    let entries = x.dims().first().copied().ok_or_else(|| Error::shape("a scalar has no segments"))?;
    let differ = || Error::shape(format!("{} segments for {entries} entries", segments.elem_count()));
    ensure(segments.elem_count() == entries, differ)?;
    ensure(count > 0, || Error::argument("a sum into 0 segments"))?;
    let dims = Lanes::along(x, 0)?.with_length(count as usize);
    let segments = &segments.detach();
    let estimate = Estimate::new(Kind::Scatter, &dims, x.dtype(), &[x, segments])?.saved(entries as u64 * 4);
    estimate.run_within_budget(budget, || {
        let segments = check::check_indices(segments, count as usize)?;
        let x_wide = wide(x)?;
        let zeros = Tensor::zeros(dims.as_slice(), x_wide.dtype(), x.device())?;
        let value = zeros.index_add(&segments, &x_wide, 0)?;
        derive(x, x.dtype(), &value, move |_, _, grad| grad.index_select(&segments, 0))
    })
}

/// Returns [`Error::Dtype`] unless an index tensor is `u32`, and [`Error::Shape`] unless it has one axis. `role` names
/// the tensor in the error.
fn check_one_axis(index: &Tensor, role: &str) -> Result<()> {
    check::expect_dtype(index, DType::U32, role)?;
    ensure(index.rank() == 1, || Error::shape(format!("{role} has {} axes, one is needed", index.rank())))
}
