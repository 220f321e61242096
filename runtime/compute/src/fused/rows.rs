//! Row operations on activations: gather, scatter, concatenate, and copy to the host.

use candle_core::{DType, Tensor};

use super::backend::accelerator_of;
use super::columns::copy;
use super::device::{self, expect_type};
use super::embedding::sum_rows_by_index;
use super::host;
use super::indices::{Indices, check_below};
use crate::accelerator::{Accelerator, kernel};
use crate::error::{Error, Result};

/// The words for row indices in the message of [`check_below`]: "row 7 is past the 5 that are there".
const ROW: [&str; 2] = ["row", "that are there"];

/// Gathers rows of `from`, `[count, width]`: row i of the result is row `rows[i]`. The result has the type of `from`.
/// Returns an error for an index of `count` or more.
pub fn gather_rows(from: &Tensor, rows: &Indices) -> Result<Tensor> {
    let (count, width) = host::matrix_dims(from, "from")?;
    check_below(rows, count, ROW)?;
    match accelerator_of([(from, "from")])? {
        None => Ok(from.index_select(&rows.on(from.device())?, 0)?),
        Some(device) if rows.is_empty() => device.empty(&[0, width], expect_type(from, "from")?),
        Some(device) => device::rows(&device, from.into(), &rows.on(from.device())?, 1.0, expect_type(from, "from")?),
    }
}

/// Computes the gradient of [`gather_rows`], `[count, width]` in the type of `selected`: adds row i of `selected` to
/// row `rows[i]` of zeros, in f32 and in order. Returns an error for an index of `count` or more, or if `selected` has
/// not one row for each index.
pub fn scatter_rows(selected: &Tensor, rows: &Indices, count: usize) -> Result<Tensor> {
    let (_, width) = host::matrix_dims(selected, "selected")?;
    host::expect_shape(selected, "selected", &[rows.len(), width])?;
    check_below(rows, count, ROW)?;
    if let Some(device) = accelerator_of([(selected, "selected")])? {
        let result = (count, expect_type(selected, "selected")?);
        return sum_rows_by_index(&device, &kernel::SCATTER_ROWS, rows, selected, 1.0, result);
    }
    let (zeros, rows) = (Tensor::zeros((count, width), DType::F32, selected.device())?, rows.on(selected.device())?);
    host::in_f32(selected, |selected| zeros.index_add(&rows, selected, 0))
}

/// Joins matrices of one width and type one below the other, in order. Returns an error for an empty list, or if the
/// matrices differ in their width, their type or their device.
pub fn concat_rows(parts: &[Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::shape("there are no rows to stack")) };
    let (_, width) = host::matrix_dims(first, "rows")?;
    for part in parts {
        let (count, _) = host::matrix_dims(part, "rows")?;
        host::expect_shape(part, "rows", &[count, width])?;
        accelerator_of([(first, "the first rows"), (part, "others")])?;
    }
    let Some(device) = accelerator_of([(first, "rows")])? else { return Ok(Tensor::cat(parts, 0)?) };
    let counts = parts.iter().map(|part| part.dims()[0]);
    let all = device.empty(&[counts.clone().sum(), width], expect_type(first, "rows")?)?;
    let mut start = 0;
    for (part, count) in parts.iter().zip(counts) {
        copy(&device, (&all.narrow(0, start, count)?, width), (part, width), [count, width])?;
        start += count;
    }
    Ok(all)
}

/// Copies all numbers of a tensor of any shape to the host, in row-major order, converted to f32. Waits for a device.
/// On a device, the tensor must be contiguous and f32, bf16 or f16; else this fails.
pub fn to_host_f32(tensor: &Tensor) -> Result<Vec<f32>> {
    match Accelerator::of(tensor.device())? {
        None => Ok(tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?),
        Some(device) => device.download(&device.cast(tensor, DType::F32)?),
    }
}

#[cfg(test)]
mod tests;
