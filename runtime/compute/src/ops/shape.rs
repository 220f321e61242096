//! Operations that change the shape of a tensor or join tensors, and compute no number. Most results are views that
//! share the memory of their operand; the gradient is the inverse operation.

use candle_core::Tensor;

use super::graph::{GradFn, Gradients, Value, derive, slice_backward, sum_to, view_backward, wide};
use super::{Estimate, Kind, MAX_PARTS, Meter, Output, check};
use crate::error::{Error, Result, ensure};

/// Returns the entries `start` … `start + length − 1` of an axis; a view.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, a length of 0, or a range that leaves the axis.
pub fn slice(x: &Tensor, axis: i32, start: u32, length: u32) -> Result<Output> {
    let axis = check::axis(x, axis)?;
    let (start, length, held) = (start as usize, length as usize, check::length(x.dims(), axis));
    if length == 0 || start.checked_add(length).is_none_or(|end| end > held) {
        return Err(Error::argument(format!("{length} entries from {start} on of an axis that is {held} long")));
    }
    Ok(Output::view(x.narrow(axis, start, length)?, || slice_backward(x, axis, start)))
}

/// Cuts an axis into `count` parts of equal length, at most [`MAX_PARTS`]; each is a view.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist or a `count` of 0 or too large, [`Error::Shape`] if `count` does
/// not divide the axis.
pub fn chunk(x: &Tensor, axis: i32, count: u32) -> Result<Vec<Output>> {
    let axis = check::axis(x, axis)?;
    let (count, held) = (count as usize, check::length(x.dims(), axis));
    let outside = || Error::argument(format!("{count} parts, 1 to {MAX_PARTS} are allowed"));
    ensure((1..=MAX_PARTS).contains(&count), outside)?;
    let uneven = || Error::shape(format!("axis {axis} is {held} long, {count} parts of equal length do not fit"));
    ensure(held.is_multiple_of(count), uneven)?;
    let length = held / count;
    let part = |start| Ok(Output::view(x.narrow(axis, start, length)?, || slice_backward(x, axis, start)));
    (0..count).map(|number| part(number * length)).collect()
}

/// Returns the elements, in row-major order, in another shape: a view if x is contiguous, else a copy.
///
/// # Errors
/// [`Error::Shape`] if the shape is not allowed or has another number of elements than x, and the error of `budget` if
/// the operation exceeds a memory, work or time limit.
pub fn reshape(budget: &mut dyn Meter, x: &Tensor, shape: &[u32]) -> Result<Output> {
    let dims = check::shape(shape)?;
    let differ = || Error::shape(format!("{:?} cannot become {dims:?}: another number of elements", x.dims()));
    ensure(check::elements(&dims)? == x.elem_count() as u64, differ)?;
    let backward = || view_backward(x, |x, grad| grad.reshape(x.dims()));
    if x.is_contiguous() {
        return Ok(Output::view(x.reshape(dims)?, backward));
    }
    Estimate::new(Kind::Move, &dims, x.dtype(), &[x])?.run_within_budget(budget, || {
        let tensor = x.reshape(dims)?;
        Ok(Value { grad_fn: tensor.track_op().then(backward), tensor })
    })
}

/// Exchanges two axes; a view.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist.
pub fn transpose(x: &Tensor, first: i32, second: i32) -> Result<Output> {
    let (first, second) = (check::axis(x, first)?, check::axis(x, second)?);
    let backward = || view_backward(x, move |_, grad| grad.transpose(first, second));
    Ok(Output::view(x.transpose(first, second)?, backward))
}

/// Inserts an axis of length 1, which is `axis` of the result; a view.
///
/// # Errors
/// [`Error::Argument`] for an axis that the result does not have, [`Error::Shape`] past [`MAX_RANK`] axes.
pub fn unsqueeze(x: &Tensor, axis: i32) -> Result<Output> {
    check::expect_rank(x.rank() + 1)?;
    let backward = || view_backward(x, |x, grad| grad.reshape(x.dims()));
    Ok(Output::view(x.unsqueeze(check::axis_of(x.rank() + 1, axis)?)?, backward))
}

/// Removes an axis of length 1; a view.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, [`Error::Shape`] if it is longer than 1.
pub fn squeeze(x: &Tensor, axis: i32) -> Result<Output> {
    let axis = check::axis(x, axis)?;
    let long = || Error::shape(format!("axis {axis} of {:?} is not 1 long", x.dims()));
    ensure(check::length(x.dims(), axis) == 1, long)?;
    Ok(Output::view(x.squeeze(axis)?, || view_backward(x, |x, grad| grad.reshape(x.dims()))))
}

/// Broadcasts x to a larger shape; a view that costs nothing until it is used.
///
/// # Errors
/// [`Error::Shape`] if the shape is not allowed or x cannot be broadcast to it.
pub fn expand(x: &Tensor, shape: &[u32]) -> Result<Output> {
    let dims = check::shape(shape)?;
    let differ = || Error::shape(format!("{:?} cannot be repeated to {dims:?}", x.dims()));
    ensure(check::broadcast(x.dims(), &dims)? == dims, differ)?;
    Ok(Output::view(x.broadcast_as(dims)?, || view_backward(x, |x, grad| sum_to(grad, x.dims()))))
}

