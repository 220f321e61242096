//! Elementwise operations on the CPU, chunk by chunk: bf16 activations are converted to f32, computed and rounded while
//! they are in the processor's cache.

use std::array::from_fn;

use candle_core::{DType, Device, Tensor, WithDType};
use half::bf16;
use rayon::prelude::*;

use super::host::{self, Locked, round_all, widen_all, zeros};
use super::product::Data;
use super::scratch;
use crate::error::Result;

/// Computes `O` tensors from `I` tensors of one shape, f32 or bf16, on the CPU; the results have the shape and type of
/// the first operand. Calls `fill` with the index of each chunk of `size` numbers (at least 1), the chunk of each
/// operand, and for each result the numbers to write, all in f32, in tasks on several threads. `fill` must write all of
/// them: they hold unspecified numbers before. The last chunk may be shorter. Each operand comes with its name for
/// errors.
///
/// # Errors
/// If an operand has another shape than the first, is neither f32 nor bf16, not on the CPU, or not contiguous.
pub(super) fn map_chunks<const I: usize, const O: usize>(
    operands: [(&Tensor, &str); I],
    size: usize,
    fill: impl Fn(usize, [&[f32]; I], [&mut [f32]; O]) + Sync,
) -> Result<[Result<Tensor>; O]> {
    let (shape, dtype) = (operands[0].0.dims(), operands[0].0.dtype());
    operands.iter().try_for_each(|(operand, name)| host::expect_shape(operand, name, shape))?;
    let locked = operands.iter().map(|(operand, name)| Locked::of(operand, name)).collect::<Result<Vec<_>>>()?;
    let data = locked.iter().zip(&operands).map(|(locked, (_, name))| locked.data(name)).collect::<Result<Vec<_>>>()?;
    let compute = |index: usize, buffer: &mut [f32], outputs: [&mut [f32]; O]| {
        let count = outputs[0].len();
        let range = index * size..index * size + count;
        let mut buffers = buffer.chunks_exact_mut(count);
        fill(index, from_fn(|operand| floats(data[operand].part(range.clone()), buffers.next())), outputs);
    };
    if dtype != DType::BF16 {
        let widened = if data.iter().all(|data| matches!(data, Data::F32(_))) { 0 } else { I };
        return Ok(tensors_of_chunks(shape, size, |index, outputs: [&mut [f32]; O]| {
            scratch::with(widened * outputs[0].len(), |buffer| compute(index, buffer, outputs));
        }));
    }
    Ok(tensors_of_chunks(shape, size, |index, rounded: [&mut [bf16]; O]| {
        let count = rounded[0].len();
        scratch::with_parts([I * count, O * count], |[buffer, numbers]| {
            let mut parts = numbers.chunks_exact_mut(count);
            compute(index, buffer, from_fn(|_| parts.next().unwrap_or_default()));
            rounded.into_iter().zip(numbers.chunks_exact(count)).for_each(|(rounded, from)| round_all(from, rounded));
        });
    }))
}

/// Returns numbers as f32: f32 as they are, bf16 converted into `buffer`. The caller passes a `buffer` of the same
/// length for bf16; without one, the result is empty.
fn floats<'a>(data: Data<'a>, buffer: Option<&'a mut [f32]>) -> &'a [f32] {
    match data {
        Data::F32(numbers) => numbers,
        Data::Bf16(numbers) => {
            let buffer = buffer.unwrap_or_default();
            widen_all(numbers, buffer);
            buffer
        }
    }
}

/// Makes `O` tensors of `shape` on the CPU. Calls `fill` with the index of each chunk of `size` numbers and with that
/// chunk of each tensor, filled with zeros, in tasks on several threads. The last chunk may be shorter; none is empty.
/// `size` is at least 1.
fn tensors_of_chunks<T: WithDType + Default, const O: usize>(
    shape: &[usize],
    size: usize,
    fill: impl Fn(usize, [&mut [T]; O]) + Sync,
) -> [Result<Tensor>; O] {
    let count: usize = shape.iter().product();
    let mut numbers: [Vec<T>; O] = from_fn(|_| zeros(count));
    let mut chunks = numbers.each_mut().map(|numbers| numbers.chunks_mut(size));
    let next = |_| chunks.each_mut().map(|chunks| chunks.next().unwrap_or_default());
    let tasks: Vec<[&mut [T]; O]> = (0..count.div_ceil(size)).map(next).collect();
    tasks.into_par_iter().enumerate().for_each(|(index, outputs)| fill(index, outputs));
    numbers.map(|numbers| Ok(Tensor::from_vec(numbers, shape, &Device::Cpu)?))
}
