//! New tensors: constant, counted, from a list, of random numbers from a seeded sequence that advances only when the numbers
//! are made. Shapes and counts are checked and paid for before a number is made.

use candle_core::{DType, Device, Tensor};

use super::{Admit, Estimate, Kind, Made, check};
use crate::error::{Error, Result};
use crate::random::Stream;

/// All elements 0.
///
/// # Errors
/// [`Error::Shape`] for a shape that is not allowed, and what `budget` refuses; so for every function of this file.
pub fn zeros(budget: &mut dyn Admit, device: &Device, shape: &[u32], dtype: DType) -> Result<Made> {
    make(budget, shape, dtype, |dims| Ok(Tensor::zeros(dims, dtype, device)?))
}

/// All elements 1.
///
/// # Errors
/// As [`zeros`].
pub fn ones(budget: &mut dyn Admit, device: &Device, shape: &[u32], dtype: DType) -> Result<Made> {
    make(budget, shape, dtype, |dims| Ok(Tensor::ones(dims, dtype, device)?))
}

/// All elements `value`, as `f32`.
///
/// # Errors
/// As [`zeros`], and [`Error::Argument`] if `value` is not finite.
pub fn full(budget: &mut dyn Admit, device: &Device, shape: &[u32], value: f32) -> Result<Made> {
    check::finite(f64::from(value), "value")?;
    make(budget, shape, DType::F32, |dims| Ok(Tensor::full(value, dims, device)?.contiguous()?))
}

/// `start`, `start` + `step`, … , `count` numbers, as `f32`; each computed from its place, not from the one before.
///
/// # Errors
/// As [`zeros`], and [`Error::Argument`] if an argument or the last number is not finite.
pub fn sequence(budget: &mut dyn Admit, device: &Device, start: f32, step: f32, count: u32) -> Result<Made> {
    check::finite(f64::from(start), "start")?;
    check::finite(f64::from(step), "step")?;
    let number = move |place: u32| (f64::from(start) + f64::from(step) * f64::from(place)) as f32;
    check::finite(f64::from(number(count.saturating_sub(1))), "the last number")?;
    make(budget, &[count], DType::F32, |dims| {
        let numbers: Vec<f32> = (0..count).map(number).collect();
        Ok(Tensor::from_vec(numbers, dims, device)?)
    })
}

/// The numbers of a list, as `f32`. They may be NaN or infinite.
///
/// # Errors
/// As [`zeros`], and [`Error::Shape`] if the shape holds another number of elements.
pub fn from_list(budget: &mut dyn Admit, device: &Device, values: Vec<f32>, shape: &[u32]) -> Result<Made> {
    fits(values.len(), shape)?;
    make(budget, shape, DType::F32, |dims| Ok(Tensor::from_vec(values, dims, device)?))
}

/// Indices of a list, as `u32`.
///
/// # Errors
/// As [`from_list`].
pub fn from_indices(budget: &mut dyn Admit, device: &Device, values: Vec<u32>, shape: &[u32]) -> Result<Made> {
    fits(values.len(), shape)?;
    make(budget, shape, DType::U32, |dims| Ok(Tensor::from_vec(values, dims, device)?))
}

/// Independent standard normal numbers, as `f32`, from a random sequence.
///
/// # Errors
/// As [`zeros`]; the sequence then stays where it was.
pub fn random_normal(budget: &mut dyn Admit, device: &Device, sequence: &mut Stream, shape: &[u32]) -> Result<Made> {
    make(budget, shape, DType::F32, |dims| {
        let count = dims.iter().product();
        Ok(Tensor::from_vec(sequence.normals(count), dims, device)?)
    })
}

/// Independent numbers in [0, 1), as `f32`, from a random sequence.
///
/// # Errors
/// As [`random_normal`].
pub fn random_uniform(budget: &mut dyn Admit, device: &Device, sequence: &mut Stream, shape: &[u32]) -> Result<Made> {
    make(budget, shape, DType::F32, |dims| {
        let count = dims.iter().product();
        Ok(Tensor::from_vec(sequence.uniforms(count), dims, device)?)
    })
}

/// A random order of 0 … `count` − 1, as `u32`, from a random sequence.
///
/// # Errors
/// As [`random_normal`].
pub fn random_permutation(budget: &mut dyn Admit, device: &Device, sequence: &mut Stream, count: u32) -> Result<Made> {
    make(budget, &[count], DType::U32, |dims| Ok(Tensor::from_vec(sequence.permutation(count as usize), dims, device)?))
}

/// Checks a shape, pays for it, and makes the tensor from its dimensions.
fn make(
    budget: &mut dyn Admit,
    shape: &[u32],
    dtype: DType,
    numbers: impl FnOnce(Vec<usize>) -> Result<Tensor>,
) -> Result<Made> {
    let dims = check::shape(shape)?;
    Estimate::new(Kind::Create, &dims, dtype, &[])?.pay(budget, || numbers(dims))
}

/// Refuses a list whose length is not the number of elements of the shape.
fn fits(count: usize, shape: &[u32]) -> Result<()> {
    let dims = check::shape(shape)?;
    if check::elements(&dims)? == count as u64 {
        return Ok(());
    }
    Err(Error::shape(format!("{count} numbers do not fill {dims:?}")))
}
