//! Matrix products on slices: of f32 numbers by the `gemm` crate, which takes raw pointers, of bf16 numbers by
//! `product/bf16.rs`.
//!
//! [`Matrix`] is a strided view to read, [`Tile`] a view to write that can be cut into disjoint tiles, so that
//! tasks on several threads fill one result without copies. Every bound is checked here before a pointer is made.

#![expect(unsafe_code, reason = "the `gemm` crate takes raw pointers, and disjoint column tiles interleave in memory")]

mod bf16;

use std::marker::PhantomData;
use std::ops::Range;

use super::scratch;

pub use bf16::{bf16_instruction, bf16_is_faster};
pub(super) use bf16::{round, widen};

/// Numbers of one type.
#[derive(Clone, Copy)]
pub(super) enum Data<'a> {
    F32(&'a [f32]),
    Bf16(&'a [half::bf16]),
}

impl<'a> Data<'a> {
    /// Returns the numbers of a range. Panics if it is outside.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(numbers) => Self::F32(&numbers[range]),
            Self::Bf16(numbers) => Self::Bf16(&numbers[range]),
        }
    }

    /// Returns the numbers from an index on. Panics if it is outside.
    pub(super) fn from(self, start: usize) -> Self {
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

    /// Makes a view of f32 numbers as [`new`](Self::new) does.
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

    /// The numbers in which the view lies.
    pub(super) fn data(&self) -> Data<'a> {
        self.data
    }

    /// The numbers, if they are f32.
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

/// A view of `rows × columns` numbers to write: the columns lie side by side, the rows `stride` apart.
///
/// A tile owns its numbers for `'a` as a mutable slice would; cutting it hands each number to one part.
pub(super) struct Tile<'a, T = f32> {
    start: *mut T,
    rows: usize,
    columns: usize,
    stride: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a tile is the only access to its numbers while it lives, as `&mut [T]` is, which is `Send` if `T` is.
unsafe impl<T: Send> Send for Tile<'_, T> {}

impl<'a, T> Tile<'a, T> {
    /// Makes a tile of a whole slice, row after row. Panics unless the slice holds exactly `rows × columns` numbers.
    pub(super) fn from_slice(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns, "a tile covers its slice");
        Self { start: data.as_mut_ptr(), rows, columns, stride: columns, owner: PhantomData }
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns this tile with a shorter lifetime, which borrows this one mutably.
    pub(super) fn reborrow(&mut self) -> Tile<'_, T> {
        Tile { owner: PhantomData, ..*self }
    }

    /// Splits the tile into its first `count` rows and the rest. Panics if it has fewer rows.
    pub(super) fn split_rows(self, count: usize) -> (Self, Self) {
        assert!(count <= self.rows, "a tile splits inside its rows");
        let rest = self.start.wrapping_add(count * self.stride);
        (Self { rows: count, ..self }, Self { start: rest, rows: self.rows - count, ..self })
    }

    /// Splits the tile into its first `count` columns and the rest. Panics if it has fewer columns.
    pub(super) fn split_columns(self, count: usize) -> (Self, Self) {
        assert!(count <= self.columns, "a tile splits inside its columns");
        let rest = self.start.wrapping_add(count);
        (Self { columns: count, ..self }, Self { start: rest, columns: self.columns - count, ..self })
    }

    /// Cuts the tile into bands of the given heights, and each band into parts of `width` columns, the last one
    /// possibly narrower. Returns the parts band by band. Rows below the last band are dropped. Panics if the heights
    /// exceed the rows.
    pub(super) fn cut(self, heights: impl IntoIterator<Item = usize>, width: usize) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut below = self;
        for height in heights {
            let (mut band, after) = below.split_rows(height);
            below = after;
            while band.columns > 0 {
                let count = width.min(band.columns);
                let (part, rest) = band.split_columns(count);
                parts.push(part);
                band = rest;
            }
        }
        parts
    }

    /// Cuts the tile into a grid of parts of at most `rows × columns`, row of parts by row of parts. Each part comes
    /// with the row range and the column range that it covers.
    pub(super) fn grid(self, rows: usize, columns: usize) -> Vec<(Range<usize>, Range<usize>, Self)> {
        let (height, width) = (self.rows, self.columns);
        let bands: Vec<Range<usize>> = steps(0..height, rows).collect();
        let ranges = bands.iter().flat_map(|band| steps(0..width, columns).map(|side| (band.clone(), side)));
        let ranges: Vec<_> = ranges.collect();
        let parts = self.cut(bands.iter().map(Range::len), columns);
        ranges.into_iter().zip(parts).map(|((rows, columns), part)| (rows, columns, part)).collect()
    }

    /// Borrows the part of the tile at some rows and columns. Panics if they are outside the tile.
    pub(super) fn part(&mut self, rows: Range<usize>, columns: Range<usize>) -> Tile<'_, T> {
        let (_, below) = self.reborrow().split_rows(rows.start);
        let (band, _) = below.split_rows(rows.len());
        let (_, right) = band.split_columns(columns.start);
        right.split_columns(columns.len()).0
    }

    /// Borrows one row. Panics if `index` is outside the tile.
    pub(super) fn row(&mut self, index: usize) -> &mut [T] {
        assert!(index < self.rows, "a row inside its tile");
        // SAFETY: the tile owns `columns` numbers from this row's start, which lies inside the slice it was cut
        // from, and the borrow of `self` keeps every other access away.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(index * self.stride), self.columns) }
    }
}

impl Tile<'_> {
    /// Overwrites the tile by `factor · left · right`, or adds the product to it if `accumulate`. If one operand is
    /// bf16, rounds the other one to bf16; sums are f32. Runs on the calling thread. Panics if the shapes do not fit.
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

/// From so many rows on `gemm` computes a row the same way whatever rows stand beside it; below, its ways for small
/// products add in another order. The narrow ones end later.
const STEADY: usize = 24;
const STEADY_IF_NARROW: usize = 72;
const NARROW: usize = 64;
/// A product of fewer multiplications is small whatever its shape.
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
        let enough = if columns <= NARROW { STEADY_IF_NARROW } else { STEADY };
        let enough = enough.max(SMALL / (columns * depth).max(1) + 1);
        // Products of bf16 are so at any number of rows.
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
