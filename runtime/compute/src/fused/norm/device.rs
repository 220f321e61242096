//! The normalization as launches: a warp for a narrow row, a block for a wide one.

use candle_core::{DType, Tensor};

use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Grid, arguments, extent};
use crate::error::Result;
use crate::fused::device::{expect_type, parts};

/// Rows up to this width have a warp, wider ones a block.
const NARROW: usize = 512;
const THREADS: u32 = 256;
/// Rows of one block of warps.
const WARPS: u32 = THREADS / 32;

/// [`rms_norm`](super::rms_norm) on a device.
pub(super) fn forward(
    device: &Accelerator,
    x: &Tensor,
    weight: &Tensor,
    width: usize,
    epsilon: f32,
    offset: f32,
) -> Result<(Tensor, Tensor)> {
    let act = expect_type(x, "x")?;
    let rows = x.elem_count() / width;
    let (y, rates) = (device.empty(x.dims(), act)?, device.empty(&[rows], DType::F32)?);
    let (kernel, grid) = choose(width, rows, [&kernel::RMS_NORM_NARROW, &kernel::RMS_NORM])?;
    let arguments = arguments![&y, &rates, x, weight, rows, width, epsilon, offset];
    device.launch(kernel, act, grid, &arguments)?;
    Ok((y, rates))
}

/// [`rms_norm_backward`](super::rms_norm_backward) on a device.
pub(super) fn backward(
    device: &Accelerator,
    dy: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    rates: &Tensor,
    width: usize,
    offset: f32,
) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    let rows = x.elem_count() / width;
    let (kernel, grid) = choose(width, rows, [&kernel::RMS_NORM_BACKWARD_NARROW, &kernel::RMS_NORM_BACKWARD])?;
    device.compute(kernel, act, grid, x.dims(), &arguments![dy, x, weight, rates, rows, width, offset])
}

/// `Σ dy·x·r` over the rows, r = 1 where there is none: the lengths of DoRA ask for that.
pub(in crate::fused) fn weight_gradient(
    device: &Accelerator,
    dy: &Tensor,
    x: &Tensor,
    rates: Option<&Tensor>,
    width: usize,
) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    let rows = x.elem_count() / width;
    parts(device, rows, width, |sums, of_part, grid| {
        let arguments = arguments![sums, dy, x, rates, rows, width, of_part];
        device.launch(&kernel::RMS_NORM_WEIGHT_GRADIENT, act, grid, &arguments)
    })
}

/// The kernel and the grid for rows of a width: a warp for a row up to [`NARROW`], else a block.
fn choose(width: usize, rows: usize, [narrow, wide]: [&'static Kernel; 2]) -> Result<(&'static Kernel, Grid)> {
    let rows = extent(rows)?;
    Ok(match width {
        ..=NARROW => (narrow, Grid::of(rows.div_ceil(WARPS), THREADS)),
        _ => (wide, Grid::of(rows, THREADS)),
    })
}
