//! NF4 with double quantization, as QLoRA defines it (arXiv:2305.14314) and bitsandbytes computes it.
//!
//! 64 numbers of a row share their largest magnitude; each is the nearest of sixteen levels times that. The magnitudes,
//! less the mean of all in the matrix, are kept in 8 bits: 256 of them, in the order of the matrix, share their own
//! largest magnitude in f32. A block is the byte of its magnitude and 32 bytes of levels: the first half of its
//! numbers in the lower four bits, the second half in the upper ones.

use rayon::prelude::*;

use super::WeightRef;
use crate::dynamic::{SIGNED, nearest};
use crate::error::{Error, Result};

/// Numbers of a block.
pub(super) const BLOCK: usize = 64;
/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 1 + BLOCK / 2;
/// Blocks whose magnitudes share a scale.
const GROUP: usize = 256;
/// Numbers that one task quantizes.
const TASK: usize = 1 << 16;

/// The levels of NF4: quantiles of a normal distribution, 0 and both ends among them.
pub(crate) const LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The midpoints of adjacent levels: a number above the midpoint of two levels is nearer to the upper one.
const BETWEEN: [f32; 15] = {
    let mut between = [0.0; 15];
    let mut at = 0;
    while at < 15 {
        between[at] = ((LEVELS[at] as f64 + LEVELS[at + 1] as f64) / 2.0) as f32;
        at += 1;
    }
    between
};

/// The scales that the blocks of an NF4 matrix share.
#[derive(Debug)]
pub(crate) struct Scales {
    /// For each group of [`GROUP`] blocks, the largest absolute difference of a block's magnitude from the mean.
    pub(super) groups: Vec<f32>,
    /// The mean of the magnitudes of all blocks.
    pub(super) mean: f32,
}

impl Scales {
    /// The magnitude (scale) of block number `block` of the matrix, decoded from the block's first byte `byte`: value
    /// number `byte` of [`SIGNED`], times the scale of the block's group, plus the mean.
    #[inline(always)]
    fn magnitude(&self, block: usize, byte: u8) -> f32 {
        SIGNED[usize::from(byte)] * self.groups[block / GROUP] + self.mean
    }

    /// Bytes that the scales take: 4 for each group and 4 for the mean.
    pub(super) fn bytes(&self) -> usize {
        4 * (self.groups.len() + 1)
    }

    /// Bytes that the scales of a matrix with `blocks` blocks take: 4 for each group of [`GROUP`] blocks, the last of
    /// which may be smaller, and 4 for the mean.
    pub(super) fn bytes_of(blocks: usize) -> usize {
        4 * (blocks.div_ceil(GROUP) + 1)
    }

    /// Quantizes the magnitudes of all blocks to 8 bits, writes each into the first byte of its block in `blocks`, and
    /// returns the shared scales. The byte is the index of the value of [`SIGNED`] that is nearest to (magnitude −
    /// mean) / scale of the group, and 127 (the value 0) in a group whose scale is 0.
    fn of(magnitudes: &[f32], blocks: &mut [u8]) -> Self {
        let sum: f64 = magnitudes.iter().map(|magnitude| f64::from(*magnitude)).sum();
        let mean = (sum / magnitudes.len().max(1) as f64) as f32;
        let groups = magnitudes.chunks(GROUP).map(|group| largest(group.iter().map(|magnitude| magnitude - mean)));
        let scales = Self { groups: groups.collect(), mean };
        for (at, (magnitude, block)) in magnitudes.iter().zip(blocks.as_chunks_mut::<BLOCK_BYTES>().0).enumerate() {
            let scale = scales.groups[at / GROUP];
            block[0] = if scale == 0.0 { 127 } else { nearest(&SIGNED, (magnitude - mean) / scale) };
        }
        scales
    }
}

