//! Products of bf16 operands with f32 sums.
//!
//! A sum runs over the operands in pairs, the later product of a pair first, as `vdpbf16ps` of x86 processors adds them
//! (AVX-512 BF16; `tests` compare it with the same sum written out), in blocks of [`DEPTH`] numbers. Each number of a
//! result is summed alone, so its bits do not depend on the rows and columns beside it, nor on the kind of processor,
//! but that the instruction takes numbers below 1.2e-38 for 0.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the processor's instruction takes vectors, which are made from plain numbers")
)]

use std::ops::Range;

use half::bf16;

use super::{Data, Matrix, Tile, steps};
use crate::fused::host::round_all;
use crate::fused::scratch;
use crate::fused::simd::vectorize;

/// Rows and columns of a result whose sums are in registers at the same time: 28 of 32 vector registers.
const ROWS: usize = 14;
const COLUMNS: usize = 32;
/// Numbers of a row of the left operand, and of a column of the right one, that are packed at once.
const DEPTH: usize = 512;
const PAIRS: usize = DEPTH / 2;
/// Numbers between the starts of two rows in a buffer: a line of the cache more than needed, so that the rows do not all
/// compete for the same lines.
const ROW: usize = DEPTH + 32;
/// Rows that lie a multiple of so many numbers apart compete for the same lines of the cache.
const ALIASING: usize = 1024;
/// Columns of the right operand that are packed at once.
const PANEL_COLUMNS: usize = 256;

/// Sums of one block of a result.
type Sums = [[f32; COLUMNS]; ROWS];

/// Numbers of [`ROWS`] rows of the left operand. The rows start `stride` numbers apart.
#[derive(Clone, Copy)]
struct Rows<'a> {
    numbers: &'a [bf16],
    stride: usize,
}

/// Overwrites the tile by `factor · left · right`, or adds the product to it if `accumulate`. Operands of f32 are
/// rounded to bf16. Runs on the calling thread. The caller has checked the shapes.
pub(super) fn multiply(tile: &mut Tile<'_>, accumulate: bool, factor: f32, left: Matrix<'_>, right: Matrix<'_>) {
    scratch::with_parts([ROWS * ROW / 2, PANEL_COLUMNS * PAIRS], |[rows, panels]| {
        let (buffer, panels) = (bytemuck::cast_slice_mut(rows), bytemuck::cast_slice_mut(panels));
        for columns in steps(0..tile.columns(), PANEL_COLUMNS) {
            for depth in steps(0..left.columns, DEPTH) {
                let pairs = depth.len().div_ceil(2);
                pack_columns(right, depth.clone(), columns.clone(), panels);
                for rows in steps(0..tile.rows(), ROWS) {
                    let numbers = read_rows(left, rows.clone(), depth.clone(), buffer);
                    for (block, panel) in steps(columns.clone(), COLUMNS).zip(panels.chunks_exact(PAIRS * COLUMNS)) {
                        let sums = sum(numbers, panel, pairs);
                        write(tile.part(rows.clone(), block), &sums, accumulate || depth.start > 0, factor);
                    }
                }
            }
        }
    });
}

/// Adds a block's sums, times `factor`, to a tile of at most [`ROWS`] × [`COLUMNS`] numbers, or overwrites the tile.
fn write(mut tile: Tile<'_>, sums: &Sums, accumulate: bool, factor: f32) {
    for (row, sums) in (0..tile.rows()).zip(sums) {
        let numbers = tile.row(row);
        if accumulate {
            vectorize!(numbers.iter_mut().zip(sums).for_each(|(number, sum)| *number = sum.mul_add(factor, *number)));
        } else {
            vectorize!(numbers.iter_mut().zip(sums).for_each(|(number, sum)| *number = sum * factor));
        }
    }
}

