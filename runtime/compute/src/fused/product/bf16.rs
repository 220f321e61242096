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
use crate::fused::scratch;
use crate::fused::simd::vectorize;

/// Rows and columns of a result whose sums are in registers at the same time: 28 of 32 vector registers.
const ROWS: usize = 14;
const COLUMNS: usize = 32;
/// Numbers of a row of the left operand, and of a column of the right one, that are packed at once.
const DEPTH: usize = 512;
const PAIRS: usize = DEPTH / 2;
/// Pairs between the starts of two packed rows: a line of the cache more than needed, so that the rows do not all
/// compete for the same lines.
const ROW_PAIRS: usize = PAIRS + 16;
/// Columns of the right operand that are packed at once.
const PANEL_COLUMNS: usize = 256;

/// Sums of one block of a result.
type Sums = [[f32; COLUMNS]; ROWS];

/// Overwrites the tile by `factor · left · right`, or adds the product to it if `accumulate`. Operands of f32 are
/// rounded to bf16. Runs on the calling thread. The caller has checked the shapes.
pub(super) fn multiply(tile: &mut Tile<'_>, accumulate: bool, factor: f32, left: Matrix<'_>, right: Matrix<'_>) {
    scratch::with_parts([ROWS * ROW_PAIRS, PANEL_COLUMNS * PAIRS], |[rows, panels]| {
        let (packed_rows, panels) = (bytemuck::cast_slice_mut(rows), bytemuck::cast_slice_mut(panels));
        for columns in steps(0..tile.columns(), PANEL_COLUMNS) {
            for depth in steps(0..left.columns, DEPTH) {
                let pairs = depth.len().div_ceil(2);
                pack_columns(right, depth.clone(), columns.clone(), panels);
                for rows in steps(0..tile.rows(), ROWS) {
                    pack_rows(left, rows.clone(), depth.clone(), packed_rows);
                    for (block, panel) in steps(columns.clone(), COLUMNS).zip(panels.chunks_exact(PAIRS * COLUMNS)) {
                        let sums = sum(packed_rows, panel, pairs);
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

/// Packs a panel of `depth × columns` numbers whose rows and columns lie `strides` apart.
fn pack<T: Copy>(
    data: &[T],
    (row_stride, column_stride): (usize, usize),
    [depth, columns]: [usize; 2],
    panel: &mut [u32],
    bits: impl Fn(T) -> u16 + Copy,
) {
    if column_stride == 1 {
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
        return;
    }
    for column in 0..columns {
        let numbers = &data[column * column_stride..];
        pack_line(numbers, row_stride, depth, bits, panel[column..].iter_mut().step_by(COLUMNS));
    }
}

/// Packs the numbers `depth` of some rows of a matrix, row by row, [`ROW_PAIRS`] apart. Leaves the rows of the buffer
/// past the last one as they are.
fn pack_rows(matrix: Matrix<'_>, rows: Range<usize>, depth: Range<usize>, packed: &mut [u32]) {
    let Matrix { row_stride, column_stride, .. } = matrix;
    for (row, packed) in rows.zip(packed.chunks_exact_mut(ROW_PAIRS)) {
        let start = row * row_stride + depth.start * column_stride;
        match matrix.data {
            Data::F32(data) => pack_line(&data[start..], column_stride, depth.len(), round, packed.iter_mut()),
            Data::Bf16(data) if column_stride == 1 => {
                let packed: &mut [bf16] = bytemuck::cast_slice_mut(packed);
                packed[..depth.len()].copy_from_slice(&data[start..][..depth.len()]);
                packed[depth.len()..].iter_mut().take(1).for_each(|next| *next = bf16::ZERO);
            }
            Data::Bf16(data) => pack_line(&data[start..], column_stride, depth.len(), bf16::to_bits, packed.iter_mut()),
        }
    }
}

/// Packs `count` numbers, `stride` apart, in pairs; 0 stands in for the second number of the last pair.
#[inline(always)]
fn pack_line<'a, T: Copy>(
    numbers: &[T],
    stride: usize,
    count: usize,
    bits: impl Fn(T) -> u16 + Copy,
    packed: impl Iterator<Item = &'a mut u32>,
) {
    if stride == 1 {
        let (pairs, rest) = numbers[..count].as_chunks::<2>();
        let mut packed = packed;
        vectorize!(packed.by_ref().zip(pairs).for_each(|(to, [a, b])| *to = join(bits(*a), bits(*b))));
        packed.zip(rest).for_each(|(to, a)| *to = join(bits(*a), 0));
    } else {
        for (pair, to) in steps(0..count, 2).zip(packed) {
            let next = if pair.len() == 2 { bits(numbers[(pair.start + 1) * stride]) } else { 0 };
            *to = join(bits(numbers[pair.start * stride]), next);
        }
    }
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

/// Computes the sums of a block from packed rows and a panel of `pairs` pairs, with the processor's instruction for
/// pairs if it has one.
fn sum(rows: &[u32], panel: &[u32], pairs: usize) -> Sums {
    #[cfg(target_arch = "x86_64")]
    if cpu_has_bf16_products() {
        // SAFETY: the processor has AVX-512 F and BF16.
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
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn native(rows: &[u32], panel: &[u32], pairs: usize) -> Sums {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps,
    };
    let (rows, panel) = (&rows[..ROWS * ROW_PAIRS], &panel[..pairs * COLUMNS]);
    assert!(pairs <= PAIRS, "a block's depth");
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    for (pair, columns) in panel.as_chunks::<COLUMNS>().0.iter().enumerate() {
        // SAFETY: 32 pairs are two vectors, and every pattern of bits is 32 numbers in bf16.
        let columns: [__m512bh; 2] = unsafe {
            let start = columns.as_ptr().cast::<__m512i>();
            [0, 1].map(|half| std::mem::transmute(_mm512_loadu_si512(start.add(half))))
        };
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `pair` is below `PAIRS`, so the index lies within the packed rows; the bits are as above.
            let number: __m512bh = unsafe {
                std::mem::transmute(_mm512_set1_epi32((*rows.get_unchecked(row * ROW_PAIRS + pair)).cast_signed()))
            };
            *sums = [_mm512_dpbf16_ps(sums[0], number, columns[0]), _mm512_dpbf16_ps(sums[1], number, columns[1])];
        }
    }
    // SAFETY: two vectors of 16 numbers are 32 numbers.
    unsafe { std::mem::transmute::<_, Sums>(sums) }
}

/// Computes the sums as `vdpbf16ps` does, in f32 instructions.
#[inline(always)]
fn portable(rows: &[u32], panel: &[u32], pairs: usize) -> Sums {
    let mut all = [[0f32; COLUMNS]; ROWS];
    let widened = |pair: u32| [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)];
    for (sums, row) in all.iter_mut().zip(rows.chunks_exact(ROW_PAIRS)) {
        let mut here = [0f32; COLUMNS];
        for (pair, columns) in row[..pairs].iter().zip(panel.as_chunks::<COLUMNS>().0) {
            let [first, second] = widened(*pair);
            for (sum, column) in here.iter_mut().zip(columns) {
                let column = widened(*column);
                *sum = first.mul_add(column[0], second.mul_add(column[1], *sum));
            }
        }
        *sums = here;
    }
    all
}

#[cfg(test)]
mod tests;
