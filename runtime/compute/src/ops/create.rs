//! Creates tensors: constants, arithmetic sequences, lists, and random numbers from a seeded stream. Every function
//! checks the shape and charges the budget before it computes a number; the stream advances only if the numbers are
//! computed.

use candle_core::{DType, Device, Tensor};

use super::{Estimate, Kind, Meter, Output, check};
use crate::error::{Error, Result, ensure};
use crate::random::Stream;

/// Creates a tensor of zeros.
///
/// # Errors
/// [`Error::Shape`] for a shape that is not allowed, and the error of `budget` if the operation exceeds a memory, work
/// or time limit.
pub fn zeros(budget: &mut dyn Meter, device: &Device, shape: &[u32], dtype: DType) -> Result<Output> {
    create_tensor(budget, shape, dtype, |dims| Ok(Tensor::zeros(dims, dtype, device)?))
}

/// Creates a tensor of ones.
///
/// # Errors
/// [`Error::Shape`] for a shape that is not allowed, and the error of `budget` if the operation exceeds a memory, work
/// or time limit.
pub fn ones(budget: &mut dyn Meter, device: &Device, shape: &[u32], dtype: DType) -> Result<Output> {
    create_tensor(budget, shape, dtype, |dims| Ok(Tensor::ones(dims, dtype, device)?))
}

/// Creates an `f32` tensor of which every element is `value`.
///
/// # Errors
/// [`Error::Shape`] for a shape that is not allowed, [`Error::Argument`] if `value` is not finite, and the error of
/// `budget` if the operation exceeds a memory, work or time limit.
pub fn full(budget: &mut dyn Meter, device: &Device, shape: &[u32], value: f32) -> Result<Output> {
    check::expect_finite(f64::from(value), "value")?;
    create_tensor(budget, shape, DType::F32, |dims| Ok(Tensor::full(value, dims, device)?.contiguous()?))
}

/// Creates the `f32` tensor `[count]` of `start`, `start + step`, `start + 2·step`, … Each number is computed from its
/// index in f64, so that rounding errors do not add up.
///
/// # Errors
/// [`Error::Shape`] if `count` is 0 or too large, [`Error::Argument`] if an argument or the last number is not finite,
/// and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn arange(budget: &mut dyn Meter, device: &Device, start: f32, step: f32, count: u32) -> Result<Output> {
    check::expect_finite(f64::from(start), "start")?;
    check::expect_finite(f64::from(step), "step")?;
    let number = move |place: u32| (f64::from(start) + f64::from(step) * f64::from(place)) as f32;
    check::expect_finite(f64::from(number(count.saturating_sub(1))), "the last number")?;
    create_tensor(budget, &[count], DType::F32, |dims| {
        let numbers: Vec<f32> = (0..count).map(number).collect();
        Ok(Tensor::from_vec(numbers, dims, device)?)
    })
}

/// Creates an `f32` tensor from numbers in row-major order. They may be NaN or infinite.
///
/// # Errors
/// [`Error::Shape`] if the shape is not allowed or does not have `values.len()` elements, and the error of `budget` if
/// the operation exceeds a memory, work or time limit.
pub fn from_list(budget: &mut dyn Meter, device: &Device, values: Vec<f32>, shape: &[u32]) -> Result<Output> {
    check_count(values.len(), shape)?;
    create_tensor(budget, shape, DType::F32, |dims| Ok(Tensor::from_vec(values, dims, device)?))
}

/// Creates a `u32` tensor from indices in row-major order.
///
/// # Errors
/// [`Error::Shape`] if the shape is not allowed or does not have `values.len()` elements, and the error of `budget` if
/// the operation exceeds a memory, work or time limit.
pub fn from_indices(budget: &mut dyn Meter, device: &Device, values: Vec<u32>, shape: &[u32]) -> Result<Output> {
    check_count(values.len(), shape)?;
    create_tensor(budget, shape, DType::U32, |dims| Ok(Tensor::from_vec(values, dims, device)?))
}

/// Creates an `f32` tensor of independent standard normal numbers from the random stream `sequence`, two words each.
///
/// # Errors
/// [`Error::Shape`] for a shape that is not allowed, and the error of `budget` if the operation exceeds a memory, work
/// or time limit; the stream then does not advance.
pub fn randn(budget: &mut dyn Meter, device: &Device, sequence: &mut Stream, shape: &[u32]) -> Result<Output> {
    create_tensor(budget, shape, DType::F32, |dims| {
        let count = dims.iter().product();
        Ok(Tensor::from_vec(sequence.normals(count), dims, device)?)
    })
}

/// Creates an `f32` tensor of independent uniform numbers in [0, 1) from the random stream `sequence`, one word each.
///
/// # Errors
/// [`Error::Shape`] for a shape that is not allowed, and the error of `budget` if the operation exceeds a memory, work
/// or time limit; the stream then does not advance.
pub fn rand(budget: &mut dyn Meter, device: &Device, sequence: &mut Stream, shape: &[u32]) -> Result<Output> {
    create_tensor(budget, shape, DType::F32, |dims| {
        let count = dims.iter().product();
        Ok(Tensor::from_vec(sequence.uniforms(count), dims, device)?)
    })
}

/// Creates a `u32` tensor of 0 … `count` − 1 in random order, drawn from the random stream `sequence`.
///
/// # Errors
/// [`Error::Shape`] if `count` is 0 or too large, and the error of `budget` if the operation exceeds a memory, work or
/// time limit; the stream then does not advance.
pub fn randperm(budget: &mut dyn Meter, device: &Device, sequence: &mut Stream, count: u32) -> Result<Output> {
    create_tensor(budget, &[count], DType::U32, |dims| {
        Ok(Tensor::from_vec(sequence.permutation(count as usize), dims, device)?)
    })
}

/// Checks a shape, charges `budget`, and then calls `numbers` with the dimensions to create the tensor, which is in no
/// autograd graph. Does not call `numbers` if the check or the charge fails, but returns that error.
fn create_tensor(
    budget: &mut dyn Meter,
    shape: &[u32],
    dtype: DType,
    numbers: impl FnOnce(Vec<usize>) -> Result<Tensor>,
) -> Result<Output> {
    let dims = check::shape(shape)?;
    Estimate::new(Kind::Create, &dims, dtype, &[])?.run_within_budget(budget, || numbers(dims))
}

/// Returns [`Error::Shape`] if a shape is not allowed or does not hold exactly `count` elements.
fn check_count(count: usize, shape: &[u32]) -> Result<()> {
    let dims = check::shape(shape)?;
    let fits = check::elements(&dims)? == count as u64;
    ensure(fits, || Error::shape(format!("{count} numbers do not fill {dims:?}")))
}
