//! Matrix products on slices: of f32 numbers by the `gemm` crate, which takes raw pointers, of bf16 numbers by
//! `product/bf16.rs`.
//!
//! [`Matrix`] is a strided view to read, [`Tile`] a view to write. Every bound is checked before a pointer is made.

#![expect(unsafe_code, reason = "the `gemm` crate takes raw pointers")]

mod bf16;
mod tile;

use std::ops::Range;

use super::scratch;

pub use bf16::{bf16_instruction, bf16_is_faster};
pub(super) use bf16::{round, widen};
pub(super) use tile::Tile;

/// Borrowed numbers of one element type.
#[derive(Clone, Copy)]
pub(super) enum Data<'a> {
    F32(&'a [f32]),
    Bf16(&'a [half::bf16]),
}

impl<'a> Data<'a> {
    /// Returns the numbers of a range. Panics if the range ends past the numbers.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(numbers) => Self::F32(&numbers[range]),
            Self::Bf16(numbers) => Self::Bf16(&numbers[range]),
        }
    }

    /// Returns the numbers from index `start` on. Panics if `start` is past the end.
    pub(super) fn skip(self, start: usize) -> Self {
        match self {
            Self::F32(numbers) => Self::F32(&numbers[start..]),
            Self::Bf16(numbers) => Self::Bf16(&numbers[start..]),
        }
    }
}

/// A strided view of `rows × columns` numbers to read.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    data: Data<'a>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Makes a view of `rows` rows of `columns` numbers; each row starts `stride` numbers after the one before. Panics
    /// if `data` is too short.
    pub(super) fn new(data: Data<'a>, rows: usize, columns: usize, stride: usize) -> Self {
        let extent = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * stride + columns };
        Self { data: data.part(0..extent), rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// Makes a view of `rows` rows of `columns` f32 numbers; each row starts `stride` numbers after the one before.
    /// Panics if `data` is too short.
    pub(super) fn strided(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        Self::new(Data::F32(data), rows, columns, stride)
    }

    /// Makes a view of `rows` rows of `columns` f32 numbers without gaps. Panics if `data` is too short.
    pub(super) fn packed(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers from the first to the last of the view, those between its rows included.
    pub(super) fn data(&self) -> Data<'a> {
        self.data
    }

    /// The numbers of [`data`](Self::data) if they are f32; `None` for bf16.
    fn floats(&self) -> Option<&'a [f32]> {
        match self.data {
            Data::F32(numbers) => Some(numbers),
            Data::Bf16(_) => None,
        }
    }

    /// Returns the transposed view. Copies nothing.
    pub(super) fn transposed(self) -> Self {
        let Self { data, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride } = self;
        Self { data, rows, columns, row_stride, column_stride }
    }
}

/// Splits a range into ranges of `size` in order, the last one possibly shorter. With a `size` of 0, yields an empty
/// range at each index.
pub(super) fn steps(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size.max(1)).map(move |start| start..(start + size).min(range.end))
}

