//! Checks of arguments before candle sees them: shapes, axes, ranges, element types, scalars.
//!
//! candle multiplies dimensions without looking (4 elements "fit" [4, 2147418113, 2147549185]) and
//! its device kernels do not check indices, so no untrusted argument bypasses this file.

use candle_core::{DType, Tensor};

use crate::error::{Error, Result, ensure};

/// The most axes of a tensor.
pub const MAX_RANK: usize = 8;
/// The most elements of a tensor.
pub const MAX_ELEMENTS: u64 = i32::MAX as u64;
/// The most tensors that one operation joins, or parts into which it cuts a tensor.
pub const MAX_PARTS: usize = 1024;

/// Returns [`Error::Shape`] if `axes`, a number of axes, is above [`MAX_RANK`].
pub(super) fn expect_rank(axes: usize) -> Result<()> {
    ensure(axes <= MAX_RANK, || Error::shape(format!("a shape of {axes} axes, {MAX_RANK} are allowed")))
}

/// Checks a shape and returns its number of elements.
///
/// # Errors
/// [`Error::Shape`] for more than [`MAX_RANK`] axes, an axis of length 0, or more than [`MAX_ELEMENTS`] elements.
pub(super) fn elements(dims: &[usize]) -> Result<u64> {
    expect_rank(dims.len())?;
    if let Some(axis) = dims.iter().position(|length| *length == 0) {
        return Err(Error::shape(format!("axis {axis} of {dims:?} is 0 long, every axis is at least 1")));
    }
    let count = dims.iter().try_fold(1_u64, |count, length| count.checked_mul(*length as u64));
    count
        .filter(|count| *count <= MAX_ELEMENTS)
        .ok_or_else(|| Error::shape(format!("{dims:?} has more than {MAX_ELEMENTS} elements")))
}

/// Converts a shape to `usize`. [`Error::Shape`] for more than [`MAX_RANK`] axes, an axis of length 0, or more than
/// [`MAX_ELEMENTS`] elements.
pub(super) fn shape(dims: &[u32]) -> Result<Vec<usize>> {
    expect_rank(dims.len())?;
    let dims: Vec<usize> = dims.iter().map(|length| *length as usize).collect();
    elements(&dims)?;
    Ok(dims)
}

/// Converts an axis, counted from the end if negative, to an index below `rank`. [`Error::Argument`] if there is no
/// such axis.
pub(super) fn axis_of(rank: usize, axis: i32) -> Result<usize> {
    let from_start = if axis < 0 { i64::from(axis) + rank as i64 } else { i64::from(axis) };
    usize::try_from(from_start)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| Error::argument(format!("axis {axis} of a tensor with {rank} axes")))
}

/// Converts an axis of a tensor, counted from the end if negative, to an index. [`Error::Argument`] if there is no such
/// axis.
pub(super) fn axis(tensor: &Tensor, axis: i32) -> Result<usize> {
    axis_of(tensor.rank(), axis)
}

/// The length of an axis; 1 if the shape has no such axis, as in broadcasting.
pub(super) fn length(dims: &[usize], axis: usize) -> usize {
    dims.get(axis).copied().unwrap_or(1)
}

/// Returns a copy of `dims` in which `axis` has the length `length`.
pub(super) fn resize_axis(dims: &[usize], axis: usize, length: usize) -> Vec<usize> {
    dims.iter().enumerate().map(|(place, held)| if place == axis { length } else { *held }).collect()
}

/// Returns [`Error::Shape`] unless two tensors have the same number of axes and the same lengths on all of them but
/// `axis`. `role` names the second tensor in the error.
pub(super) fn same_but(x: &Tensor, other: &Tensor, axis: usize, role: &str) -> Result<()> {
    let (x, other) = (x.dims(), other.dims());
    let is_same = |(at, (a, b)): (usize, (&usize, &usize))| at == axis || a == b;
    let same = x.len() == other.len() && x.iter().zip(other).enumerate().all(is_same);
    ensure(same, || Error::shape(format!("{role} is {other:?} for {x:?}: they may differ on axis {axis} only")))
}

/// Returns [`Error::Dtype`] unless a tensor is f32, f64, f16 or bf16.
pub(super) fn expect_float(tensor: &Tensor) -> Result<()> {
    let dtype = tensor.dtype();
    let other = || Error::dtype(format!("`{}` where floating-point numbers are needed; `cast` first", name(dtype)));
    ensure(matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16), other)
}

/// Returns [`Error::Dtype`] unless a tensor has the element type `dtype`. `role` names the tensor in the error.
pub(super) fn expect_dtype(tensor: &Tensor, dtype: DType, role: &str) -> Result<()> {
    let (held, wanted) = (name(tensor.dtype()), name(dtype));
    ensure(held == wanted, || Error::dtype(format!("{role} is `{held}`, not `{wanted}`")))
}

/// Returns [`Error::Dtype`] unless two tensors have one element type.
pub(super) fn same_type(a: &Tensor, b: &Tensor) -> Result<()> {
    let (a, b) = (name(a.dtype()), name(b.dtype()));
    ensure(a == b, || Error::dtype(format!("`{a}` and `{b}` cannot be combined; `cast` one of them first")))
}

/// Returns the common shape of two shapes by NumPy's broadcasting rule. [`Error::Shape`] if they cannot be broadcast,
/// or the result is not allowed.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let length = |dims: &[usize], axis: usize| {
        (axis + dims.len()).checked_sub(rank).map_or(1, |place| self::length(dims, place))
    };
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        match (length(a, axis), length(b, axis)) {
            (left, right) if left == right || right == 1 => dims.push(left),
            (1, right) => dims.push(right),
            (left, right) => {
                let why = format!("axis {axis} differs: {left} and {right}");
                return Err(Error::shape(format!("{a:?} cannot be combined with {b:?}, {why}")));
            }
        }
    }
    elements(&dims)?;
    Ok(dims)
}

/// Returns [`Error::Argument`] if a scalar argument is NaN or infinite. `role` names the argument in the error.
pub(super) fn expect_finite(value: f64, role: &str) -> Result<()> {
    ensure(value.is_finite(), || Error::argument(format!("`{role}` is {value}, which is not finite")))
}

/// Returns an index tensor outside the graph and contiguous, after checking that it is `u32` ([`Error::Dtype`]) and
/// every index is below `bound` ([`Error::Argument`]). Copies a tensor that is not contiguous; the caller must have
/// charged the copy. Waits for the device.
pub(super) fn check_indices(index: &Tensor, bound: usize) -> Result<Tensor> {
    expect_dtype(index, DType::U32, "the index")?;
    let index = index.detach().contiguous()?;
    // A new shape has strides of its own: a lone entry that was repeated keeps a stride of 0, which candle divides by.
    let largest = index.reshape(index.elem_count())?.max(0)?.to_scalar::<u32>()?;
    let beyond = || Error::argument(format!("index {largest} is out of range, the axis is {bound} long"));
    ensure((largest as usize) < bound, beyond)?;
    Ok(index)
}

/// The name of an element type in the WIT interface: `s64` for i64, else candle's.
pub(super) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::I64 => "s64",
        other => other.as_str(),
    }
}
