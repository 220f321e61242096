//! The lengths of the rows of an adapted weight, which DoRA (Liu et al. 2024) learns apart from their directions.

mod device;

use candle_core::{DType, Tensor};

use super::backend::{accelerator_of, accelerator_with};
use super::host;
use super::linear::linear;
use super::low_rank::LowRank;
use crate::error::Result;
use crate::weight::WeightRef;

/// Computes the norm of each row of `W + s·B·A`, `[out]` f32, without the sum of matrices: the root of ‖W‖² + 2s·Σ B ⊙
/// (W·Aᵀ) + s²·Σ B ⊙ (B·(A·Aᵀ)).
///
/// `base_squares` is ‖W‖² by row, `[out]` f32. W is multiplied with A in the type of activations, `dtype`; on the CPU
/// that is f32.
pub fn adapted_row_norms<'w>(
    base_squares: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
    dtype: DType,
) -> Result<Tensor> {
    let weight = weight.into();
    let ((outputs, rank), (_, inputs)) = (host::matrix(&low.b, "b")?, host::matrix(&low.a, "a")?);
    host::expect_dims(&weight.sides(), "weight", &[outputs, inputs])?;
    host::expect(&low.a, "a", &[rank, inputs])?;
    host::expect(base_squares, "base squares", &[outputs])?;
    if let Some(device) = accelerator_with([(&low.a, "a"), (&low.b, "b"), (base_squares, "base squares")], weight)? {
        return device::adapted_row_norms(&device, base_squares, weight, low, dtype);
    }
    let scale = f64::from(low.scale);
    let crossed = linear(&low.a, weight, None)?.t()?;
    let crossed = ((&low.b * crossed)?.sum(1)? * (2.0 * scale))?;
    let gram = low.a.matmul(&low.a.t()?)?;
    let own = ((&low.b * low.b.matmul(&gram)?)?.sum(1)? * (scale * scale))?;
    // Rounding can leave a row of zeros a little below zero.
    Ok(((base_squares + crossed)? + own)?.maximum(0.0)?.sqrt()?)
}

/// Computes `a / b` number by number, for f32 tensors of one shape.
pub fn divide(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::expect(b, "b", a.dims())?;
    match accelerator_of([(a, "a"), (b, "b")])? {
        None => Ok((a / b)?),
        Some(device) => device::divide(&device, a, b),
    }
}

#[cfg(test)]
mod tests;
