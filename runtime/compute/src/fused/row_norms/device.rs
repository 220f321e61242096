//! Lengths of rows as products and launches.

use candle_core::{DType, Tensor};

use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Grid, MatrixView, arguments, extent};
use crate::error::Result;
use crate::fused::device::matrix;
use crate::fused::host;
use crate::fused::linear::device::product;
use crate::fused::low_rank::LowRank;
use crate::weight::WeightRef;

/// Threads that sum a row.
const THREADS: u32 = 128;

/// [`adapted_row_norms`](super::adapted_row_norms) on a device.
pub(super) fn adapted_row_norms(
    device: &Accelerator,
    base_squares: &Tensor,
    weight: WeightRef<'_>,
    low: &LowRank,
    dtype: DType,
) -> Result<Tensor> {
    let LowRank { a, b, scale } = low;
    let crossed = {
        let (weight, a) = (matrix(device, weight, dtype)?, device.cast(a, dtype)?);
        product(device, MatrixView::plain(&weight), MatrixView::transposed(&a), DType::F32, 1.0)?
    };
    let gram = product(device, MatrixView::plain(a), MatrixView::transposed(a), DType::F32, 1.0)?;
    let own = product(device, MatrixView::plain(b), MatrixView::plain(&gram), DType::F32, 1.0)?;
    let sums = device.empty(base_squares.dims(), DType::F32)?;
    row_dots(device, &sums, b, &crossed, [0.0, 2.0 * scale])?;
    row_dots(device, &sums, b, &own, [1.0, scale * scale])?;
    pairwise(device, &kernel::ROOT_SUMS, base_squares, &sums)
}

/// `sums ← keep · sums + scale · Σ a ⊙ b` by row.
fn row_dots(device: &Accelerator, sums: &Tensor, a: &Tensor, b: &Tensor, [keep, scale]: [f32; 2]) -> Result<()> {
    let (rows, width) = host::matrix(a, "a")?;
    let arguments = arguments![sums, a, b, rows, width, keep, scale];
    device.launch(&kernel::ROW_DOTS, DType::F32, Grid::of(extent(rows)?, THREADS), &arguments)
}

/// `a / b` on a device.
pub(super) fn divide(device: &Accelerator, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    pairwise(device, &kernel::QUOTIENTS, a, b)
}

/// One number out of each pair.
fn pairwise(device: &Accelerator, kernel: &'static Kernel, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let numbers = a.elem_count();
    device.compute(kernel, DType::F32, device.flat(numbers), a.dims(), &arguments![a, b, numbers as u64])
}