impl Tile<'_> {
    /// Overwrites the tile by `factor · left · right`, or adds the product to it if `accumulate`. If one operand is
    /// bf16, rounds the other one to bf16; sums are f32. Runs on the calling thread. Panics if the shapes do not fit.
    /// With a bf16 operand and an inner dimension of 0, leaves the tile as it is.
    pub(super) fn multiply(&mut self, accumulate: bool, factor: f32, left: Matrix<'_>, right: Matrix<'_>) {
        assert_eq!((left.rows, left.columns), (self.rows, right.rows), "rows of a product");
        assert_eq!(right.columns, self.columns, "columns of a product");
        let (Some(left_numbers), Some(right_numbers)) = (left.floats(), right.floats()) else {
            return bf16::multiply(self, accumulate, factor, left, right);
        };
        let step = |stride: usize| isize::try_from(stride).unwrap_or(isize::MAX);
        // SAFETY: `Matrix::strided` proved that rows and columns times strides stay inside the slices, the
        // constructors of `Tile` proved the same for the result, the shapes agree (above), and the result is
        // borrowed mutably, so that it overlaps neither operand.
        unsafe {
            gemm::gemm(
                self.rows,
                self.columns,
                left.columns,
                self.start,
                1,
                step(self.stride),
                accumulate,
                left_numbers.as_ptr(),
                step(left.column_stride),
                step(left.row_stride),
                right_numbers.as_ptr(),
                step(right.column_stride),
                step(right.row_stride),
                1.0,
                factor,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// From this number of rows on, the `gemm` crate computes a row with the same bits whatever other rows there are; with
/// fewer rows it adds in another order.
const BATCH_INVARIANT_ROWS: usize = 24;
/// The number of rows that a product of at most [`NARROW`] columns needs instead of [`BATCH_INVARIANT_ROWS`].
const BATCH_INVARIANT_ROWS_IF_NARROW: usize = 72;
/// The most columns of a product that needs [`BATCH_INVARIANT_ROWS_IF_NARROW`] rows.
const NARROW: usize = 64;
/// `gemm` adds in the order for few rows, whatever the shape, if a product has fewer multiplications than this.
const SMALL: usize = 8_192;

impl Tile<'_> {
    /// Overwrites the tile by `factor · left · right`, or adds the product to it if `accumulate`, so that a row of the
    /// result has the same bits alone and among any others: a product of few rows is computed with rows of zeros below.
    /// Slower than [`multiply`](Self::multiply) for few rows. Panics if the shapes do not fit.
    pub(super) fn multiply_batch_invariant(
        &mut self,
        accumulate: bool,
        factor: f32,
        left: Matrix<'_>,
        right: Matrix<'_>,
    ) {
        let (rows, columns, depth) = (self.rows, self.columns, left.columns);
        let enough = if columns <= NARROW { BATCH_INVARIANT_ROWS_IF_NARROW } else { BATCH_INVARIANT_ROWS };
        let enough = enough.max(SMALL / (columns * depth).max(1) + 1);
        // Products with a bf16 operand are batch-invariant at any number of rows.
        let Some(numbers) = left.floats().filter(|_| rows < enough && right.floats().is_some()) else {
            return self.multiply(accumulate, factor, left, right);
        };
        scratch::with_parts([enough * columns, enough * depth], |[result, padded]| {
            padded.fill(0.0);
            for (row, to) in padded.chunks_exact_mut(depth.max(1)).take(rows).enumerate() {
                let from = numbers[row * left.row_stride..].iter().step_by(left.column_stride.max(1));
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            if accumulate {
                (0..rows).for_each(|row| result[row * columns..][..columns].copy_from_slice(self.row(row)));
                result[rows * columns..].fill(0.0);
            }
            let left = Matrix::packed(padded, enough, depth);
            Tile::from_slice(result, enough, columns).multiply(accumulate, factor, left, right);
            (0..rows).for_each(|row| self.row(row).copy_from_slice(&result[row * columns..][..columns]));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_steady_product_has_the_same_bits_alone_and_among_others() {
        let numbers = |count: usize, seed: u64| crate::random::Stream::new(seed, "steady").normals(count);
        for (columns, depth) in
            [(3, 16), (4, 32), (8, 16), (16, 16), (8, 896), (24, 896), (64, 64), (256, 32), (300, 128), (128, 384)]
        {
            let (left, right) = (numbers(200 * depth, 1), numbers(columns * depth, 2));
            let product = |rows: Range<usize>, accumulate: bool| {
                let mut result = vec![0.5; rows.len() * columns];
                let left = Matrix::packed(&left[rows.start * depth..], rows.len(), depth);
                let right = Matrix::packed(&right, columns, depth).transposed();
                Tile::from_slice(&mut result, rows.len(), columns)
                    .multiply_batch_invariant(accumulate, 0.5, left, right);
                result
            };
            for accumulate in [false, true] {
                let whole = product(0..200, accumulate);
                for rows in [0..1, 3..5, 7..12, 1..18, 0..40, 60..130, 5..199] {
                    let same = product(rows.clone(), accumulate)
                        .iter()
                        .map(|number| number.to_bits())
                        .eq(whole[rows.start * columns..rows.end * columns].iter().map(|number| number.to_bits()));
                    assert!(same, "{rows:?} of 200 rows, {columns} columns, depth {depth}, adding: {accumulate}");
                }
            }
        }
    }

    #[test]
    fn a_product_into_a_grid_equals_the_sums_written_out() {
        let (rows, columns, depth) = (7, 5, 3);
        let left: Vec<f32> = (0..rows * depth).map(|i| i as f32 - 4.0).collect();
        let right: Vec<f32> = (0..columns * depth).map(|i| 2.0 - i as f32).collect();
        let mut result = vec![1.0; rows * columns];
        for (top, side, mut tile) in Tile::from_slice(&mut result, rows, columns).grid(2, 3) {
            let left = Matrix::packed(&left[top.start * depth..], top.len(), depth);
            let right = Matrix::packed(&right[side.start * depth..], side.len(), depth).transposed();
            tile.multiply(true, 0.5, left, right);
        }
        for (index, number) in result.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let sum: f32 = (0..depth).map(|k| left[row * depth + k] * right[column * depth + k]).sum();
            assert_eq!(*number, 1.0 + 0.5 * sum);
        }
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_matrix_never_reaches_past_its_slice() {
        Matrix::strided(&[0.0; 10], 3, 4, 4);
    }
}
