//! Changes of activations as one launch each, a block for a row.

use candle_core::Tensor;

use crate::accelerator::{Accelerator, Grid, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::expect_type;
use crate::fused::host;

const THREADS: u32 = 128;

/// Adds a vector to every row, or to those whose mark is 1, on a device.
pub(super) fn add(device: &Accelerator, rows: &Tensor, vector: &Tensor, marks: Option<&Tensor>) -> Result<Tensor> {
    let act = expect_type(rows, "rows")?;
    let (tokens, width) = host::matrix(rows, "rows")?;
    let (grid, arguments) = (Grid::of(extent(tokens)?, THREADS), arguments![rows, vector, marks, tokens, width]);
    device.compute(&kernel::PATCH_ADD, act, grid, rows.dims(), &arguments)
}

/// Sets the component of every row along a direction of length 1 to `value` on a device; 0 removes it.
pub(super) fn set_component(device: &Accelerator, rows: &Tensor, direction: &Tensor, value: f32) -> Result<Tensor> {
    let act = expect_type(rows, "rows")?;
    let (tokens, width) = host::matrix(rows, "rows")?;
    let (grid, arguments) = (Grid::of(extent(tokens)?, THREADS), arguments![rows, direction, value, tokens, width]);
    device.compute(&kernel::PATCH_ALONG, act, grid, rows.dims(), &arguments)
}
