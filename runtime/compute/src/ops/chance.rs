//! New tensors of random numbers, from a seeded sequence that goes on only when the numbers are made.

use candle_core::{DType, Device, Tensor};

use super::create::make;
use super::{Admit, Made};
use crate::error::Result;
use crate::random::Stream;

/// Independent standard normal numbers, as `f32`, from a random sequence.
///
/// # Errors
/// As [`super::zeros`]; the sequence then stays where it was.
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