/// Shifts the entries of an axis by `shift` towards its end, or its start if negative; entries that leave one end come
/// in at the other.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn roll(budget: &mut dyn Meter, x: &Tensor, axis: i32, shift: i32) -> Result<Output> {
    let axis = check::axis(x, axis)?;
    // An axis is below 2³¹, so both numbers fit.
    let length = check::length(x.dims(), axis) as i32;
    let shift = shift.rem_euclid(length);
    Estimate::new(Kind::Move, x.dims(), x.dtype(), &[x])?.run_within_budget(budget, || {
        let value = wide(x)?.roll(shift, axis)?;
        derive(x, x.dtype(), &value, move |_, _, grad| grad.roll(length - shift, axis))
    })
}

/// Reverses the entries of an axis.
///
/// # Errors
/// [`Error::Argument`] for an axis that does not exist, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn flip(budget: &mut dyn Meter, x: &Tensor, axis: i32) -> Result<Output> {
    let axis = check::axis(x, axis)?;
    Estimate::new(Kind::Move, x.dims(), x.dtype(), &[x])?.run_within_budget(budget, || {
        let value = wide(x)?.flip(&[axis])?;
        derive(x, x.dtype(), &value, move |_, _, grad| grad.flip(&[axis]))
    })
}

/// Joins tensors of one type end to end along an existing axis; at most [`MAX_PARTS`].
///
/// # Errors
/// [`Error::Argument`] for no tensors, too many, or an axis that does not exist, [`Error::Shape`] if they differ on
/// another axis, [`Error::Dtype`] if their types differ, and the error of `budget` if the operation exceeds a memory,
/// work or time limit.
pub fn concat(budget: &mut dyn Meter, tensors: &[&Tensor], axis: i32) -> Result<Output> {
    let (first, others) = split_operands(tensors)?;
    let axis = check::axis(first, axis)?;
    let mut length = check::length(first.dims(), axis);
    for other in others {
        check::same_type(first, other)?;
        check::same_but(first, other, axis, "an operand")?;
        length = length.saturating_add(check::length(other.dims(), axis));
    }
    let dims = check::resize_axis(first.dims(), axis, length);
    Estimate::new(Kind::Join, &dims, first.dtype(), tensors)?.saved(copied_bytes(tensors)).run_within_budget(
        budget,
        || {
            let parts = tensors.iter().map(|tensor| tensor.contiguous()).collect::<candle_core::Result<Vec<_>>>()?;
            Ok(with_join_backward(tensors, Tensor::cat(&parts, axis)?, axis))
        },
    )
}

/// Joins tensors of one shape and type along a new axis, which is `axis` of the result; at most [`MAX_PARTS`].
///
/// # Errors
/// [`Error::Argument`] for no tensors, too many, or an axis that does not exist, [`Error::Shape`] if their shapes
/// differ or the result has more than [`MAX_RANK`] axes, [`Error::Dtype`] if their types differ, and the error of
/// `budget` if the operation exceeds a memory, work or time limit.
pub fn stack(budget: &mut dyn Meter, tensors: &[&Tensor], axis: i32) -> Result<Output> {
    let (first, others) = split_operands(tensors)?;
    check::expect_rank(first.rank() + 1)?;
    let axis = check::axis_of(first.rank() + 1, axis)?;
    for other in others {
        check::same_type(first, other)?;
        let differ = || Error::shape(format!("{:?} and {:?} differ", first.dims(), other.dims()));
        ensure(other.dims() == first.dims(), differ)?;
    }
    let mut dims = first.dims().to_vec();
    dims.insert(axis, tensors.len());
    Estimate::new(Kind::Join, &dims, first.dtype(), tensors)?.saved(copied_bytes(tensors)).run_within_budget(
        budget,
        || {
            let lift = |tensor: &&Tensor| tensor.contiguous()?.unsqueeze(axis);
            let parts = tensors.iter().map(lift).collect::<candle_core::Result<Vec<_>>>()?;
            Ok(with_join_backward(tensors, Tensor::cat(&parts, axis)?, axis))
        },
    )
}

/// Attaches a backward function to `tensor`, which [`concat`] or [`stack`] joined from `parts` along `axis`: it cuts
/// the gradient of `tensor` along `axis` into the gradients of `parts`. Attaches none if `tensor` is in no graph.
fn with_join_backward(parts: &[&Tensor], tensor: Tensor, axis: usize) -> Value {
    let backward = move |parts: &[Tensor], y: &Tensor, grad: &Tensor, sums: &mut Gradients| {
        let mut start = 0;
        for part in parts {
            // The parts of a stack lack the axis: each is one entry of it.
            let length = if part.rank() < y.rank() { 1 } else { check::length(part.dims(), axis) };
            sums.add(part, &grad.narrow(axis, start, length)?.reshape(part.dims())?)?;
            start += length;
        }
        Ok(())
    };
    Value { grad_fn: tensor.track_op().then(|| GradFn::new(parts, backward)), tensor }
}

/// Returns the bytes of the elements of those tensors that are not contiguous. A join copies each of them first, and
/// the autograd graph keeps the copy.
fn copied_bytes(tensors: &[&Tensor]) -> u64 {
    let scattered = tensors.iter().filter(|tensor| !tensor.is_contiguous());
    scattered.map(|tensor| tensor.elem_count() as u64 * tensor.dtype().size_in_bytes() as u64).sum()
}

/// Splits a list of tensors into (first, others). [`Error::Argument`] for no tensors or more than [`MAX_PARTS`].
fn split_operands<'t, 'a>(tensors: &'t [&'a Tensor]) -> Result<(&'a Tensor, &'t [&'a Tensor])> {
    match tensors.split_first() {
        Some((first, others)) if tensors.len() <= MAX_PARTS => Ok((first, others)),
        Some(_) => Err(Error::argument(format!("{} tensors, {MAX_PARTS} are allowed", tensors.len()))),
        None => Err(Error::argument("no tensors")),
    }
}
