//! How a batch too large for memory goes through the model: slice by slice, in the order of its rows.
//! The cut depends on the rows and the setting alone, so a backward pass meets the slices of its forward pass.

use std::ops::Range;

use crate::rows::Rows;

/// How much of a batch one pass through the model holds.
///
/// A larger batch is scored slice by slice, and nothing of it is kept for a backward pass, which runs the
/// forward pass of each slice again. Losses and gradients are the same up to rounding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slice {
    /// All of it.
    #[default]
    Whole,
    /// So many rows, at least one.
    Rows(usize),
    /// So many tokens without padding; a longer row is a slice of its own.
    Tokens(usize),
}

impl Slice {
    /// The rows of each slice, in order: at least one slice, empty only for a batch without rows.
    pub(super) fn cut(self, rows: &Rows) -> Vec<Range<usize>> {
        let (mut slices, mut start, mut tokens) = (Vec::new(), 0, 0_usize);
        for (row, ids) in rows.ids.iter().enumerate() {
            let full = match self {
                Self::Whole => false,
                Self::Rows(most) => row - start >= most.max(1),
                Self::Tokens(most) => tokens.saturating_add(ids.len()) > most,
            };
            if full && row > start {
                slices.push(start..row);
                (start, tokens) = (row, 0);
            }
            tokens += ids.len();
        }
        slices.push(start..rows.count());
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(slice: Slice, lengths: &[usize]) -> Vec<(usize, usize)> {
        let ids: Vec<Vec<u32>> = lengths.iter().map(|length| vec![1; *length]).collect();
        let targets = lengths.iter().map(|length| vec![true; *length]).collect();
        slice.cut(&Rows::new(ids, targets).unwrap()).into_iter().map(|rows| (rows.start, rows.end)).collect()
    }

    #[test]
    fn rows_fall_into_slices_of_the_number_given_and_a_rest() {
        assert_eq!(cut(Slice::Rows(2), &[3, 3, 3, 3, 3]), [(0, 2), (2, 4), (4, 5)]);
        assert_eq!(cut(Slice::Rows(0), &[3, 3]), [(0, 1), (1, 2)]);
        assert_eq!(cut(Slice::Whole, &[3, 3, 3]), [(0, 3)]);
    }

    #[test]
    fn a_row_longer_than_a_slice_of_tokens_goes_alone() {
        assert_eq!(cut(Slice::Tokens(6), &[3, 3, 1, 9, 2, 4, 1]), [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]);
    }

    #[test]
    fn a_batch_without_rows_is_one_empty_slice() {
        assert_eq!(cut(Slice::Rows(2), &[]), [(0, 0)]);
    }
}
