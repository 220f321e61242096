//! Changes of activations at one place of the model: adding a vector to rows, and removing or setting their component
//! along a direction.
//!
//! With a direction r of length 1, removing gives x − (x·r) r and setting to c gives x + (c − x·r) r. The gradient with
//! respect to x of both is the upstream gradient with its component along r removed; that of adding is the upstream
//! gradient itself. Rows are `[tokens, width]`, vectors `[1, width]` f32.

use candle_core::Tensor;

use super::backend::accelerator_of;
use super::device::expect_type;
use super::host;
use crate::accelerator::{Accelerator, Grid, arguments, extent, kernel};
use crate::error::Result;

/// Threads of a device's block, which has a row.
const THREADS: u32 = 128;

/// Adds `vector`, `[1, width]` f32, to every row of `rows`, `[tokens, width]`, and returns the sums in the type of
/// `rows`. With `marks`, `[tokens, 1]` f32 of zeros and ones, adds it only to the rows marked 1. Returns an error if
/// shapes or devices do not fit each other.
pub fn add_vector(rows: &Tensor, vector: &Tensor, marks: Option<&Tensor>) -> Result<Tensor> {
    let (tokens, width) = host::matrix_dims(rows, "rows")?;
    host::expect_shape(vector, "vector", &[1, width])?;
    if let Some(marks) = marks {
        host::expect_shape(marks, "marks", &[tokens, 1])?;
        accelerator_of([(rows, "rows"), (marks, "marks")])?;
    }
    match (accelerator_of([(rows, "rows"), (vector, "vector")])?, marks) {
        (None, Some(marks)) => host::in_f32(rows, |rows| rows + marks.matmul(vector)?),
        (None, None) => host::in_f32(rows, |rows| rows.broadcast_add(vector)),
        (Some(device), marks) => {
            let arguments = arguments![rows, vector, marks, tokens, width];
            let grid = Grid::of(extent(tokens)?, THREADS);
            device.compute(&kernel::PATCH_ADD, expect_type(rows, "rows")?, grid, rows.dims(), &arguments)
        }
    }
}

/// Removes the component along `direction`, a vector r of length 1, `[1, width]` f32, from every row x of `rows`,
/// `[tokens, width]`: returns `x − (x·r) r` in the type of `rows`. The caller ensures that r has length 1. Returns an
/// error if shapes or devices do not fit each other.
pub fn remove_component(rows: &Tensor, direction: &Tensor) -> Result<Tensor> {
    match check_direction(rows, direction)? {
        None => host::in_f32(rows, |rows| rows - component_along(rows, direction)?.matmul(direction)?),
        Some(device) => set_on_device(&device, rows, direction, 0.0),
    }
}

/// Sets the component of every row x of `rows`, `[tokens, width]`, along `direction`, a vector r of length 1, `[1,
/// width]` f32, to `value`: returns `x + (value − x·r) r` in the type of `rows`. The caller ensures that r has that
/// length. Returns an error if shapes or devices do not fit each other.
pub fn set_component(rows: &Tensor, direction: &Tensor, value: f64) -> Result<Tensor> {
    match check_direction(rows, direction)? {
        None => host::in_f32(rows, |rows| {
            rows + component_along(rows, direction)?.affine(-1.0, value)?.matmul(direction)?
        }),
        Some(device) => set_on_device(&device, rows, direction, value as f32),
    }
}

/// Checks that `direction` is `[1, width]` and on the device of `rows`, `[tokens, width]`, and returns the accelerator
/// of both tensors; `None` for the CPU.
fn check_direction(rows: &Tensor, direction: &Tensor) -> Result<Option<Accelerator>> {
    let (_, width) = host::matrix_dims(rows, "rows")?;
    host::expect_shape(direction, "direction", &[1, width])?;
    accelerator_of([(rows, "rows"), (direction, "direction")])
}

/// Sets the component of every row along a direction of length 1 to `value` on a device; 0 removes it.
fn set_on_device(device: &Accelerator, rows: &Tensor, direction: &Tensor, value: f32) -> Result<Tensor> {
    let (tokens, width) = host::matrix_dims(rows, "rows")?;
    let (grid, arguments) = (Grid::of(extent(tokens)?, THREADS), arguments![rows, direction, value, tokens, width]);
    device.compute(&kernel::PATCH_ALONG, expect_type(rows, "rows")?, grid, rows.dims(), &arguments)
}

/// Computes the component of every row along a direction of length 1: `[tokens, 1]`.
fn component_along(rows: &Tensor, direction: &Tensor) -> candle_core::Result<Tensor> {
    rows.matmul(&direction.t()?)
}

#[cfg(test)]
mod tests;
