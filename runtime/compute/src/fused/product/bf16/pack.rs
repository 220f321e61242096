//! Packing of the right operand for the kernels: panels of [`COLUMNS`] columns, in which the numbers of a pair of rows lie
//! side by side.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "squares of numbers are transposed in vector registers")
)]

use std::ops::Range;

use half::bf16;

use super::kernel::COLUMNS;
use super::{DEPTH_UNIT, PAIRS, round};
use crate::fused::product::{Data, Matrix, steps};
use crate::fused::simd::vectorize;

/// Rows and columns of a square that is transposed in registers.
const SIDE: usize = 16;

/// A square of pairs of bf16 numbers, as `[column][pair]` before it is transposed and `[pair][column]` afterwards.
type Square = [[u32; SIDE]; SIDE];

/// Packs the rows `depth` of some columns of a matrix into panels of [`COLUMNS`] columns. A panel has for each pair of
/// adjacent rows a `u32` for each column: both numbers in bf16, the upper row's in the lower half. What is missing at the
/// edges becomes 0, up to a depth that is a multiple of [`DEPTH_UNIT`].
pub(super) fn pack_columns(matrix: Matrix<'_>, depth: Range<usize>, columns: Range<usize>, panels: &mut [u32]) {
    let Matrix { row_stride, column_stride, .. } = matrix;
    for (columns, panel) in steps(columns, COLUMNS).zip(panels.chunks_exact_mut(PAIRS * COLUMNS)) {
        if columns.len() < COLUMNS {
            panel.fill(0);
        }
        let start = depth.start * row_stride + columns.start * column_stride;
        let strides = (row_stride, column_stride);
        match matrix.data {
            Data::F32(data) => pack(&data[start..], strides, [depth.len(), columns.len()], panel, round),
            Data::Bf16(data) => pack(&data[start..], strides, [depth.len(), columns.len()], panel, bf16::to_bits),
        }
    }
}

/// Packs `depth × columns` numbers of `data`, at most [`COLUMNS`] columns, into a panel, and fills up its depth with zeros
/// to a multiple of [`DEPTH_UNIT`]. One of the strides, the distances of rows and of columns, is 1. `bits` returns the bits
/// of a number in bf16.
pub(super) fn pack<T: Copy>(
    data: &[T],
    (row_stride, column_stride): (usize, usize),
    [depth, columns]: [usize; 2],
    panel: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
) {
    if column_stride != 1 {
        // Whole squares, so that there are zeros behind the last number.
        #[cfg(target_arch = "x86_64")]
        if super::kernel::has_vectors() {
            // SAFETY: the processor has AVX-512 F and BW.
            return unsafe { pack_transposed_native(data, column_stride, [depth, columns], panel, bits) };
        }
        return vectorize!(pack_transposed(data, column_stride, [depth, columns], panel, bits, transpose));
    }
    for (pair, to) in steps(0..depth, 2).zip(panel.chunks_exact_mut(COLUMNS)) {
        let row = |row: usize| &data[row * row_stride..][..columns];
        let first = row(pair.start);
        if pair.len() == 2 {
            let both = first.iter().zip(row(pair.start + 1));
            vectorize!(to.iter_mut().zip(both).for_each(|(to, (a, b))| *to = join(bits(*a), bits(*b))));
        } else {
            vectorize!(to.iter_mut().zip(first).for_each(|(to, a)| *to = join(bits(*a), 0)));
        }
    }
    panel[depth.div_ceil(2) * COLUMNS..depth.next_multiple_of(DEPTH_UNIT) / 2 * COLUMNS].fill(0);
}

