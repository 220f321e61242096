//! Changes of activations as one launch each, a block for a row.

use candle_core::{DType, Tensor};

use crate::accelerator::{Accelerator, Grid, kernel};
use crate::error::Result;
use crate::fused::device::{count, expect_dtype, expect_type, extent};
use crate::fused::host;

const THREADS: u32 = 128;

pub(super) fn add(device: &Accelerator, rows: &Tensor, vector: &Tensor, marks: Option<&Tensor>) -> Result<Tensor> {
    let act = expect_type(rows, "rows")?;
    expect_dtype(vector, "vector", DType::F32)?;
    if let Some(marks) = marks {
        expect_dtype(marks, "marks", DType::F32)?;
    }
    let (tokens, width) = host::matrix(rows, "rows")?;
    let y = device.empty(&[tokens, width], act)?;
    let arguments = [(&y).into(), rows.into(), vector.into(), marks.into(), count(tokens)?, count(width)?];
    device.launch(&kernel::PATCH_ADD, act, Grid::of(extent(tokens)?, THREADS), &arguments)?;
    Ok(y)
}

pub(super) fn set_component(device: &Accelerator, rows: &Tensor, direction: &Tensor, value: f32) -> Result<Tensor> {
    let act = expect_type(rows, "rows")?;
    expect_dtype(direction, "direction", DType::F32)?;
    let (tokens, width) = host::matrix(rows, "rows")?;
    let y = device.empty(&[tokens, width], act)?;
    let arguments = [(&y).into(), rows.into(), direction.into(), value.into(), count(tokens)?, count(width)?];
    device.launch(&kernel::PATCH_ALONG, act, Grid::of(extent(tokens)?, THREADS), &arguments)?;
    Ok(y)
}