/// Packs some columns of the rows `depth` of a matrix: panels of [`COLUMNS`] columns, in each for each pair of rows the
/// pairs of all columns. What is missing at the edges becomes 0.
fn pack_columns(matrix: Matrix<'_>, depth: Range<usize>, columns: Range<usize>, panels: &mut [u32]) {
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

/// Packs a panel of `depth × columns` numbers. One of the strides, the distances of rows and of columns, is 1.
fn pack<T: Copy>(
    data: &[T],
    (row_stride, column_stride): (usize, usize),
    [depth, columns]: [usize; 2],
    panel: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
) {
    if column_stride != 1 {
        return vectorize!(pack_transposed(data, column_stride, [depth, columns], panel, bits));
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
}

/// Packs a panel of `depth × columns` numbers whose columns lie `stride` apart, each without gaps: in squares, so that
/// both reads and writes are of neighbors.
#[inline(always)]
fn pack_transposed<T: Copy>(
    data: &[T],
    stride: usize,
    [depth, columns]: [usize; 2],
    panel: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
) {
    const SIDE: usize = 16;
    for (numbers, rows) in steps(0..depth, 2 * SIDE).zip(panel.chunks_mut(SIDE * COLUMNS)) {
        for columns in steps(0..columns, SIDE) {
            let mut square = [[0; SIDE]; SIDE];
            for (line, column) in square.iter_mut().zip(columns.clone()) {
                let (pairs, last) = data[column * stride..][numbers.clone()].as_chunks::<2>();
                line.iter_mut().zip(pairs).for_each(|(to, [a, b])| *to = join(bits(*a), bits(*b)));
                line[pairs.len()..].iter_mut().zip(last).for_each(|(to, a)| *to = join(bits(*a), 0));
            }
            for (pair, row) in rows.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
                row[columns.clone()].iter_mut().zip(&square).for_each(|(to, line)| *to = line[pair]);
            }
        }
    }
}

/// Returns the numbers `depth` of some rows of a matrix in bf16, followed by a 0 if they are odd: as they lie in memory,
/// or copied to `buffer`, of which rows past the last one have any content.
fn read_rows<'a>(matrix: Matrix<'a>, rows: Range<usize>, depth: Range<usize>, buffer: &'a mut [bf16]) -> Rows<'a> {
    let Matrix { row_stride, column_stride, .. } = matrix;
    let whole = rows.len() == ROWS && depth.len().is_multiple_of(2) && !row_stride.is_multiple_of(ALIASING);
    match matrix.data {
        Data::Bf16(data) if column_stride == 1 && whole => {
            return Rows { numbers: &data[rows.start * row_stride + depth.start..], stride: row_stride };
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
        after[0] = bf16::ZERO;
    }
    Rows { numbers: buffer, stride: ROW }
}

/// Copies numbers that lie `stride` apart.
fn gather<T: Copy>(from: &[T], stride: usize, into: &mut [bf16], convert: impl Fn(T) -> bf16) {
    into.iter_mut().zip(from.iter().step_by(stride)).for_each(|(into, from)| *into = convert(*from));
}

/// Joins the bits of two bf16 numbers to a pair, the first one in the lower half.
#[inline(always)]
fn join(first: u16, second: u16) -> u32 {
    u32::from(first) | u32::from(second) << 16
}

/// Converts bf16 to f32 exactly: bf16 is the upper half of the f32 of the same value.
#[inline(always)]
pub(in crate::fused) fn widen(number: bf16) -> f32 {
    f32::from_bits(u32::from(number.to_bits()) << 16)
}

/// Rounds to the nearest bf16, halves to even, and returns its bits. NaN stays NaN.
#[inline(always)]
pub(in crate::fused) fn round(number: f32) -> u16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    ((if number.is_nan() { bits | 0x40_0000 } else { rounded }) >> 16) as u16
}

/// Computes the sums of a block from its rows and a panel of `pairs` pairs, with the processor's instruction for pairs
/// if it has one. Panics if the rows are too short.
fn sum(rows: Rows<'_>, panel: &[u32], pairs: usize) -> Sums {
    assert!((ROWS - 1) * rows.stride + 2 * pairs <= rows.numbers.len(), "numbers of a block's rows");
    #[cfg(target_arch = "x86_64")]
    if cpu_has_bf16_products() {
        // SAFETY: the processor has AVX-512 F and BF16, and the rows have been checked.
        return unsafe { native(rows, panel, pairs) };
    }
    vectorize!(portable(rows, panel, pairs))
}

/// Whether the CPU has an instruction for products of bf16: AVX-512 BF16. Without it they are slower than those of f32.
#[must_use]
pub fn cpu_has_bf16_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Computes the sums by `vdpbf16ps`.
///
/// # Safety
/// The rows must have 2 · `pairs` numbers each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn native(rows: Rows<'_>, panel: &[u32], pairs: usize) -> Sums {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps,
    };
    let start = rows.numbers.as_ptr();
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    for (pair, columns) in panel[..pairs * COLUMNS].as_chunks::<COLUMNS>().0.iter().enumerate() {
        // SAFETY: 32 pairs are two vectors, and every pattern of bits is 32 numbers in bf16.
        let columns: [__m512bh; 2] = unsafe {
            let start = columns.as_ptr().cast::<__m512i>();
            [0, 1].map(|half| std::mem::transmute(_mm512_loadu_si512(start.add(half))))
        };
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `pair` is below `pairs`, so both numbers are in their row; the bits are as above.
            let number: __m512bh = unsafe {
                let pair = start.add(row * rows.stride + 2 * pair).cast::<i32>();
                std::mem::transmute(_mm512_set1_epi32(pair.read_unaligned()))
            };
            *sums = [_mm512_dpbf16_ps(sums[0], number, columns[0]), _mm512_dpbf16_ps(sums[1], number, columns[1])];
        }
    }
    // SAFETY: two vectors of 16 numbers are 32 numbers.
    unsafe { std::mem::transmute::<_, Sums>(sums) }
}

/// Computes the sums as `vdpbf16ps` does, in f32 instructions.
#[inline(always)]
fn portable(rows: Rows<'_>, panel: &[u32], pairs: usize) -> Sums {
    let mut all = [[0f32; COLUMNS]; ROWS];
    for (row, sums) in all.iter_mut().enumerate() {
        let row = rows.numbers[row * rows.stride..][..2 * pairs].as_chunks::<2>().0;
        let mut here = [0f32; COLUMNS];
        for (pair, columns) in row.iter().zip(panel.as_chunks::<COLUMNS>().0) {
            let [first, second] = pair.map(widen);
            for (sum, column) in here.iter_mut().zip(columns) {
                let [above, below] = [f32::from_bits(column << 16), f32::from_bits(column & 0xffff_0000)];
                *sum = first.mul_add(above, second.mul_add(below, *sum));
            }
        }
        *sums = here;
    }
    all
}

#[cfg(test)]
mod tests;