/// Packs `depth × columns` numbers, whose columns lie `stride` apart and have no gaps, into a panel. Packs and transposes
/// squares of [`SIDE`] columns with [`SIDE`] pairs each, so that both reads and writes are of neighbors. Fills up the last
/// squares with zeros. `bits` returns the bits of a number in bf16, `transpose` exchanges rows and columns.
#[inline(always)]
pub(super) fn pack_transposed<T: Copy>(
    data: &[T],
    stride: usize,
    [depth, columns]: [usize; 2],
    panel: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
    transpose: impl Fn(Square) -> Square,
) {
    for columns in steps(0..columns, SIDE) {
        for (numbers, rows) in steps(0..depth, 2 * SIDE).zip(panel.chunks_mut(SIDE * COLUMNS)) {
            let mut square = [[0; SIDE]; SIDE];
            for (line, column) in square.iter_mut().zip(columns.clone()) {
                *line = pairs_of(&data[column * stride..][numbers.clone()], bits);
            }
            let square = transpose(square);
            for (row, line) in rows.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(&square) {
                row[columns.start..][..SIDE].copy_from_slice(line);
            }
        }
    }
}

/// Joins at most 2 · [`SIDE`] numbers to [`SIDE`] pairs of neighbors, as bf16. Missing numbers become 0.
#[inline(always)]
fn pairs_of<T: Copy>(numbers: &[T], bits: impl Fn(T) -> u16) -> [u32; SIDE] {
    if let Ok(numbers) = <&[T; 2 * SIDE]>::try_from(numbers) {
        return std::array::from_fn(|pair| join(bits(numbers[2 * pair]), bits(numbers[2 * pair + 1])));
    }
    let number = |at: usize| numbers.get(at).map_or(0, |number| bits(*number));
    std::array::from_fn(|pair| join(number(2 * pair), number(2 * pair + 1)))
}

/// Exchanges rows and columns of a square, in code for any processor.
#[inline(always)]
pub(super) fn transpose(square: Square) -> Square {
    std::array::from_fn(|row| std::array::from_fn(|column| square[column][row]))
}

/// Calls [`pack_transposed`] with [`transpose_native`], so that squares are transposed in vector registers. `sides` are the
/// depth and the number of columns.
///
/// # Safety
/// The processor must have AVX-512 F and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_transposed_native<T: Copy>(
    data: &[T],
    stride: usize,
    sides: [usize; 2],
    panel: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
) {
    pack_transposed(data, stride, sides, panel, bits, |square| transpose_native(square));
}

/// Exchanges rows and columns of a square in vector registers: swaps the upper right quarter with the lower left one,
/// then does so within each quarter, and so on. The processor must have AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn transpose_native(square: Square) -> Square {
    use std::arch::x86_64::{__m512i, _mm512_permutex2var_epi32};
    /// Returns the indices from which the upper and the lower of two rows, `distance` apart, are gathered when their
    /// quarters are swapped. Indices below [`SIDE`] are of the upper row, the others of the lower one.
    const fn places(distance: usize) -> [[u32; SIDE]; 2] {
        let mut places = [[0; SIDE]; 2];
        let mut at = 0;
        while at < SIDE {
            let stays = at & distance == 0;
            places[0][at] = if stays { at } else { SIDE + at - distance } as u32;
            places[1][at] = if stays { at + distance } else { SIDE + at } as u32;
            at += 1;
        }
        places
    }
    const PLACES: [[[u32; SIDE]; 2]; 4] = [places(8), places(4), places(2), places(1)];
    // SAFETY: a row of 16 numbers is one vector.
    let mut rows: [__m512i; SIDE] = unsafe { std::mem::transmute(square) };
    for (distance, places) in [8, 4, 2, 1].into_iter().zip(PLACES) {
        // SAFETY: as above.
        let [above, below]: [__m512i; 2] = unsafe { std::mem::transmute(places) };
        for row in (0..SIDE).filter(|row| row & distance == 0) {
            let both = (rows[row], rows[row + distance]);
            rows[row] = _mm512_permutex2var_epi32(both.0, above, both.1);
            rows[row + distance] = _mm512_permutex2var_epi32(both.0, below, both.1);
        }
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute(rows) }
}

/// Joins the bits of two bf16 numbers to a pair, the first one in the lower half.
#[inline(always)]
pub(super) fn join(first: u16, second: u16) -> u32 {
    u32::from(first) | u32::from(second) << 16
}
