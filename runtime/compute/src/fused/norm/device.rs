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

/// Normalizes the rows of `x` on a device. Returns y, in the type of `x`, and r, `[rows]` f32.
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

/// Computes the gradient of the normalization by `x` on a device, in the type of `x`; `rates` is r.
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

/// Computes `Σ dy·x·r` over the rows, `[width]` f32; r is 1 without `rates`, as the row norms of DoRA need.
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

/// Chooses the kernel and its grid for rows of a width: up to [`NARROW`] the first of the two kernels, with a warp for
/// each row, else the second, with a block for each row.
fn choose(width: usize, rows: usize, [narrow, wide]: [&'static Kernel; 2]) -> Result<(&'static Kernel, Grid)> {
    let rows = extent(rows)?;
    Ok(match width {
        ..=NARROW => (narrow, Grid::of(rows.div_ceil(WARPS), THREADS)),
        _ => (wide, Grid::of(rows, THREADS)),
    })
}
