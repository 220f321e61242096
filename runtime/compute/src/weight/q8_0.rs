//! Q8_0 as GGML computes it: 32 numbers of a row share a scale, the largest magnitude ÷ 127 in f16. A block is the
//! scale and the 32 multiples of it, rounded to whole numbers, as 8-bit integers.

use half::f16;
use rayon::prelude::*;

use super::WeightRef;
use super::format::Format;
use crate::error::{Error, Result};

/// Numbers of a block.
const BLOCK: usize = 32;
/// Bytes of a block.
const BLOCK_BYTES: usize = 2 + BLOCK;
/// Numbers that one task quantizes.
const TASK: usize = 1 << 16;

/// Quantizes a matrix of the CPU, `[rows, columns]`, and returns the bytes of its blocks. Works on about [`TASK`]
/// numbers at a time, in whole rows, in parallel.
///
/// # Errors
/// [`Error::Shape`] when a row is empty or not whole blocks, [`Error::Argument`] when a number is not finite or its
/// scale is too large for f16. Also when the matrix is on an accelerator or in a type that cannot be read.
pub(super) fn quantize(weight: WeightRef<'_>, rows: usize, columns: usize) -> Result<Vec<u8>> {
    let bytes = Format::Q8_0.bytes(rows, columns).filter(|_| columns > 0).ok_or_else(|| {
        Error::shape(format!("rows of {columns} numbers are not whole blocks of {BLOCK}, as Q8_0 needs"))
    })?;
    let row = columns / BLOCK * BLOCK_BYTES;
    let some = (TASK / columns).max(1);
    let mut bytes = vec![0; bytes];
    bytes.par_chunks_mut(some * row).enumerate().try_for_each(|(task, bytes)| {
        let first = task * some;
        weight.with_rows(first..first + bytes.len() / row, |numbers| pack(numbers, bytes))?
    })?;
    Ok(bytes)
}

/// Quantizes whole blocks of 32 `numbers` into `blocks`. A block of zeros has the scale 0.
fn pack(numbers: &[f32], blocks: &mut [u8]) -> Result<()> {
    let blocks = blocks.as_chunks_mut::<BLOCK_BYTES>().0;
    for (numbers, block) in numbers.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        let scale = numbers.iter().fold(0.0_f32, |most, one| most.max(one.abs())) / 127.0;
        // The maximum leaves out what is no number.
        if numbers.iter().any(|one| one.is_nan()) || !f16::from_f32(scale).is_finite() {
            return Err(Error::argument("a weight that is not a finite number cannot be quantized to Q8_0".to_owned()));
        }
        // Multiplied by the reciprocal of the unrounded scale, as GGML does.
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        for (byte, number) in block[2..].iter_mut().zip(numbers) {
            *byte = ((number * inverse).round() as i8).cast_unsigned();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
