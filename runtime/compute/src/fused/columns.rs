//! Columns of activations: cut apart and joined where several maps share one matrix, scaled and summed one by one.

pub(super) mod device;

use candle_core::Tensor;

use super::backend::Backend;
use super::host;
use super::linear::bias_gradient;
use crate::error::{Error, Result};

/// The columns of `joined`, `[rows, Σ widths]`, as a matrix for each width.
pub fn split_columns(joined: &Tensor, widths: &[usize]) -> Result<Vec<Tensor>> {
    let (rows, _) = host::matrix(joined, "joined")?;
    host::expect(joined, "joined", &[rows, widths.iter().sum()])?;
    match Backend::of([(joined, "joined")])? {
        Backend::Cpu => {
            let mut parts = Vec::with_capacity(widths.len());
            let mut start = 0;
            for width in widths {
                parts.push(joined.narrow(1, start, *width)?.contiguous()?);
                start += width;
            }
            Ok(parts)
        }
        Backend::Device(device) => device::cut(&device, joined, widths),
    }
}

/// Matrices with one number of rows and one type, side by side: the gradient of [`split_columns`].
pub fn concat_columns(parts: &[Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::shape("there are no columns to join")) };
    let (rows, _) = host::matrix(first, "columns")?;
    for part in parts {
        let (_, width) = host::matrix(part, "columns")?;
        host::expect(part, "columns", &[rows, width])?;
        Backend::of([(first, "the first columns"), (part, "others")])?;
    }
    match Backend::of([(first, "columns")])? {
        Backend::Cpu => Ok(Tensor::cat(parts, 1)?),
        Backend::Device(device) => device::join(&device, parts, rows),
    }
}

/// `x ⊙ factors + bias`, every row alike: `x` is `[rows, columns]`, `factors` and `bias` are `[columns]` f32. The
/// result has the type of `x`.
pub fn scale_columns(x: &Tensor, factors: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (_, columns) = host::matrix(x, "x")?;
    host::expect(factors, "factors", &[columns])?;
    if let Some(bias) = bias {
        host::expect(bias, "bias", &[columns])?;
        Backend::of([(x, "x"), (bias, "bias")])?;
    }
    match Backend::of([(x, "x"), (factors, "factors")])? {
        Backend::Cpu => {
            let mut output = x.broadcast_mul(factors)?;
            if let Some(bias) = bias {
                output = output.broadcast_add(bias)?;
            }
            Ok(output)
        }
        Backend::Device(device) => device::scale(&device, x, factors, bias),
    }
}

/// `Σ a ⊙ b` over the rows, `[columns]` f32, in the order of the rows: `a` and `b` are `[rows, columns]`.
pub fn product_sums(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::matrix(a, "a")?;
    host::expect(b, "b", a.dims())?;
    match Backend::of([(a, "a"), (b, "b")])? {
        Backend::Cpu => bias_gradient(&(a * b)?),
        Backend::Device(device) => device::product_sums(&device, a, b),
    }
}

#[cfg(test)]
mod tests;
