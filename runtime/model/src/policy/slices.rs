//! Cuts a batch that is too large for memory into slices of consecutive rows, one for each pass. The cut depends only
//! on the rows, the settings, the model and its type of activations, so the backward pass gets the slices of its
//! forward pass.

use std::ops::Range;

use super::Policy;
use crate::configuration::Configuration;
use crate::decoder::Recompute;
use crate::decoder::packing::Packing;
use crate::rows::Rows;

/// How much of a batch one pass through the model holds.
///
/// A larger batch is scored slice by slice. Losses and gradients are the same up to rounding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slice {
    /// The whole batch.
    #[default]
    Whole,
    /// At most this many rows; 0 counts as 1.
    Rows(usize),
    /// At most this many tokens, without padding; a longer row is a slice of its own.
    Tokens(usize),
}

impl Policy {
    /// Cuts a batch into ranges of consecutive rows, one for each pass, by the slice setting and `min_slice_bytes`.
    /// Returns at least one range; it is empty only for a batch without rows. `share` says whether a pass runs common
    /// prefixes once.
    pub(super) fn slices(&self, rows: &Rows, share: bool) -> Vec<Range<usize>> {
        let (configuration, settings) = (&self.model.configuration, &self.settings);
        // As if nothing were recomputed: what is recomputed must change no bit, so it must not move a cut.
        let token = self.base_token_bytes(Recompute::None, configuration.layers);
        let min_tokens = settings.min_slice_bytes / token.max(1);
        settings.slice.cut(rows, share, usize::try_from(min_tokens).unwrap_or(usize::MAX), configuration)
    }
}

impl Slice {
    /// Whether the setting allows all of these rows in one slice, without regard to `min_slice_bytes`. Counts the
    /// tokens of all rows, also those of common prefixes; a single row is always allowed.
    pub(super) fn holds(self, rows: &Rows) -> bool {
        match self {
            Self::Whole => true,
            Self::Rows(most) => rows.count() <= most.max(1),
            Self::Tokens(most) => rows.tokens() <= most || rows.count() <= 1,
        }
    }

    /// Cuts rows, in order, into slices as large as the setting allows; a slice may always grow to `min_tokens` tokens,
    /// and has at least one row. With `share`, a row's tokens count without the prefix that it has in common with the
    /// row before it in the slice. A batch without rows is one empty slice.
    fn cut(self, rows: &Rows, share: bool, min_tokens: usize, configuration: &Configuration) -> Vec<Range<usize>> {
        let (mut slices, mut start, mut tokens) = (Vec::new(), 0, 0_usize);
        for (row, ids) in rows.ids.iter().enumerate() {
            let added = if row > start { Packing::added_tokens(rows, row, share, configuration) } else { ids.len() };
            let grown = tokens.saturating_add(added);
            let full = match self {
                Self::Whole => false,
                Self::Rows(most) => row - start >= most.max(1),
                Self::Tokens(most) => grown > most,
            };
            if full && grown > min_tokens && row > start {
                slices.push(start..row);
                (start, tokens) = (row, ids.len());
            } else {
                tokens = grown;
            }
        }
        slices.push(start..rows.count());
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiny;

    /// Rows of these lengths that all begin alike.
    fn rows(lengths: &[usize]) -> Rows {
        let ids: Vec<Vec<u32>> = lengths.iter().map(|length| vec![1; *length]).collect();
        let targets = lengths.iter().map(|length| vec![true; *length]).collect();
        Rows::new(ids, targets).unwrap()
    }

    fn plain(slices: Vec<Range<usize>>) -> Vec<(usize, usize)> {
        slices.into_iter().map(|rows| (rows.start, rows.end)).collect()
    }

    fn cut(slice: Slice, lengths: &[usize]) -> Vec<(usize, usize)> {
        plain(slice.cut(&rows(lengths), false, 0, &tiny::llama()))
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

    #[test]
    fn tokens_that_rows_share_count_once() {
        let lengths = [5, 6, 6, 2, 9];
        let shared = |most, model: &Configuration| plain(Slice::Tokens(most).cut(&rows(&lengths), true, 0, model));
        assert_eq!(shared(6, &tiny::llama()), [(0, 4), (4, 5)]);
        assert_eq!(shared(14, &tiny::llama()), [(0, 5)]);
        // The last row is longer than the short factors serve: it turns otherwise, the others share as before.
        assert_eq!(shared(14, &tiny::phi3(8)), [(0, 4), (4, 5)]);
        assert_eq!(shared(15, &tiny::phi3(8)), [(0, 5)]);
        assert_eq!(cut(Slice::Tokens(6), &lengths), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
    }

    #[test]
    fn a_slice_that_is_small_anyway_is_never_full() {
        let cut = |slice: Slice, lengths: &[usize], min_tokens| {
            plain(slice.cut(&rows(lengths), false, min_tokens, &tiny::llama()))
        };
        assert_eq!(cut(Slice::Rows(1), &[3, 3, 3, 3, 3], 7), [(0, 2), (2, 4), (4, 5)]);
        assert_eq!(cut(Slice::Tokens(2), &[3, 3, 9, 3], 6), [(0, 2), (2, 3), (3, 4)]);
    }
}
