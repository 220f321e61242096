//! Decodes the blocks of GGML's quantized formats, bit for bit as the tensor library does, in loops that the compiler
//! turns into vector instructions: into memory, or straight into dot products.
//!
//! Block layouts are those of the GGUF specification. A block of 32 has one scale; a block of 256 has one scale and
//! smaller scales of 6 or 8 bits for each 32 or 16 numbers.

pub(super) mod formats;

use std::marker::PhantomData;
use std::ops::Range;

use candle_core::{DType, Tensor};
use pulp::{Simd, WithSimd};

use self::formats::{Bf16Block, Nibbles, Q6K, Q8Zero, ScaledNibbles};
use super::simd::{dispatch, vectorize};
use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::{Error, Result};
use crate::weight::{DeviceBlocks, Format, Packed, Scales, unpack_nf4};

/// Converts whole blocks of a GGML format to f32 numbers in `into`; bf16 counts as blocks of 32. Stops at the end of
/// the shorter slice. Does nothing for F32, F16 and NF4; [`unpack_nested`] reads NF4.
pub(super) fn unpack(format: Format, blocks: &[u8], into: &mut [f32]) {
    if let Some((unpack, _)) = block_functions(format) {
        unpack(blocks, into);
    }
}

/// Unpacks blocks one after another.
type Unpack = fn(&[u8], &mut [f32]);
/// Writes the dot products of rows of blocks with a row of numbers.
type Dots = fn(&[u8], &[f32], &mut [f32]);

/// Returns the function that unpacks blocks of a format and the one that computes dot products with them; `None` for
/// F32, F16 and NF4.
fn block_functions(format: Format) -> Option<(Unpack, Dots)> {
    // The layout is a type with a trait method. A function passed as an argument would not be inlined into the vector
    // loop.
    /// Returns both functions for the block layout `B`.
    fn of<B: Block<SIZE, COUNT>, const SIZE: usize, const COUNT: usize>() -> Option<(Unpack, Dots)> {
        Some((unpack_blocks::<B, SIZE, COUNT>, dot_rows::<B, SIZE, COUNT>))
    }
    match format {
        Format::BF16 => of::<Bf16Block, 64, 32>(),
        Format::Q4_0 => of::<Nibbles<false, false>, 18, 32>(),
        Format::Q4_1 => of::<Nibbles<true, false>, 20, 32>(),
        Format::Q5_0 => of::<Nibbles<false, true>, 22, 32>(),
        Format::Q5_1 => of::<Nibbles<true, true>, 24, 32>(),
        Format::Q8_0 => of::<Q8Zero, 34, 32>(),
        Format::Q4_K => of::<ScaledNibbles<false>, 144, 256>(),
        Format::Q5_K => of::<ScaledNibbles<true>, 176, 256>(),
        Format::Q6_K => of::<Q6K, 210, 256>(),
        Format::F32 | Format::F16 | Format::NF4 => None,
    }
}

/// Converts whole blocks of NF4 to f32 numbers in `into`. `scales` are those of the whole matrix; `first` is the index
/// in the matrix of the first of these blocks.
pub(super) fn unpack_nested(scales: &Scales, first: usize, blocks: &[u8], into: &mut [f32]) {
    vectorize!(unpack_nf4(scales, first, blocks, into));
}

/// A format of blocks of `SIZE` bytes that hold `COUNT` numbers.
trait Block<const SIZE: usize, const COUNT: usize> {
    /// Converts one block to f32 numbers.
    fn read(block: &[u8; SIZE], numbers: &mut [f32; COUNT]);
}

/// Converts blocks of one format to f32 numbers, one after another. Stops at the end of the shorter slice.
fn unpack_blocks<B: Block<SIZE, COUNT>, const SIZE: usize, const COUNT: usize>(blocks: &[u8], into: &mut [f32]) {
    vectorize!({
        for (block, numbers) in blocks.as_chunks::<SIZE>().0.iter().zip(into.as_chunks_mut::<COUNT>().0) {
            if COUNT == 32 {
                // Decodes into a local array: the compiler then knows that writes do not change `block`, and
                // vectorizes.
                let mut copy = [0.0; COUNT];
                B::read(block, &mut copy);
                *numbers = copy;
            } else {
                B::read(block, numbers);
            }
        }
    });
}

/// Writes the dot product of each row of blocks with `x`, which is as long as a row, to `into`: each number goes from
/// its block into the sum without a stop in memory. bf16 counts as blocks of 32. Does nothing for F32, F16 and NF4.
///
/// A sum has the order of [`few_tokens`](super::few_tokens). One row follows the other, as they lie in memory: several
/// side by side halve the speed at which the processor fetches them (5 against 11 billion numbers a second on a Zen 5
/// core).
pub(super) fn dot_blocks(format: Format, rows: &[u8], x: &[f32], into: &mut [f32]) {
    if let Some((_, dots)) = block_functions(format) {
        dots(rows, x, into);
    }
}

