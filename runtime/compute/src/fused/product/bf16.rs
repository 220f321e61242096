//! Products of bf16 operands with f32 sums.
//!
//! A sum runs over blocks of [`DEPTH`] numbers, within a block in the order of the processor's [`Kernel`]. Each number
//! of a result is summed alone, so its bits do not depend on the rows and columns beside it, only on the kernel.

mod amx;
mod kernel;
mod pack;

use std::ops::Range;

use half::bf16;

use super::{Data, Matrix, Tile, steps};
use crate::fused::host::round_all;
use crate::fused::scratch;
use kernel::{COLUMNS, Kernel, MOST_ROWS, Rows, Target};
use pack::pack_columns;

/// Numbers of a row of the left operand, and of a column of the right one, that are packed at once.
const DEPTH: usize = 1024;
/// Pairs of adjacent numbers in [`DEPTH`]: a panel has a `u32` for each pair and column.
const PAIRS: usize = DEPTH / 2;
/// Depths are filled up with zeros to a multiple of this, where operands are copied.
const DEPTH_UNIT: usize = 32;
/// Numbers between the starts of two rows in a buffer: a line of the cache more than needed, so that the rows do not
/// all compete for the same lines.
const ROW: usize = DEPTH + 32;
/// Rows that lie a multiple of so many numbers apart compete for the same lines of the cache.
const ALIASING: usize = 1024;
/// Columns of the right operand that are packed at once.
const PANEL_COLUMNS: usize = 128;

/// Overwrites the tile by `factor · left · right`, or adds the product to it if `accumulate`. Operands of f32 are
/// rounded to bf16. Runs on the calling thread. The caller has checked the shapes. Leaves the tile as it is if the
/// inner dimension is 0.
pub(super) fn multiply(tile: &mut Tile<'_>, accumulate: bool, factor: f32, left: Matrix<'_>, right: Matrix<'_>) {
    if let Data::F32(numbers) = left.data
        && left.column_stride == 1
        && tile.columns() > PANEL_COLUMNS
    {
        // Else each panel of columns would round the rows again.
        return scratch::with((left.rows * left.columns).div_ceil(2), |buffer| {
            let rounded: &mut [bf16] = bytemuck::cast_slice_mut(buffer);
            for (row, into) in rounded.chunks_exact_mut(left.columns.max(1)).take(left.rows).enumerate() {
                round_all(&numbers[row * left.row_stride..], into);
            }
            let left = Matrix::new(Data::Bf16(rounded), left.rows, left.columns, left.columns);
            multiply(tile, accumulate, factor, left, right);
        });
    }
    let kernel = Kernel::of_this_processor();
    let _tiles = kernel.prepare();
    scratch::with_parts([MOST_ROWS * ROW / 2, PANEL_COLUMNS * PAIRS], |[rows, panels]| {
        let (buffer, panels) = (bytemuck::cast_slice_mut(rows), bytemuck::cast_slice_mut(panels));
        for columns in steps(0..tile.columns(), PANEL_COLUMNS) {
            for depth in steps(0..left.columns, DEPTH) {
                pack_columns(right, depth.clone(), columns.clone(), panels);
                let accumulate = accumulate || depth.start > 0;
                for (rows, height) in kernel.blocks(tile.rows(), tile.columns()) {
                    let numbers = read_rows(left, kernel, rows.clone(), height, depth.clone(), buffer);
                    for (block, panel) in steps(columns.clone(), COLUMNS).zip(panels.chunks_exact(PAIRS * COLUMNS)) {
                        let target = Target { tile: tile.part(rows.clone(), block), accumulate, factor };
                        kernel.multiply(numbers, panel, depth.len().div_ceil(2), target);
                    }
                }
            }
        }
    });
}

/// Returns the columns `depth` of some rows of a matrix in bf16, as `height` rows. They are returned as they lie in
/// memory if they are `height` rows of bf16 without gaps, as many columns as `kernel` reads at a time, and their row
/// stride is no multiple of [`ALIASING`]. Else they are copied to `buffer`, each row followed by zeros up to a multiple
/// of [`DEPTH_UNIT`]; rows
/// of the buffer past the last one have any content.
fn read_rows<'a>(
    matrix: Matrix<'a>,
    kernel: Kernel,
    rows: Range<usize>,
    height: usize,
    depth: Range<usize>,
    buffer: &'a mut [bf16],
) -> Rows<'a> {
    let Matrix { row_stride, column_stride, .. } = matrix;
    let whole = rows.len() == height && depth.len().is_multiple_of(kernel.depth_unit());
    let whole = whole && !row_stride.is_multiple_of(ALIASING);
    match matrix.data {
        Data::Bf16(data) if column_stride == 1 && whole => {
            return Rows { numbers: &data[rows.start * row_stride + depth.start..], stride: row_stride, count: height };
        }
        _ => {}
    }
    for (row, into) in rows.zip(buffer.chunks_exact_mut(ROW)) {
        let (into, after) = into.split_at_mut(depth.len());
        let start = row * row_stride + depth.start * column_stride;
        match matrix.data {
            Data::F32(data) if column_stride == 1 => round_all(&data[start..], into),
            Data::Bf16(data) if column_stride == 1 => into.copy_from_slice(&data[start..][..depth.len()]),
            Data::F32(data) => gather(&data[start..], column_stride, into, |number| bf16::from_bits(round(number))),
            Data::Bf16(data) => gather(&data[start..], column_stride, into, |number| number),
        }
        after[..into.len().next_multiple_of(DEPTH_UNIT) - into.len()].fill(bf16::ZERO);
    }
    Rows { numbers: buffer, stride: ROW, count: height }
}

/// Fills `into` with the numbers of `from` at the indices 0, `stride`, 2 · `stride`, …, converted by `convert`. Stops
/// early if `from` ends.
fn gather<T: Copy>(from: &[T], stride: usize, into: &mut [bf16], convert: impl Fn(T) -> bf16) {
    into.iter_mut().zip(from.iter().step_by(stride)).for_each(|(into, from)| *into = convert(*from));
}

/// Converts bf16 to f32 exactly: bf16 is the upper half of the f32 of the same value.
#[inline(always)]
pub(in crate::fused) fn widen(number: bf16) -> f32 {
    f32::from_bits(u32::from(number.to_bits()) << 16)
}

/// Rounds to the nearest bf16, ties to even, and returns its bits. NaN stays NaN.
#[inline(always)]
pub(in crate::fused) fn round(number: f32) -> u16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    ((if number.is_nan() { bits | 0x40_0000 } else { rounded }) >> 16) as u16
}

/// Returns the instruction set with which this CPU multiplies bf16, `AMX` (if the system allows it) or `AVX-512 BF16`;
/// `None` if it has neither. The bits of products depend on it.
#[must_use]
pub fn bf16_instruction() -> Option<&'static str> {
    match Kernel::of_this_processor() {
        Kernel::Tiles => Some("AMX"),
        Kernel::Vectors => Some("AVX-512 BF16"),
        Kernel::Portable => None,
    }
}

/// Whether this CPU multiplies bf16 faster than f32: with AMX always, with AVX-512 BF16 on AMD's processors, else
/// never.
#[must_use]
pub fn bf16_is_faster() -> bool {
    Kernel::of_this_processor().is_faster_than_f32()
}

#[cfg(test)]
mod tests;
