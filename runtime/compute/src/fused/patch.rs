//! Changes of activations at one place: a vector added to rows, a direction removed from them or set.
//!
//! With r of length 1, removing is x − (x·r) r and setting x + (c − x·r) r; the gradient of both is what removing makes
//! of it, and that of adding is itself. Rows are `[tokens, width]`, vectors `[1, width]` f32.

mod device;

use candle_core::Tensor;

use super::backend::accelerator_of;
use super::host;
use crate::accelerator::Accelerator;
use crate::error::Result;

/// Adds `vector`, `[1, width]` f32, to every row, or with `marks`, `[tokens, 1]` f32, to the rows whose mark is 1 and
/// not 0.
pub fn add_vector(rows: &Tensor, vector: &Tensor, marks: Option<&Tensor>) -> Result<Tensor> {
    let (tokens, width) = host::matrix(rows, "rows")?;
    host::expect(vector, "vector", &[1, width])?;
    if let Some(marks) = marks {
        host::expect(marks, "marks", &[tokens, 1])?;
        accelerator_of([(rows, "rows"), (marks, "marks")])?;
    }
    match (accelerator_of([(rows, "rows"), (vector, "vector")])?, marks) {
        (None, Some(marks)) => Ok((rows + marks.matmul(vector)?)?),
        (None, None) => Ok(rows.broadcast_add(vector)?),
        (Some(device), marks) => device::add(&device, rows, vector, marks),
    }
}

/// Removes the component along `direction`, r of length 1, from every row: `x − (x·r) r`. The caller ensures the
/// length.
pub fn remove_component(rows: &Tensor, direction: &Tensor) -> Result<Tensor> {
    match accelerator(rows, direction)? {
        None => Ok((rows - along(rows, direction)?.matmul(direction)?)?),
        Some(device) => device::set_component(&device, rows, direction, 0.0),
    }
}

/// Sets the component of every row along `direction`, r of length 1, to `value`: `x + (value − x·r) r`. The caller
/// ensures the length.
pub fn set_component(rows: &Tensor, direction: &Tensor, value: f64) -> Result<Tensor> {
    match accelerator(rows, direction)? {
        None => Ok((rows + along(rows, direction)?.affine(-1.0, value)?.matmul(direction)?)?),
        Some(device) => device::set_component(&device, rows, direction, value as f32),
    }
}

/// Checks that `direction` is `[1, width]`, and returns the accelerator of both tensors; `None` for the CPU.
fn accelerator(rows: &Tensor, direction: &Tensor) -> Result<Option<Accelerator>> {
    let (_, width) = host::matrix(rows, "rows")?;
    host::expect(direction, "direction", &[1, width])?;
    accelerator_of([(rows, "rows"), (direction, "direction")])
}

/// Computes the component of every row along a direction of length 1: `[tokens, 1]`.
fn along(rows: &Tensor, direction: &Tensor) -> Result<Tensor> {
    Ok(rows.matmul(&direction.t()?)?)
}

#[cfg(test)]
mod tests;
