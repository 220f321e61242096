//! The linear layer as products of the device.

use candle_core::{DType, Tensor};

use super::expect_inner_dim;
use crate::accelerator::{Accelerator, MatrixView, arguments, kernel};
use crate::error::{Error, Result};
use crate::fused::device::{expect_type, matrix, over_rows, parts};
use crate::fused::host;
use crate::weight::WeightRef;

/// Computes `x·Wᵀ + b` on a device, in the type of `x`, after checking shapes. A weight of another type is converted
/// first.
pub(in crate::fused) fn linear(
    device: &Accelerator,
    x: &Tensor,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    let (_, inputs) = host::matrix(x, "x")?;
    let [outputs, columns] = sides(weight)?;
    expect_inner_dim(inputs, columns, [outputs, columns])?;
    if let Some(bias) = bias {
        host::expect(bias, "bias", &[outputs])?;
    }
    let weight = matrix(device, weight, act)?;
    let y = product(device, MatrixView::plain(x), MatrixView::transposed(&weight), act, 1.0)?;
    if let Some(bias) = bias {
        add_bias(device, &y, bias)?;
    }
    Ok(y)
}

/// Adds `bias`, `[columns]` f32, to every row of `y`, `[rows, columns]`, in place.
pub(in crate::fused) fn add_bias(device: &Accelerator, y: &Tensor, bias: &Tensor) -> Result<()> {
    let (rows, columns) = host::matrix(y, "y")?;
    let arguments = arguments![y, bias, rows, columns, columns as u64];
    device.launch(&kernel::ADD_BIAS, y.dtype(), over_rows(device, rows), &arguments)
}

/// Computes `dy·W` on a device, in the type of `dy`, after checking shapes.
pub(in crate::fused) fn input_gradient(device: &Accelerator, dy: &Tensor, weight: WeightRef<'_>) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    let (_, outputs) = host::matrix(dy, "dy")?;
    let [rows, inputs] = sides(weight)?;
    expect_inner_dim(outputs, rows, [rows, inputs])?;
    let weight = matrix(device, weight, act)?;
    product(device, MatrixView::plain(dy), MatrixView::plain(&weight), act, 1.0)
}

/// Computes `factor · dyᵀ·x` on a device, `[out, in]` f32. Every weight gradient has this form.
pub(in crate::fused) fn weight_gradient(device: &Accelerator, dy: &Tensor, x: &Tensor, factor: f32) -> Result<Tensor> {
    expect_type(dy, "dy")?;
    product(device, MatrixView::transposed(dy), MatrixView::plain(x), DType::F32, factor)
}

/// Sums `dy` over the tokens on a device, `[out]` f32, in fixed order.
pub(super) fn bias_gradient(device: &Accelerator, dy: &Tensor) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    let (tokens, outputs) = host::matrix(dy, "dy")?;
    parts(device, tokens, outputs, |sums, of_part, grid| {
        let arguments = arguments![sums, dy, tokens, outputs, of_part];
        device.launch(&kernel::SUM_ROWS_IN_PARTS, act, grid, &arguments)
    })
}

/// Computes `factor · left·right` into a new tensor of type `dtype`: zeros if the inner dimension is 0.
pub(in crate::fused) fn product(
    device: &Accelerator,
    left: MatrixView<'_>,
    right: MatrixView<'_>,
    dtype: DType,
    factor: f32,
) -> Result<Tensor> {
    let ((rows, depth), (_, columns)) = (left.dims()?, right.dims()?);
    if depth == 0 {
        return device.zeros(&[rows, columns], dtype);
    }
    let result = device.empty(&[rows, columns], dtype)?;
    device.multiply(&result, left, right, factor, false)?;
    Ok(result)
}

/// Returns the rows and columns of a weight, or [`Error::Shape`] if it is no matrix.
pub(in crate::fused) fn sides(weight: WeightRef<'_>) -> Result<[usize; 2]> {
    <[usize; 2]>::try_from(weight.sides())
        .map_err(|sides| Error::shape(format!("`weight` has shape {sides:?}, a matrix is needed")))
}
