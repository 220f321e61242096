//! Columns of activations: cut apart and joined where several maps share one matrix, scaled and summed one by one.

pub(super) mod device;

use candle_core::Tensor;

use super::backend::accelerator_of;
use super::host;
use super::linear::bias_gradient;
use crate::error::{Error, Result};

/// Splits `joined`, `[rows, Σ widths]`, by columns into one contiguous matrix `[rows, width]` for each width, in order.
pub fn split_columns(joined: &Tensor, widths: &[usize]) -> Result<Vec<Tensor>> {
    let (rows, _) = host::matrix(joined, "joined")?;
    host::expect(joined, "joined", &[rows, widths.iter().sum()])?;
    if let Some(device) = accelerator_of([(joined, "joined")])? {
        return device::cut(&device, joined, widths);
    }
    let mut end = 0;
    let part = |width: &usize| {
        end += width;
        Ok(joined.narrow(1, end - width, *width)?.contiguous()?)
    };
    widths.iter().map(part).collect()
}

/// Joins matrices with the same number of rows and the same type side by side, in order: the gradient of
/// [`split_columns`]. Returns an error for an empty list.
pub fn concat_columns(parts: &[Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::shape("there are no columns to join")) };
    let (rows, _) = host::matrix(first, "columns")?;
    for part in parts {
        let (_, width) = host::matrix(part, "columns")?;
        host::expect(part, "columns", &[rows, width])?;
        accelerator_of([(first, "the first columns"), (part, "others")])?;
    }
    match accelerator_of([(first, "columns")])? {
        None => Ok(Tensor::cat(parts, 1)?),
        Some(device) => device::join(&device, parts, rows),
    }
}

/// Multiplies each column by its factor and adds its bias: `x ⊙ factors + bias`. `x` is `[rows, columns]`, `factors`
/// and `bias` are `[columns]` f32. The result has the type of `x`.
pub fn scale_columns(x: &Tensor, factors: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (_, columns) = host::matrix(x, "x")?;
    host::expect(factors, "factors", &[columns])?;
    if let Some(bias) = bias {
        host::expect(bias, "bias", &[columns])?;
        accelerator_of([(x, "x"), (bias, "bias")])?;
    }
    if let Some(device) = accelerator_of([(x, "x"), (factors, "factors")])? {
        return device::scale(&device, x, factors, bias);
    }
    let output = x.broadcast_mul(factors)?;
    Ok(bias.map_or(Ok(output.clone()), |bias| output.broadcast_add(bias))?)
}

/// Sums `a ⊙ b` over the rows, in their order: `a` and `b` are `[rows, columns]`, the result is `[columns]` f32.
pub fn product_sums(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::matrix(a, "a")?;
    host::expect(b, "b", a.dims())?;
    match accelerator_of([(a, "a"), (b, "b")])? {
        None => bias_gradient(&(a * b)?),
        Some(device) => device::product_sums(&device, a, b),
    }
}

#[cfg(test)]
mod tests;
