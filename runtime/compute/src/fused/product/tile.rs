//! Views of numbers to write, which can be cut into disjoint tiles, so that tasks on several threads fill one result
//! without copies.

#![expect(unsafe_code, reason = "disjoint column tiles interleave in memory")]

use std::marker::PhantomData;
use std::ops::Range;

use super::steps;

/// A view of `rows × columns` numbers to write: the columns lie side by side, the rows `stride` apart.
///
/// A tile owns its numbers for `'a` as a mutable slice would; cutting it hands each number to one part.
pub(in crate::fused) struct Tile<'a, T = f32> {
    pub(super) start: *mut T,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a tile is the only access to its numbers while it lives, as `&mut [T]` is, which is `Send` if `T` is.
unsafe impl<T: Send> Send for Tile<'_, T> {}

impl<'a, T> Tile<'a, T> {
    /// Makes a tile of a whole slice, row after row. Panics unless the slice holds exactly `rows × columns` numbers.
    pub(in crate::fused) fn from_slice(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns, "a tile covers its slice");
        Self { start: data.as_mut_ptr(), rows, columns, stride: columns, owner: PhantomData }
    }

    /// The number of rows.
    pub(in crate::fused) fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub(in crate::fused) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns this tile with a shorter lifetime, which borrows this one mutably.
    pub(in crate::fused) fn reborrow(&mut self) -> Tile<'_, T> {
        Tile { owner: PhantomData, ..*self }
    }

    /// Splits the tile into its first `count` rows and the rest. Panics if it has fewer rows.
    pub(in crate::fused) fn split_rows(self, count: usize) -> (Self, Self) {
        assert!(count <= self.rows, "a tile splits inside its rows");
        let rest = self.start.wrapping_add(count * self.stride);
        (Self { rows: count, ..self }, Self { start: rest, rows: self.rows - count, ..self })
    }

    /// Splits the tile into its first `count` columns and the rest. Panics if it has fewer columns.
    pub(in crate::fused) fn split_columns(self, count: usize) -> (Self, Self) {
        assert!(count <= self.columns, "a tile splits inside its columns");
        let rest = self.start.wrapping_add(count);
        (Self { columns: count, ..self }, Self { start: rest, columns: self.columns - count, ..self })
    }

    /// Cuts the tile into bands of the given heights, and each band into parts of `width` columns, the last one
    /// possibly narrower. Returns the parts band by band. Rows below the last band are dropped. Panics if the heights
    /// exceed the rows.
    pub(in crate::fused) fn split_into_bands(
        self,
        heights: impl IntoIterator<Item = usize>,
        width: usize,
    ) -> Vec<Self> {
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
    /// with the rows and the columns of this tile, counted from 0, that it covers.
    pub(in crate::fused) fn grid(self, rows: usize, columns: usize) -> Vec<(Range<usize>, Range<usize>, Self)> {
        let (height, width) = (self.rows, self.columns);
        let bands: Vec<Range<usize>> = steps(0..height, rows).collect();
        let ranges = bands.iter().flat_map(|band| steps(0..width, columns).map(|side| (band.clone(), side)));
        let ranges: Vec<_> = ranges.collect();
        let parts = self.split_into_bands(bands.iter().map(Range::len), columns);
        ranges.into_iter().zip(parts).map(|((rows, columns), part)| (rows, columns, part)).collect()
    }

    /// Borrows the part of the tile at some rows and columns. Panics if they are outside the tile.
    pub(in crate::fused) fn part(&mut self, rows: Range<usize>, columns: Range<usize>) -> Tile<'_, T> {
        let (_, below) = self.reborrow().split_rows(rows.start);
        let (band, _) = below.split_rows(rows.len());
        let (_, right) = band.split_columns(columns.start);
        right.split_columns(columns.len()).0
    }

    /// Borrows one row. Panics if `index` is outside the tile.
    pub(in crate::fused) fn row(&mut self, index: usize) -> &mut [T] {
        assert!(index < self.rows, "a row inside its tile");
        // SAFETY: the tile owns `columns` numbers from this row's start, which lies inside the slice it was cut
        // from, and the borrow of `self` keeps every other access away.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(index * self.stride), self.columns) }
    }
}
