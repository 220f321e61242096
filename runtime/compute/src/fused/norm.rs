//! Root-mean-square normalization (Zhang & Sennrich 2019) over the last axis, and its gradients.
//!
//! `y = x·r·w` with `r = 1/√(mean(x²) + ε)`; Gemma stores w − 1, so there `y = x·r·(1 + w)` with the stored w.

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::backend::accelerator_of;
use super::device::{expect_type, parts};
use super::host::{self, Floats};
use super::residual;
use super::simd::{dot, fold2, vectorize};
use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Grid, arguments, extent};
use crate::error::{Error, Result};

/// On a device, a warp computes a row of up to this width, a block a wider one.
const NARROW: usize = 1024;
/// Threads of a block.
const THREADS: u32 = 256;
/// Rows of one block whose warps have a row each.
const WARPS: u32 = THREADS / 32;
/// Rows of one task are those that hold about so many numbers.
const TASK_NUMBERS: usize = 1 << 15;

/// Normalizes every row of `x`, `[…, width]`, by its root mean square and multiplies it by `weight`, `[width]` f32: `y
/// = x·r·w` with `r = 1/√(mean(x²) + epsilon)`. `unit_offset` adds one to the weight. Returns `y`, shaped like `x` and
/// of its type, and `r`, `[rows]` f32, which the gradients need; all axes of `x` but the last together are the rows.
/// Returns an error unless `x` is f32 or bf16 and the width is above 0 and that of the weight.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64, unit_offset: bool) -> Result<(Tensor, Tensor)> {
    let (width, offset) = (check_width(x, weight)?, weight_offset(unit_offset));
    if let Some(device) = accelerator_of([(x, "x"), (weight, "weight")])? {
        let act = expect_type(x, "x")?;
        let rows = x.elem_count() / width;
        let (y, rates) = (device.empty(x.dims(), act)?, device.empty(&[rows], DType::F32)?);
        let (kernel, grid) = choose_kernel(width, rows, [&kernel::RMS_NORM_NARROW, &kernel::RMS_NORM])?;
        let arguments = arguments![&y, &rates, x, weight, rows, width, epsilon as f32, offset];
        device.launch(kernel, act, grid, &arguments)?;
        return Ok((y, rates));
    }
    let (input, weight) = (&*Floats::activations(x, "x")?, &*Floats::of(weight, "weight")?);
    let rows = input.len() / width;
    let (mut y, mut rates) = (host::zeros(input.len()), vec![0.0; rows]);
    let task = rows_of_task(width);
    y.par_chunks_mut(task * width).zip(input.par_chunks(task * width)).zip(rates.par_chunks_mut(task)).for_each(
        |((y, x), rates)| {
            for ((y, x), rate) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(rates) {
                *rate = vectorize!(forward_row(y, x, weight, epsilon, offset));
            }
        },
    );
    Ok((host::tensor_in(x.dtype(), y, x.dims())?, host::tensor(rates, &[rows])?))
}

/// Computes the gradient of [`rms_norm`] with respect to `x`, in its shape and type: `dx = r·(dy·w) −
/// x·r³·mean(dy·w·x)`. `dy` is the gradient of the result, `rstd` the r that the forward pass returned, `[rows]` f32; w
/// is `weight`, plus 1 with `unit_offset`. Adds `plus`, if given, in the shape and type of `x`: the gradient through a
/// residual connection around the norm. Returns an error if shapes or devices do not fit each other.
pub fn rms_norm_backward(
    dy: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    rstd: &Tensor,
    unit_offset: bool,
    plus: Option<&Tensor>,
) -> Result<Tensor> {
    let (width, offset) = (check_width(x, weight)?, weight_offset(unit_offset));
    host::expect_shape(dy, "dy", x.dims())?;
    let plus_or_dy = plus.unwrap_or(dy);
    host::expect_shape(plus_or_dy, "plus", x.dims())?;
    let rows = x.elem_count() / width;
    host::expect_shape(rstd, "rstd", &[rows])?;
    if let Some(device) =
        accelerator_of([(x, "x"), (dy, "dy"), (weight, "weight"), (rstd, "rstd"), (plus_or_dy, "plus")])?
    {
        let (kernel, grid) =
            choose_kernel(width, rows, [&kernel::RMS_NORM_BACKWARD_NARROW, &kernel::RMS_NORM_BACKWARD])?;
        let arguments = arguments![dy, x, weight, rstd, plus, rows, width, offset];
        return device.compute(kernel, expect_type(x, "x")?, grid, x.dims(), &arguments);
    }
    let (dy, input, weight) =
        (&*Floats::activations(dy, "dy")?, &*Floats::activations(x, "x")?, &*Floats::of(weight, "weight")?);
    let rates = Floats::of(rstd, "rstd")?;
    let mut result = host::zeros(input.len());
    let task = rows_of_task(width);
    result
        .par_chunks_mut(task * width)
        .zip(dy.par_chunks(task * width))
        .zip(input.par_chunks(task * width))
        .zip(rates.par_chunks(task))
        .for_each(|(((dx, dy), x), rates)| {
            let rows = dx.chunks_exact_mut(width).zip(dy.chunks_exact(width)).zip(x.chunks_exact(width));
            for (((dx, dy), x), rate) in rows.zip(rates) {
                vectorize!(backward_row(dx, dy, x, weight, *rate, offset));
            }
        });
    let found = host::tensor_in(x.dtype(), result, x.dims())?;
    match plus {
        Some(plus) => residual::add(plus, &found),
        None => Ok(found),
    }
}

