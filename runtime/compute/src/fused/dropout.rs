//! Dropout whose mask is a function of its name, so that a second forward pass applies the same mask, on any device.

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::accelerator_of;
use super::device::expect_type;
use super::host;
use crate::accelerator::{Grid, arguments, extent, kernel};
use crate::error::Result;
use crate::random::Stream;

/// Numbers of a mask that one task draws.
const TASK: usize = 1 << 12;
/// Threads of a device's block. Each makes 16 numbers, those of a block of the stream.
const THREADS: u32 = 256;

/// Dropout at one place of the model during one pass.
#[derive(Debug, Clone)]
pub struct Dropout {
    /// The share of values that become 0, in `[0, 1)`.
    pub rate: f32,
    /// The seed of the run.
    pub seed: u64,
    /// Identifies the pass and the place in the model.
    pub name: String,
    /// The number of rows before the first one, in the pass that the name identifies.
    pub first_row: usize,
}

impl Dropout {
    /// Replaces each value by 0 with probability `rate` and multiplies the others by 1/(1 − rate). The result has the
    /// shape and type of `values`, `[rows, columns]`. Value number i is dropped if word `first_row` · columns + i of
    /// the random stream of the seed and the name, as a number in [0, 1), is below `rate`. So the backward pass is a
    /// call of this function on the gradient of the result. Does not check that the rate is in `[0, 1)`. On a device,
    /// queues a kernel. Returns an error if `values` on a device are not f32 or bf16.
    pub fn apply(&self, values: &Tensor) -> Result<Tensor> {
        let widened = 1.0 / (1.0 - self.rate);
        let first = self.first_row * values.dims().last().copied().unwrap_or(1);
        if let Some(device) = accelerator_of([(values, "values")])? {
            let (act, numbers) = (expect_type(values, "values")?, values.elem_count());
            let key = device.upload(&Stream::new(self.seed, &self.name).key(), &[8])?;
            let grid = Grid::of(extent(numbers.div_ceil(16 * THREADS as usize))?, THREADS);
            let arguments = arguments![values, &key, first as u64, numbers as u64, self.rate, widened];
            return device.compute(&kernel::DROPOUT, act, grid, values.dims(), &arguments);
        }
        let mut mask = vec![widened; values.elem_count()];
        mask.par_chunks_mut(TASK).enumerate().for_each(|(task, mask)| {
            // A number takes one word, so each task knows where its own begin.
            let mut stream = Stream::at(self.seed, &self.name, (first + task * TASK) as u64);
            mask.iter_mut().filter(|_| stream.uniform() < self.rate).for_each(|factor| *factor = 0.0);
        });
        let mask = Tensor::from_vec(mask, values.shape(), values.device())?;
        host::in_f32(values, |values| values * mask)
    }
}

#[cfg(test)]
mod tests;