/// Decodes the whole NF4 blocks in `blocks` into f32 numbers, 64 for each. `first` is the index of the first of these
/// blocks in its matrix, by which its scale is found. Ends where `blocks` or `into` has no whole block left.
#[inline(always)]
pub(crate) fn unpack(scales: &Scales, first: usize, blocks: &[u8], into: &mut [f32]) {
    let blocks = blocks.as_chunks::<BLOCK_BYTES>().0.iter().zip(into.as_chunks_mut::<BLOCK>().0);
    for (at, (block, numbers)) in blocks.enumerate() {
        let magnitude = scales.magnitude(first + at, block[0]);
        let levels = LEVELS.map(|level| level * magnitude);
        let (low, high) = numbers.split_at_mut(BLOCK / 2);
        for (pair, (low, high)) in block[1..].iter().zip(low.iter_mut().zip(high)) {
            *low = levels[usize::from(pair & 15)];
            *high = levels[usize::from(pair >> 4)];
        }
    }
}

/// Quantizes a matrix of the CPU, `[rows, columns]`, to NF4 and returns (the bytes of its blocks, each with its
/// magnitude in 8 bits, and the [`Scales`] that decode these magnitudes). Works on about [`TASK`] numbers at a time, in
/// whole rows, in parallel.
///
/// # Errors
/// [`Error::Shape`] when a row is empty or not whole blocks, [`Error::Argument`] when a number is not finite. Also when
/// the matrix is on an accelerator or in a type that cannot be read.
pub(super) fn quantize(weight: WeightRef<'_>, rows: usize, columns: usize) -> Result<(Vec<u8>, Scales)> {
    if !columns.is_multiple_of(BLOCK) || columns == 0 {
        return Err(Error::shape(format!("rows of {columns} numbers are not whole blocks of {BLOCK}, as NF4 needs")));
    }
    let blocks = columns / BLOCK;
    let some = (TASK / columns).max(1);
    let mut bytes = vec![0; rows * blocks * BLOCK_BYTES];
    let mut magnitudes = vec![0.0; rows * blocks];
    let tasks = bytes.par_chunks_mut(some * blocks * BLOCK_BYTES).zip(magnitudes.par_chunks_mut(some * blocks));
    tasks.enumerate().try_for_each(|(task, (bytes, magnitudes))| {
        let first = task * some;
        weight.with_rows(first..first + magnitudes.len() / blocks, |numbers| {
            quantize_blocks(numbers, bytes, magnitudes)
        })?
    })?;
    let scales = Scales::of(&magnitudes, &mut bytes);
    Ok((bytes, scales))
}

/// Quantizes whole blocks of 64 `numbers`: divides each number by the largest magnitude of its block (by 1 if that is
/// 0), writes the index of the nearest of [`LEVELS`] into its 4 bits of `blocks`, and the largest magnitudes into
/// `magnitudes`. The first byte of each block is not written. Fails for a number that is not finite.
fn quantize_blocks(numbers: &[f32], blocks: &mut [u8], magnitudes: &mut [f32]) -> Result<()> {
    let blocks = blocks.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().zip(magnitudes);
    for (numbers, (block, magnitude)) in numbers.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err(Error::argument("a weight that is not a finite number cannot be quantized to NF4".to_owned()));
        }
        *magnitude = largest(numbers.iter().copied());
        // A block of zeros is divided by 1, not by 0; its numbers are nearest to the level 0.
        let scale = if *magnitude == 0.0 { 1.0 } else { *magnitude };
        let (low, high) = numbers.split_at(BLOCK / 2);
        for (pair, (low, high)) in block[1..].iter_mut().zip(low.iter().zip(high)) {
            *pair = nearest_level(low / scale) | nearest_level(high / scale) << 4;
        }
    }
    Ok(())
}

/// The largest absolute value; 0 for no numbers.
fn largest(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(0.0, |largest, number| largest.max(number.abs()))
}

/// The index of the nearest of [`LEVELS`], the lower one of two equally near.
#[inline(always)]
fn nearest_level(number: f32) -> u8 {
    BETWEEN.iter().map(|between| u8::from(number > *between)).sum()
}

#[cfg(test)]
mod tests;
