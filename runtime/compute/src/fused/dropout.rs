//! Dropout whose mask is a function of its name, so that a second forward pass applies the same mask, on any device.

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::{accelerator_of, accelerator_with};
use super::device::expect_type;
use super::host;
use super::linear::{linear, linear_input_gradient, linear_weight_gradient};
use super::low_rank::{self, AdaptedGradient, LowRank};
use super::residual::add;
use crate::accelerator::{Grid, arguments, extent, kernel};
use crate::error::Result;
use crate::random::Stream;
use crate::weight::WeightRef;

/// Numbers of a mask that one task draws.
const TASK: usize = 1 << 12;
/// Threads of a device's block. Each makes 16 numbers, those of a block of the stream.
const THREADS: u32 = 256;

/// Dropout at one place of one pass.
#[derive(Debug, Clone)]
pub struct Dropout {
    /// The share of values that become 0, in `[0, 1)`.
    pub rate: f32,
    /// The seed of the run.
    pub seed: u64,
    /// Names the pass and the place.
    pub name: String,
}

impl Dropout {
    /// Replaces a random share `rate` of the values by 0 and multiplies the others by 1/(1 − rate). The mask depends
    /// only on the seed and the name, so applying it to the gradient by the result gives the gradient by the values.
    pub fn apply(&self, values: &Tensor) -> Result<Tensor> {
        let widened = 1.0 / (1.0 - self.rate);
        if let Some(device) = accelerator_of([(values, "values")])? {
            let (act, numbers) = (expect_type(values, "values")?, values.elem_count());
            let key = device.upload(&Stream::new(self.seed, &self.name).key(), &[8])?;
            let grid = Grid::of(extent(numbers.div_ceil(16 * THREADS as usize))?, THREADS);
            let arguments = arguments![values, &key, 0u64, numbers as u64, self.rate, widened];
            return device.compute(&kernel::DROPOUT, act, grid, values.dims(), &arguments);
        }
        let mut mask = vec![widened; values.elem_count()];
        mask.par_chunks_mut(TASK).enumerate().for_each(|(task, mask)| {
            // A number takes one word, so each task knows where its own begin.
            let mut stream = Stream::at(self.seed, &self.name, (task * TASK) as u64);
            mask.iter_mut().filter(|_| stream.uniform() < self.rate).for_each(|factor| *factor = 0.0);
        });
        let mask = Tensor::from_vec(mask, values.shape(), values.device())?;
        Ok((values * mask)?)
    }
}

/// Computes `x·Wᵀ + b + s·(drop(x)·Aᵀ)·Bᵀ`: dropout applies only to the input of the adapter. Returns the output,
/// `[tokens, out]`, and `drop(x)·Aᵀ`, `[tokens, rank]`, which the gradients need.
pub fn dropout_linear<'w>(
    x: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    bias: Option<&Tensor>,
    low: &LowRank,
    dropout: &Dropout,
) -> Result<(Tensor, Tensor)> {
    let weight = weight.into();
    if let Some(device) = accelerator_with([(x, "x"), (&low.a, "a"), (&low.b, "b")], weight)? {
        return low_rank::on_device(&device, x, weight, bias, low, Some(dropout));
    }
    let output = linear(x, weight, bias)?;
    let reduced = linear(&dropout.apply(x)?, &low.a, None)?;
    let added = linear(&reduced, &scaled_up(low)?, None)?;
    Ok((add(&output, &added)?, reduced))
}

/// Computes the gradients of [`dropout_linear`] by A, by B and, if `want_input`, by x. `reduced` is the `drop(x)·Aᵀ`
/// that the forward pass returned; `dropout` must be that of the forward pass.
pub fn dropout_linear_backward<'w>(
    dy: &Tensor,
    x: &Tensor,
    reduced: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
    dropout: &Dropout,
    want_input: bool,
) -> Result<AdaptedGradient> {
    let weight = weight.into();
    let operands = [(dy, "dy"), (x, "x"), (reduced, "reduced"), (&low.a, "a"), (&low.b, "b")];
    if let Some(device) = accelerator_with(operands, weight)? {
        let ((tokens, _), (outputs, rank)) = (host::matrix(dy, "dy")?, host::matrix(&low.b, "b")?);
        host::expect(dy, "dy", &[tokens, outputs])?;
        host::expect(reduced, "reduced", &[tokens, rank])?;
        let dropout = Some(dropout);
        return low_rank::backward_on_device(&device, dy, x, reduced, weight, low, dropout, want_input);
    }
    let thin = linear_input_gradient(dy, &scaled_up(low)?)?;
    let up = linear_weight_gradient(dy, reduced)?;
    let b = (up * f64::from(low.scale))?;
    let a = linear_weight_gradient(&thin, &dropout.apply(x)?)?;
    let input = || add(&linear_input_gradient(dy, weight)?, &dropout.apply(&linear_input_gradient(&thin, &low.a)?)?);
    Ok(AdaptedGradient { input: want_input.then(input).transpose()?, a, b })
}

/// Returns s·B, `[out, rank]`.
fn scaled_up(low: &LowRank) -> Result<Tensor> {
    Ok((&low.b * f64::from(low.scale))?)
}

#[cfg(test)]
mod tests;
