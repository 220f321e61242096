//! Changes of activations as one launch each, a block for a row.

use candle_core::{DType, Tensor};

use crate::accelerator::{Accelerator, Grid, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::{expect_dtype, expect_type};
use crate::fused::host;

const THREADS: u32 = 128;

/// [`add_vector`](super::add_vector) on a device.
pub(super) fn add(device: &Accelerator, rows: &Tensor, vector: &Tensor, marks: Option<&Tensor>) -> Result<Tensor> {
    let act = expect_type(rows, "rows")?;
    expect_dtype(vector, "vector", DType::F32)?;
    if let Some(marks) = marks {
        expect_dtype(marks, "marks", DType::F32)?;
    }
    let (tokens, width) = host::matrix(rows, "rows")?;
    let y = device.empty(&[tokens, width], act)?;
    let arguments = arguments![&y, rows, vector, marks, tokens, width];
    device.launch(&kernel::PATCH_ADD, act, Grid::of(extent(tokens)?, THREADS), &arguments)?;
    Ok(y)
}

/// [`set_component`](super::set_component) on a device.
pub(super) fn set_component(device: &Accelerator, rows: &Tensor, direction: &Tensor, value: f32) -> Result<Tensor> {
    let act = expect_type(rows, "rows")?;
    expect_dtype(direction, "direction", DType::F32)?;
    let (tokens, width) = host::matrix(rows, "rows")?;
    let y = device.empty(&[tokens, width], act)?;
    let arguments = arguments![&y, rows, direction, value, tokens, width];
    device.launch(&kernel::PATCH_ALONG, act, Grid::of(extent(tokens)?, THREADS), &arguments)?;
    Ok(y)
}
