//! Column operations on activations: split and join (where several projections share one matrix), scale, and sum.

use candle_core::{DType, Tensor};

use super::backend::accelerator_of;
use super::device::{expect_type, over_rows};
use super::host;
use super::linear::{add_bias, bias_gradient};
use super::norm::device_weight_gradient;
use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::{Error, Result};

/// Splits `joined`, `[rows, Σ widths]`, by columns into one contiguous matrix `[rows, width]` for each width, in order.
/// A width may be 0. Returns [`Error::Shape`] if the widths do not add up to the columns of `joined`.
pub fn split_columns(joined: &Tensor, widths: &[usize]) -> Result<Vec<Tensor>> {
    let (rows, _) = host::matrix_dims(joined, "joined")?;
    host::expect_shape(joined, "joined", &[rows, widths.iter().sum()])?;
    if let Some(device) = accelerator_of([(joined, "joined")])? {
        return split_on_device(&device, joined, widths);
    }
    let mut end = 0;
    let part = |width: &usize| {
        end += width;
        Ok(joined.narrow(1, end - width, *width)?.contiguous()?)
    };
    widths.iter().map(part).collect()
}

/// Joins matrices with the same number of rows and the same type side by side, in order. This is the backward pass of
/// [`split_columns`]. The result has the type of the first. Returns an error for an empty list, or if the matrices
/// differ in their rows, their type or their device.
pub fn concat_columns(parts: &[Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::shape("there are no columns to join")) };
    let (rows, _) = host::matrix_dims(first, "columns")?;
    for part in parts {
        let (_, width) = host::matrix_dims(part, "columns")?;
        host::expect_shape(part, "columns", &[rows, width])?;
        accelerator_of([(first, "the first columns"), (part, "others")])?;
    }
    match accelerator_of([(first, "columns")])? {
        None => Ok(Tensor::cat(parts, 1)?),
        Some(device) => concat_on_device(&device, parts, rows),
    }
}

/// Multiplies each column by its factor and adds its bias, if there is a bias: `x ⊙ factors + bias`. `x` is `[rows,
/// columns]`, `factors` and `bias` are `[columns]` f32. The result has the type of `x`. Returns an error if the shapes
/// or devices do not fit each other.
pub fn scale_columns(x: &Tensor, factors: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (rows, columns) = host::matrix_dims(x, "x")?;
    host::expect_shape(factors, "factors", &[columns])?;
    if let Some(bias) = bias {
        host::expect_shape(bias, "bias", &[columns])?;
        accelerator_of([(x, "x"), (bias, "bias")])?;
    }
    if let Some(device) = accelerator_of([(x, "x"), (factors, "factors")])? {
        let arguments = arguments![x, factors, rows, columns];
        let act = expect_type(x, "x")?;
        let y = device.compute(&kernel::SCALE_COLUMNS, act, over_rows(&device, rows), x.dims(), &arguments)?;
        bias.map_or(Ok(()), |bias| add_bias(&device, &y, bias))?;
        return Ok(y);
    }
    host::in_f32(x, |x| {
        let output = x.broadcast_mul(factors)?;
        bias.map_or(Ok(output.clone()), |bias| output.broadcast_add(bias))
    })
}

/// Computes the gradient of [`scale_columns`] with respect to its factors: the sum of `a ⊙ b` over the rows. `a` and
/// `b` are `[rows, columns]`; on an accelerator both are f32 or both bf16. Sums in f32 and in a fixed order. The result
/// is `[columns]` f32, zeros if there are no rows. Returns an error if the shapes or devices differ.
pub fn scale_columns_gradient(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (_, columns) = host::matrix_dims(a, "a")?;
    host::expect_shape(b, "b", a.dims())?;
    match accelerator_of([(a, "a"), (b, "b")])? {
        None => bias_gradient(&(a.to_dtype(DType::F32)? * b.to_dtype(DType::F32)?)?),
        Some(device) if columns == 0 => device.zeros(&[0], DType::F32),
        Some(device) => device_weight_gradient(&device, a, b, None, columns),
    }
}

/// Splits a matrix by columns into parts of these widths, in order, on a device. Queues one copy for each part that is
/// not empty. The caller has checked that the widths add up to the columns.
fn split_on_device(device: &Accelerator, joined: &Tensor, widths: &[usize]) -> Result<Vec<Tensor>> {
    let act = expect_type(joined, "joined")?;
    let (rows, columns) = host::matrix_dims(joined, "joined")?;
    let mut start = 0;
    let mut parts = Vec::with_capacity(widths.len());
    for width in widths {
        let part = device.empty(&[rows, *width], act)?;
        if part.elem_count() > 0 {
            copy(device, (&part, *width), (&numbers_from(joined, start)?, columns), [rows, *width])?;
        }
        parts.push(part);
        start += width;
    }
    Ok(parts)
}

/// Joins matrices of `rows` rows side by side, in order, on a device, in the type of the first. Queues one copy for
/// each part that is not empty. Fails if the types differ.
fn concat_on_device(device: &Accelerator, parts: &[Tensor], rows: usize) -> Result<Tensor> {
    let act = parts.first().map_or(Ok(DType::F32), |first| expect_type(first, "columns"))?;
    let columns = parts.iter().filter_map(|part| part.dims().last()).sum();
    let joined = device.empty(&[rows, columns], act)?;
    let mut start = 0;
    for part in parts {
        let (_, width) = host::matrix_dims(part, "columns")?;
        if part.elem_count() > 0 {
            copy(device, (&numbers_from(&joined, start)?, columns), (part, width), [rows, width])?;
        }
        start += width;
    }
    Ok(joined)
}

/// Returns a flat view of a matrix's numbers from `column` of its first row on. A kernel reaches the column's further
/// rows by the matrix's row stride.
fn numbers_from(matrix: &Tensor, column: usize) -> Result<Tensor> {
    let flat = matrix.flatten_all()?;
    Ok(flat.narrow(0, column, flat.elem_count() - column)?)
}

/// Queues copying `[rows, columns]` numbers of `from` into `to` on a device, both from their first number on. Both
/// tensors have one type, f32 or bf16. A stride is the distance between the starts of two rows, in numbers.
pub(super) fn copy(
    device: &Accelerator,
    (to, to_stride): (&Tensor, usize),
    (from, from_stride): (&Tensor, usize),
    [rows, columns]: [usize; 2],
) -> Result<()> {
    let [to_stride, from_stride] = [to_stride, from_stride].map(|stride| Argument::Long(stride as u64));
    let arguments = arguments![to, from, rows, columns, to_stride, from_stride];
    device.launch(&kernel::COPY_COLUMNS, to.dtype(), over_rows(device, rows), &arguments)
}

#[cfg(test)]
mod tests;
