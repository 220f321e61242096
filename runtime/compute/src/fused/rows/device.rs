//! Rows by number as launches.

use candle_core::{DType, Tensor};

use crate::accelerator::{Accelerator, kernel};
use crate::error::Result;
use crate::fused::columns::device::copy;
use crate::fused::device::{self, expect_type};
use crate::fused::embedding::device::sums_by_number;
use crate::fused::host;
use crate::fused::indices::Indices;
use crate::weight::WeightRef;

/// Gathers rows of `from` by index on a device: row i of the result is row `rows[i]`.
pub(super) fn gather(device: &Accelerator, from: &Tensor, rows: &Indices) -> Result<Tensor> {
    let act = expect_type(from, "from")?;
    let (_, width) = host::matrix(from, "from")?;
    if rows.is_empty() {
        return device.empty(&[0, width], act);
    }
    device::rows(device, WeightRef::Tensor(from), &rows.on(from.device())?, 1.0, act)
}

/// Sums rows by index on a device: adds row i of `selected` to row `rows[i]` of `count` rows of zeros.
pub(super) fn spread(device: &Accelerator, selected: &Tensor, rows: &[u32], count: usize) -> Result<Tensor> {
    let act = expect_type(selected, "selected")?;
    sums_by_number(device, &kernel::SCATTER_ROWS, rows, selected, 1.0, (count, act))
}

/// Joins matrices of one width one below the other on a device, with one copy for each part.
pub(super) fn stack(device: &Accelerator, parts: &[Tensor], width: usize) -> Result<Tensor> {
    let act = parts.first().map_or(Ok(DType::F32), |first| expect_type(first, "rows"))?;
    let all = device.empty(&[parts.iter().map(|part| part.dims()[0]).sum(), width], act)?;
    let mut start = 0;
    for part in parts {
        let (count, _) = host::matrix(part, "rows")?;
        copy(device, (&all.narrow(0, start, count)?, width), (part, width), [count, width])?;
        start += count;
    }
    Ok(all)
}

/// Converts a tensor to f32 and copies its numbers to the host; waits for the device.
pub(super) fn to_host_f32(device: &Accelerator, tensor: &Tensor) -> Result<Vec<f32>> {
    device.download(&device.cast(tensor, DType::F32)?)
}
