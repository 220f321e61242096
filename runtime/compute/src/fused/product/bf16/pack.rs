//! Packing of the right operand for the kernels: panels of [`COLUMNS`] columns, in which the numbers of a pair of rows
//! lie side by side.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "squares of numbers are transposed in vector registers")
)]

use std::ops::Range;

use bytemuck::Pod;
use half::bf16;

use super::kernel::COLUMNS;
use super::{DEPTH_UNIT, PAIRS, round};
use crate::fused::prefetch::prefetch;
use crate::fused::product::{Data, Matrix, steps};
use crate::fused::simd::vectorize;

/// Rows between the one that is packed and the one that is asked for.
const ROWS_AHEAD: usize = 16;
/// Numbers of a column between those that are packed and those that are asked for.
const NUMBERS_AHEAD: usize = 128;

/// Rows and columns of a square that is transposed in registers.
const SIDE: usize = 16;

/// A square of pairs of bf16 numbers, as `[column][pair]` before it is transposed and `[pair][column]` afterwards.
type Square = [[u32; SIDE]; SIDE];

/// Packs the rows `depth` of some columns of a matrix into panels of [`COLUMNS`] columns. A panel has for each pair of
/// adjacent rows a `u32` for each column: both numbers in bf16, the upper row's in the lower half. What is missing at
/// the edges becomes 0, up to a depth that is a multiple of [`DEPTH_UNIT`].
pub(super) fn pack_columns(matrix: Matrix<'_>, depth: Range<usize>, columns: Range<usize>, panels: &mut [u32]) {
    let strides = (matrix.row_stride, matrix.column_stride);
    let (start, sides) = (depth.start * strides.0 + columns.start * strides.1, [depth.len(), columns.len()]);
    if !columns.len().is_multiple_of(COLUMNS) {
        panels[columns.len() / COLUMNS * PAIRS * COLUMNS..][..PAIRS * COLUMNS].fill(0);
    }
    match matrix.data {
        Data::F32(data) => pack(&data[start..], strides, sides, panels, round),
        Data::Bf16(data) => pack(&data[start..], strides, sides, panels, bf16::to_bits),
    }
}

/// Packs `depth × columns` numbers of `data` into as many panels as the columns need, and fills up the depth with zeros
/// to a multiple of [`DEPTH_UNIT`]; writes no missing columns. `row_stride` and `column_stride` are the distances of
/// rows and of columns in `data`, one of which is 1. `bits` returns the bits of a number in bf16.
pub(super) fn pack<T: Pod>(
    data: &[T],
    (row_stride, column_stride): (usize, usize),
    [depth, columns]: [usize; 2],
    panels: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
) {
    let panels = panels.as_chunks_mut::<{ PAIRS * COLUMNS }>().0;
    if column_stride == 1 {
        return vectorize!(pack_rows(data, row_stride, [depth, columns], panels, bits));
    }
    for (columns, panel) in steps(0..columns, COLUMNS).zip(panels) {
        let (data, sides) = (&data[columns.start * column_stride..], [depth, columns.len()]);
        #[cfg(target_arch = "x86_64")]
        if super::kernel::has_vectors() {
            // SAFETY: the processor has AVX-512 F and BW.
            unsafe { pack_transposed_native(data, column_stride, sides, panel, bits) };
            continue;
        }
        vectorize!(pack_transposed(data, column_stride, sides, panel, bits, transpose));
    }
}

