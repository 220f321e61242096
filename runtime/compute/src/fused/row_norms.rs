//! The norms of the rows of an adapted weight, which DoRA (Liu et al. 2024) learns apart from their directions.

use candle_core::{DType, Tensor};

use super::backend::{accelerator_of, accelerator_with};
use super::device::matrix;
use super::host;
use super::linear::{linear, product};
use super::low_rank::LowRank;
use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Grid, MatrixView, arguments, extent};
use crate::error::Result;
use crate::weight::WeightRef;

/// Threads of a block of a device, which sums a row.
const THREADS: u32 = 128;

/// Computes the norm of each row of `W + s·B·A`, `[out]` f32, without computing that matrix: the root of ‖W‖² + 2s·Σ B
/// ⊙ (W·Aᵀ) + s²·Σ B ⊙ (B·(A·Aᵀ)).
///
/// `base_squares` is ‖W‖² of each row of W (`weight`), `[out]` f32; A, B and s are those of `low`, A and B in f32. On a
/// device, W is multiplied with A in the type `dtype`, that of activations; the CPU ignores `dtype` and uses f32. A
/// square that rounding leaves below 0 counts as 0. Returns an error if shapes or devices do not fit each other.
pub fn adapted_row_norms<'w>(
    base_squares: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
    dtype: DType,
) -> Result<Tensor> {
    let weight = weight.into();
    let ((outputs, rank), (_, inputs)) = (host::matrix_dims(&low.b, "b")?, host::matrix_dims(&low.a, "a")?);
    host::expect_dims(&weight.sides(), "weight", &[outputs, inputs])?;
    host::expect_shape(&low.a, "a", &[rank, inputs])?;
    host::expect_shape(base_squares, "base squares", &[outputs])?;
    if let Some(device) = accelerator_with([(&low.a, "a"), (&low.b, "b"), (base_squares, "base squares")], weight)? {
        let (LowRank { a, b, scale }, weight) = (low, matrix(&device, weight, dtype)?);
        let (weight, narrow) = (MatrixView::plain(&weight), device.cast(a, dtype)?);
        let crossed = product(&device, weight, MatrixView::transposed(&narrow), DType::F32, 1.0)?;
        let gram = product(&device, MatrixView::plain(a), MatrixView::transposed(a), DType::F32, 1.0)?;
        let own = product(&device, MatrixView::plain(b), MatrixView::plain(&gram), DType::F32, 1.0)?;
        let sums = device.empty(base_squares.dims(), DType::F32)?;
        row_dots(&device, &sums, b, &crossed, [0.0, 2.0 * scale])?;
        row_dots(&device, &sums, b, &own, [1.0, scale * scale])?;
        return launch_pairwise(&device, &kernel::ROOT_SUMS, base_squares, &sums);
    }
    let scale = f64::from(low.scale);
    let crossed = linear(&low.a, weight, None)?.t()?;
    let crossed = ((&low.b * crossed)?.sum(1)? * (2.0 * scale))?;
    let gram = low.a.matmul(&low.a.t()?)?;
    let own = ((&low.b * low.b.matmul(&gram)?)?.sum(1)? * (scale * scale))?;
    // Rounding can leave a row of zeros a little below zero.
    Ok(((base_squares + crossed)? + own)?.maximum(0.0)?.sqrt()?)
}

/// Computes `a / b` elementwise, for f32 tensors of one shape. Does not check for zeros in `b`. Returns an error if
/// shapes or devices differ.
pub fn divide(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::expect_shape(b, "b", a.dims())?;
    match accelerator_of([(a, "a"), (b, "b")])? {
        None => Ok((a / b)?),
        Some(device) => launch_pairwise(&device, &kernel::QUOTIENTS, a, b),
    }
}

/// Queues updating the number of each row in `sums`, `[rows]` f32, to `keep · sums + scale · Σ a ⊙ b`, with the sum
/// over the row; `a` and `b` are `[rows, width]` f32. With a `keep` of 0, `sums` may be uninitialized.
fn row_dots(device: &Accelerator, sums: &Tensor, a: &Tensor, b: &Tensor, [keep, scale]: [f32; 2]) -> Result<()> {
    let (rows, width) = host::matrix_dims(a, "a")?;
    let arguments = arguments![sums, a, b, rows, width, keep, scale];
    device.launch(&kernel::ROW_DOTS, DType::F32, Grid::of(extent(rows)?, THREADS), &arguments)
}

/// Launches a kernel that computes one f32 number from each pair of numbers of `a` and `b`. The result is shaped like
/// `a`.
fn launch_pairwise(device: &Accelerator, kernel: &'static Kernel, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let numbers = a.elem_count();
    device.compute(kernel, DType::F32, device.flat(numbers), a.dims(), &arguments![a, b, numbers as u64])
}

#[cfg(test)]
mod tests;