/// Computes the gradient of [`rms_norm`] with respect to its weight, `dw = Σ dy·x·r` over the rows, `[width]` f32. Sums
/// fixed groups of rows and adds these in order. `rstd` is the r that the forward pass returned, `[rows]` f32. Returns
/// an error if shapes or devices do not fit each other.
pub fn rms_norm_weight_gradient(dy: &Tensor, x: &Tensor, rstd: &Tensor) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(0).max(1);
    host::expect_shape(dy, "dy", x.dims())?;
    host::expect_shape(rstd, "rstd", &[x.elem_count() / width])?;
    if let Some(device) = accelerator_of([(x, "x"), (dy, "dy"), (rstd, "rstd")])? {
        return device_weight_gradient(&device, dy, x, Some(rstd), width);
    }
    let (dy, input, rates) = (Floats::activations(dy, "dy")?, Floats::activations(x, "x")?, Floats::of(rstd, "rstd")?);
    let task = rows_of_task(width);
    let rows = dy.par_chunks(task * width).zip(input.par_chunks(task * width)).zip(rates.par_chunks(task));
    let sum = |((dy, x), rates): ((&[f32], &[f32]), &[f32])| {
        let mut sum = vec![0f32; width];
        for ((dy, x), rate) in dy.chunks_exact(width).zip(x.chunks_exact(width)).zip(rates) {
            vectorize!(sum.iter_mut().zip(dy).zip(x).for_each(|((sum, dy), x)| *sum = (dy * rate).mul_add(*x, *sum)));
        }
        sum
    };
    let parts: Vec<Vec<f32>> = rows.map(sum).collect();
    let mut result = vec![0.0; width];
    parts.iter().for_each(|part| super::linear::add_assign(&mut result, part));
    host::tensor(result, &[width])
}

/// Computes `Σ dy·x·r` over the rows on a device, `[width]` f32, for a `width` above 0. `rates` are the r of the rows,
/// `[rows]` f32; r is 1 if they are `None`.
pub(super) fn device_weight_gradient(
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
fn choose_kernel(width: usize, rows: usize, [narrow, wide]: [&'static Kernel; 2]) -> Result<(&'static Kernel, Grid)> {
    let rows = extent(rows)?;
    Ok(match width {
        ..=NARROW => (narrow, Grid::of(rows.div_ceil(WARPS), THREADS)),
        _ => (wide, Grid::of(rows, THREADS)),
    })
}

/// Writes the normalized row, `x·r·(weight + offset)`, to `y` and returns r = 1/√(mean(x²) + epsilon).
#[inline(always)]
fn forward_row(y: &mut [f32], x: &[f32], weight: &[f32], epsilon: f64, offset: f32) -> f32 {
    let mean = f64::from(dot(x, x)) / x.len() as f64;
    let rate = (1.0 / (mean + epsilon).sqrt()) as f32;
    y.iter_mut().zip(x).zip(weight).for_each(|((y, x), w)| *y = x * rate * (w + offset));
    rate
}

/// Writes the gradient of one row with respect to `x`, `r·(dy·w) − x·r³·mean(dy·w·x)`, to `dx`. `rate` is r, and w is
/// `weight + offset`.
#[inline(always)]
fn backward_row(dx: &mut [f32], dy: &[f32], x: &[f32], weight: &[f32], rate: f32, offset: f32) {
    dx.iter_mut().zip(dy).zip(weight).for_each(|((dx, dy), w)| *dx = dy * (w + offset));
    let mean = fold2(dx, x, |sum, a, b| a.mul_add(b, sum)) / x.len() as f32;
    let pull = -mean * rate * rate * rate;
    dx.iter_mut().zip(x).for_each(|(dx, x)| *dx = x.mul_add(pull, *dx * rate));
}

/// Returns the rows of one task: as many as hold about [`TASK_NUMBERS`] numbers, at least one.
fn rows_of_task(width: usize) -> usize {
    (TASK_NUMBERS / width).max(1)
}

/// Returns the number to add to each number of the weight: 1 if `unit`, else 0.
fn weight_offset(unit: bool) -> f32 {
    if unit { 1.0 } else { 0.0 }
}

/// Returns the length of the last axis of `x`, or [`Error::Shape`] unless it is above 0 and `weight` is a vector of
/// that length.
fn check_width(x: &Tensor, weight: &Tensor) -> Result<usize> {
    match (x.dims().last(), weight.dims()) {
        (Some(width), [same]) if width == same && *width > 0 => Ok(*width),
        _ => {
            Err(Error::shape(format!("`weight` {:?} does not fit the last axis of `x` {:?}", weight.dims(), x.dims())))
        }
    }
}

#[cfg(test)]
mod tests;