/// Packs `depth × columns` numbers, whose rows lie `stride` apart and have no gaps, into panels, two rows at a time,
/// and fills up the depth with zeros to a multiple of [`DEPTH_UNIT`]. `bits` returns the bits of a number in bf16.
#[inline(always)]
fn pack_rows<T: Pod>(
    data: &[T],
    stride: usize,
    [depth, columns]: [usize; 2],
    panels: &mut [[u32; PAIRS * COLUMNS]],
    bits: impl Fn(T) -> u16 + Copy,
) {
    for pair in 0..depth.div_ceil(2) {
        let row = |row: usize| &data[row * stride..][..columns];
        // An odd depth has no second row at its end: its half of the pairs becomes 0.
        let (second, mask) = if 2 * pair + 1 < depth { (2 * pair + 1, u32::MAX) } else { (2 * pair, 0xffff) };
        let (first, second) = (row(2 * pair), row(second));
        for row in [ROWS_AHEAD, ROWS_AHEAD + 1].map(|ahead| 2 * pair + ahead) {
            prefetch_numbers(data, row * stride, columns);
        }
        for (columns, panel) in steps(0..columns, COLUMNS).zip(&mut *panels) {
            let numbers = first[columns.clone()].iter().zip(&second[columns]);
            let pairs = panel[pair * COLUMNS..].iter_mut().zip(numbers);
            pairs.for_each(|(pair, (a, b))| *pair = join(bits(*a), bits(*b)) & mask);
        }
    }
    let missing = depth.div_ceil(2) * COLUMNS..depth.next_multiple_of(DEPTH_UNIT) / 2 * COLUMNS;
    panels[..columns.div_ceil(COLUMNS)].iter_mut().for_each(|panel| panel[missing.clone()].fill(0));
}

/// Asks for the numbers `start .. start + count` of `data`, which are read soon: rows of a weight lie too far apart in
/// memory for the processor to ask by itself. Does nothing if `data` ends before.
#[inline(always)]
fn prefetch_numbers<T: Pod>(data: &[T], start: usize, count: usize) {
    data.get(start..start + count).into_iter().for_each(|numbers| prefetch(bytemuck::cast_slice(numbers)));
}

/// Packs `depth × columns` numbers, whose columns lie `stride` apart and have no gaps, into a panel. Packs and
/// transposes squares of [`SIDE`] columns with [`SIDE`] pairs each, so that both reads and writes are of neighbors.
/// Fills up the last squares with zeros. `bits` returns the bits of a number in bf16, `transpose` exchanges rows and
/// columns.
#[inline(always)]
pub(super) fn pack_transposed<T: Pod>(
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
                let column = &data[column * stride..];
                prefetch_numbers(column, numbers.start + NUMBERS_AHEAD, 2 * SIDE);
                match column[numbers.clone()].as_array() {
                    Some(numbers) => write_pairs(numbers, line, bits),
                    None => write_few_pairs(&column[numbers.clone()], line, bits),
                }
            }
            let square = transpose(square);
            for (row, line) in rows.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(&square) {
                row.as_chunks_mut::<SIDE>().0[columns.start / SIDE] = *line;
            }
        }
    }
}

/// Writes numbers into a line as pairs of neighbors, as bf16.
#[inline(always)]
fn write_pairs<T: Copy>(numbers: &[T; 2 * SIDE], line: &mut [u32; SIDE], bits: impl Fn(T) -> u16) {
    let halves: &mut [u16; 2 * SIDE] = bytemuck::cast_mut(line);
    halves.iter_mut().zip(numbers).for_each(|(half, number)| *half = bits(*number));
    // In memory the first number of a pair lies first; in the `u32` it is the lower half.
    line.iter_mut().for_each(|pair| *pair = u32::from_le(*pair));
}

/// Writes at most 2 · [`SIDE`] numbers into a line as pairs of neighbors, as bf16, followed by zeros. Not inlined: the
/// compiler would join its copy with that of [`write_pairs`], whose length is known, to a call.
#[inline(never)]
fn write_few_pairs<T: Pod>(numbers: &[T], line: &mut [u32; SIDE], bits: impl Fn(T) -> u16) {
    let mut padded = [T::zeroed(); 2 * SIDE];
    padded[..numbers.len()].copy_from_slice(numbers);
    write_pairs(&padded, line, bits);
}

/// Exchanges rows and columns of a square, in code for any processor.
#[inline(always)]
pub(super) fn transpose(square: Square) -> Square {
    std::array::from_fn(|row| std::array::from_fn(|column| square[column][row]))
}

/// Calls [`pack_transposed`] with [`transpose_native`], so that squares are transposed in vector registers. `sides` are
/// the depth and the number of columns.
///
/// # Safety
/// The processor must have AVX-512 F and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_transposed_native<T: Pod>(
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
