//! Columns as launches.

use candle_core::{DType, Tensor};

use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::Result;
use crate::fused::device::{expect_type, over_rows};
use crate::fused::linear::device::add_bias;
use crate::fused::{host, norm};

/// Splits a matrix by columns into parts of these widths on a device, with one copy for each part.
pub(super) fn cut(device: &Accelerator, joined: &Tensor, widths: &[usize]) -> Result<Vec<Tensor>> {
    let act = expect_type(joined, "joined")?;
    let (rows, columns) = host::matrix(joined, "joined")?;
    let mut start = 0;
    let mut parts = Vec::with_capacity(widths.len());
    for width in widths {
        let part = device.empty(&[rows, *width], act)?;
        if part.elem_count() > 0 {
            copy(device, (&part, *width), (&from(joined, start)?, columns), [rows, *width])?;
        }
        parts.push(part);
        start += width;
    }
    Ok(parts)
}

/// Joins matrices of `rows` rows side by side on a device, with one copy for each part.
pub(super) fn join(device: &Accelerator, parts: &[Tensor], rows: usize) -> Result<Tensor> {
    let act = parts.first().map_or(Ok(DType::F32), |first| expect_type(first, "columns"))?;
    let columns = parts.iter().filter_map(|part| part.dims().last()).sum();
    let joined = device.empty(&[rows, columns], act)?;
    let mut start = 0;
    for part in parts {
        let (_, width) = host::matrix(part, "columns")?;
        if part.elem_count() > 0 {
            copy(device, (&from(&joined, start)?, columns), (part, width), [rows, width])?;
        }
        start += width;
    }
    Ok(joined)
}

/// Returns a flat view of a matrix's numbers from `column` of its first row on. A kernel reaches the column's further
/// rows by the matrix's row stride.
fn from(matrix: &Tensor, column: usize) -> Result<Tensor> {
    let flat = matrix.flatten_all()?;
    Ok(flat.narrow(0, column, flat.elem_count() - column)?)
}

/// Copies `[rows, columns]` numbers between two tensors of one type. A stride is the distance of two row starts in
/// numbers.
pub(in crate::fused) fn copy(
    device: &Accelerator,
    (to, to_stride): (&Tensor, usize),
    (from, from_stride): (&Tensor, usize),
    [rows, columns]: [usize; 2],
) -> Result<()> {
    let [to_stride, from_stride] = [to_stride, from_stride].map(|stride| Argument::Long(stride as u64));
    let arguments = arguments![to, from, rows, columns, to_stride, from_stride];
    device.launch(&kernel::COPY_COLUMNS, to.dtype(), over_rows(device, rows), &arguments)
}

/// Computes `x ⊙ factors + bias` for each column on a device, in the type of `x`.
pub(super) fn scale(device: &Accelerator, x: &Tensor, factors: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    let (rows, columns) = host::matrix(x, "x")?;
    let arguments = arguments![x, factors, rows, columns];
    let y = device.compute(&kernel::SCALE_COLUMNS, act, over_rows(device, rows), x.dims(), &arguments)?;
    if let Some(bias) = bias {
        add_bias(device, &y, bias)?;
    }
    Ok(y)
}

/// Sums `a ⊙ b` over the rows on a device: `[columns]` f32.
pub(super) fn product_sums(device: &Accelerator, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (_, columns) = host::matrix(a, "a")?;
    if columns == 0 {
        return device.zeros(&[0], DType::F32);
    }
    norm::device::weight_gradient(device, a, b, None, columns)
}