/// Implements [`dot_blocks`] for the block layout `B`: writes the dot product of each row of blocks with `x` to `into`.
fn dot_rows<B: Block<SIZE, COUNT>, const SIZE: usize, const COUNT: usize>(rows: &[u8], x: &[f32], into: &mut [f32]) {
    dispatch(BlockDots::<B, SIZE, COUNT> { rows, x, into, format: PhantomData });
}

/// The operands of [`dot_rows`]: rows of blocks, the numbers `x` of one row, and the dot products to write, one for
/// each row.
struct BlockDots<'a, B, const SIZE: usize, const COUNT: usize> {
    rows: &'a [u8],
    x: &'a [f32],
    into: &'a mut [f32],
    format: PhantomData<B>,
}

impl<B, const SIZE: usize, const COUNT: usize> WithSimd for BlockDots<'_, B, SIZE, COUNT>
where
    B: Block<SIZE, COUNT>,
{
    type Output = ();

    /// Writes the dot product of each row of blocks with `x` to `into`, one row after another.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let x = self.x.as_chunks::<COUNT>().0;
        let rows = self.rows.as_chunks::<SIZE>().0.chunks_exact(x.len().max(1));
        for (row, into) in rows.zip(self.into) {
            let mut sum = simd.splat_f32s(0.0);
            for (block, x) in row.iter().zip(x) {
                let mut numbers = [0.0; COUNT];
                B::read(block, &mut numbers);
                let ((numbers, _), (x, _)) = (S::as_simd_f32s(&numbers), S::as_simd_f32s(x));
                for part in 0..COUNT / S::F32_LANES {
                    sum = simd.mul_add_f32s(numbers[part], x[part], sum);
                }
            }
            *into = simd.reduce_sum_f32s(sum);
        }
    }
}

/// Which rows of a matrix are read.
#[derive(Debug, Clone)]
pub(super) enum Rows<'a> {
    /// All of them, in order.
    All,
    /// The rows of a range.
    Between(Range<usize>),
    /// The rows of these indices, `[count]` u32 on the device. The host has checked that they are in range.
    Numbered(&'a Tensor),
}

/// Queues unpacking rows of a matrix on a device and multiplying them by `scale`; returns the result, `[count,
/// columns]` in type `act`. Returns an error if the matrix is not on a device, its format is f32, f16 or bf16, or a
/// range of rows ends past the matrix.
pub(super) fn unpack_on_device(
    device: &Accelerator,
    packed: &Packed,
    rows: Rows<'_>,
    scale: f32,
    act: DType,
) -> Result<Tensor> {
    let DeviceBlocks { blocks, groups, dynamic, mean } = packed.device_blocks()?;
    let [known, columns] = packed.sides();
    let (ids, first, number) = match rows {
        Rows::All => (None, 0, known),
        Rows::Between(range) if range.end <= known => (None, range.start, range.len()),
        Rows::Between(range) => {
            return Err(Error::argument(format!("there are rows 0 to {known}, and {range:?} were asked for")));
        }
        Rows::Numbered(ids) => (Some(ids), 0, ids.elem_count()),
    };
    let (groups, dynamic, fault) = (groups.as_ref(), dynamic.as_ref(), Argument::FaultWord);
    let arguments = arguments![blocks, ids, number, columns, first, known, scale, groups, dynamic, *mean, fault];
    device.compute(unpack_kernel(packed.format())?, act, device.flat(number * columns), &[number, columns], &arguments)
}

/// Queues unpacking consecutive rows of a matrix on the matrix's device; returns them as `[rows, columns]` f32. Returns
/// an error if the matrix is on the CPU or the rows end past the matrix.
pub(crate) fn rows_on_device(packed: &Packed, rows: Range<usize>) -> Result<Tensor> {
    match Accelerator::of(packed.device())? {
        Some(device) => unpack_on_device(&device, packed, Rows::Between(rows), 1.0, DType::F32),
        None => Err(Error::argument("the matrix is not on a device")),
    }
}

/// Returns the kernel that unpacks a format into the type of activations.
///
/// # Errors
/// [`Error::Dtype`] for f32, f16 and bf16, which have no blocks.
fn unpack_kernel(format: Format) -> Result<&'static kernel::Kernel> {
    Ok(match format {
        Format::Q4_0 => &kernel::UNPACK_Q4_0,
        Format::Q4_1 => &kernel::UNPACK_Q4_1,
        Format::Q5_0 => &kernel::UNPACK_Q5_0,
        Format::Q5_1 => &kernel::UNPACK_Q5_1,
        Format::Q8_0 => &kernel::UNPACK_Q8_0,
        Format::Q4_K => &kernel::UNPACK_Q4_K,
        Format::Q5_K => &kernel::UNPACK_Q5_K,
        Format::Q6_K => &kernel::UNPACK_Q6_K,
        Format::NF4 => &kernel::UNPACK_NF4,
        Format::F32 | Format::F16 | Format::BF16 => {
            return Err(Error::dtype(format!("numbers in {format:?} are no blocks")));
        }
    })
}

#[cfg(test)]
pub(in crate::fused) mod tests;
