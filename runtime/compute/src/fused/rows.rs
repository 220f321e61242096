//! Rows of activations by number: picked out, put back at their places, set one under another, read by the host.

mod device;

use candle_core::Tensor;

use super::backend::Backend;
use super::host;
use super::indices::Indices;
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};

/// The rows of `from`, `[count, width]`, that `rows` names, in its order: `[rows, width]` in the type of `from`.
pub fn gather_rows(from: &Tensor, rows: &Indices) -> Result<Tensor> {
    let (count, _) = host::matrix(from, "from")?;
    below(rows, count)?;
    match Backend::of([(from, "from")])? {
        Backend::Cpu => Ok(from.index_select(&rows.on(from.device())?, 0)?),
        Backend::Device(device) => device::gather(&device, from, rows),
    }
}

/// The gradient of [`gather_rows`], `[count, width]`: row `i` of `selected` is added to row `rows[i]` of zeros.
pub fn scatter_rows(selected: &Tensor, rows: &Indices, count: usize) -> Result<Tensor> {
    let (_, width) = host::matrix(selected, "selected")?;
    host::expect(selected, "selected", &[rows.len(), width])?;
    below(rows, count)?;
    match Backend::of([(selected, "selected")])? {
        Backend::Cpu => {
            let zeros = Tensor::zeros((count, width), selected.dtype(), selected.device())?;
            Ok(zeros.index_add(&rows.on(selected.device())?, selected, 0)?)
        }
        Backend::Device(device) => device::spread(&device, selected, rows, count),
    }
}

/// Matrices of one width and type, one under another.
pub fn concat_rows(parts: &[Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::shape("there are no rows to stack")) };
    let (_, width) = host::matrix(first, "rows")?;
    for part in parts {
        let (count, _) = host::matrix(part, "rows")?;
        host::expect(part, "rows", &[count, width])?;
        Backend::of([(first, "the first rows"), (part, "others")])?;
    }
    match Backend::of([(first, "rows")])? {
        Backend::Cpu => Ok(Tensor::cat(parts, 0)?),
        Backend::Device(device) => device::stack(&device, parts, width),
    }
}

/// All numbers of a tensor in order, in f32, on the host. The host waits for a device that has them.
pub fn to_host_f32(tensor: &Tensor) -> Result<Vec<f32>> {
    match Accelerator::of(tensor.device())? {
        None => Ok(tensor.flatten_all()?.to_vec1::<f32>()?),
        Some(device) => device::to_host_f32(&device, tensor),
    }
}

/// Refuses a row that is not there.
fn below(rows: &[u32], count: usize) -> Result<()> {
    match rows.iter().find(|row| **row as usize >= count) {
        Some(row) => Err(Error::argument(format!("row {row} is past the {count} that are there"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
