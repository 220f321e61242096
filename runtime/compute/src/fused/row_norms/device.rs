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

/// Computes the norm of each row of `W + s·B·A` on a device, `[out]` f32. `base_squares` is ‖W‖² by row; W and A are
/// multiplied in type `dtype`.
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

/// Updates the number of each row in `sums`, `[rows]` f32, to `keep · sums + scale · Σ a ⊙ b`; `a` and `b` are
/// `[rows, width]`. With a `keep` of 0, `sums` may be unwritten before.
fn row_dots(device: &Accelerator, sums: &Tensor, a: &Tensor, b: &Tensor, [keep, scale]: [f32; 2]) -> Result<()> {
    let (rows, width) = host::matrix(a, "a")?;
    let arguments = arguments![sums, a, b, rows, width, keep, scale];
    device.launch(&kernel::ROW_DOTS, DType::F32, Grid::of(extent(rows)?, THREADS), &arguments)
}

/// Computes `a / b` number by number on a device, in f32.
pub(super) fn divide(device: &Accelerator, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    pairwise(device, &kernel::QUOTIENTS, a, b)
}

/// Launches a kernel that computes one f32 number from each pair of numbers of `a` and `b`. The result is shaped like
/// `a`.
fn pairwise(device: &Accelerator, kernel: &'static Kernel, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let numbers = a.elem_count();
    device.compute(kernel, DType::F32, device.flat(numbers), a.dims(), &arguments![a, b, numbers as u64])
}
