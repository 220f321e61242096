//! Several tensors in one.

use candle_core::Tensor;

use super::graph::{GradFn, Gradients, Value};
use super::{Estimate, Kind, MAX_PARTS, Meter, Output, check};
use crate::error::{Error, Result, ensure};

/// Joins tensors of one type end to end along an existing axis; at most [`MAX_PARTS`].
///
/// # Errors
/// [`Error::Argument`] for no tensors, too many, or an axis that is not there, [`Error::Shape`] if they differ on
/// another axis, [`Error::Dtype`] if their types differ, and what `budget` refuses.
pub fn concat(budget: &mut dyn Meter, tensors: &[&Tensor], axis: i32) -> Result<Output> {
    let (first, others) = first_of(tensors)?;
    let axis = check::axis(first, axis)?;
    let mut length = check::length(first.dims(), axis);
    for other in others {
        check::same_type(first, other)?;
        check::same_but(first, other, axis, "an operand")?;
        length = length.saturating_add(check::length(other.dims(), axis));
    }
    let dims = check::resized(first.dims(), axis, length);
    Estimate::new(Kind::Join, &dims, first.dtype(), tensors)?.saved(copies(tensors)).pay(budget, || {
        let parts = tensors.iter().map(|tensor| tensor.contiguous()).collect::<candle_core::Result<Vec<_>>>()?;
        Ok(joined(tensors, Tensor::cat(&parts, axis)?, axis))
    })
}

/// Joins tensors of one shape and type along a new axis, which is `axis` of the result; at most [`MAX_PARTS`].
///
/// # Errors
/// [`Error::Argument`] for no tensors, too many, or an axis that is not there, [`Error::Shape`] if their shapes differ
/// or the result has more than [`MAX_RANK`] axes, [`Error::Dtype`] if their types differ, and what `budget` refuses.
pub fn stack(budget: &mut dyn Meter, tensors: &[&Tensor], axis: i32) -> Result<Output> {
    let (first, others) = first_of(tensors)?;
    check::rank(first.rank() + 1)?;
    let axis = check::axis_of(first.rank() + 1, axis)?;
    for other in others {
        check::same_type(first, other)?;
        let differ = || Error::shape(format!("{:?} and {:?} differ", first.dims(), other.dims()));
        ensure(other.dims() == first.dims(), differ)?;
    }
    let mut dims = first.dims().to_vec();
    dims.insert(axis, tensors.len());
    Estimate::new(Kind::Join, &dims, first.dtype(), tensors)?.saved(copies(tensors)).pay(budget, || {
        let lift = |tensor: &&Tensor| tensor.contiguous()?.unsqueeze(axis);
        let parts = tensors.iter().map(lift).collect::<candle_core::Result<Vec<_>>>()?;
        Ok(joined(tensors, Tensor::cat(&parts, axis)?, axis))
    })
}

/// Adds the way of a gradient back from the joined tensor to its parts, which lie along `axis` one after another.
fn joined(parts: &[&Tensor], tensor: Tensor, axis: usize) -> Value {
    let way = move |parts: &[Tensor], y: &Tensor, grad: &Tensor, sums: &mut Gradients| {
        let mut start = 0;
        for part in parts {
            // The parts of a stack lack the axis: each is one entry of it.
            let length = if part.rank() < y.rank() { 1 } else { check::length(part.dims(), axis) };
            sums.add(part, &grad.narrow(axis, start, length)?.reshape(part.dims())?)?;
            start += length;
        }
        Ok(())
    };
    Value { grad_fn: tensor.track_op().then(|| GradFn::new(parts, way)), tensor }
}

/// Bytes of the operands that are not contiguous: each is copied first, and the autograd graph keeps the copy.
fn copies(tensors: &[&Tensor]) -> u64 {
    let scattered = tensors.iter().filter(|tensor| !tensor.is_contiguous());
    scattered.map(|tensor| tensor.elem_count() as u64 * tensor.dtype().size_in_bytes() as u64).sum()
}

/// Splits a list of tensors into (first, others). [`Error::Argument`] for no tensors or more than [`MAX_PARTS`].
fn first_of<'t, 'a>(tensors: &'t [&'a Tensor]) -> Result<(&'a Tensor, &'t [&'a Tensor])> {
    match tensors.split_first() {
        Some((first, others)) if tensors.len() <= MAX_PARTS => Ok((first, others)),
        Some(_) => Err(Error::argument(format!("{} tensors, {MAX_PARTS} are allowed", tensors.len()))),
        None => Err(Error::argument("no tensors")),
    }
}
