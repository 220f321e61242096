//! Cuts the rows of a pass into parts with separate gradients, which are then summed, and divides the parts among
//! ranks. The cut depends on the rows alone, so the sum of the gradients has the same bits for any number of ranks.

use std::ops::Range;

use tunebox_compute::parameters::TokenParts;

use super::prefixes::{Pieces, RowTokens};

/// The fewest tokens of a part, if the rows after it fill another one.
const MIN_TOKENS: usize = 256;

/// About the most parts of one pass: adding up a part takes a pass over all gradients.
const MAX_PARTS: usize = 32;

/// A part has at least this many times the tokens that the rows on both sides of its end have in common. Such a prefix
/// runs once in each part.
const PREFIX_RATIO: usize = 32;

/// The rows of a slice in parts, and which of these parts this rank computes. Docs call those "the parts that are
/// here".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowParts {
    /// The rows of each part, by their index in the slice, ascending.
    pub(super) rows: Vec<Vec<usize>>,
    /// The number of packed tokens of each part.
    tokens: Vec<usize>,
    /// For each rank the indices of its parts.
    shares: Vec<Range<usize>>,
    rank: usize,
}

impl RowParts {
    /// All of `count` rows as one part, which is here. Counts no tokens, so [`largest_share`](Self::largest_share) is
    /// 0.
    pub(crate) fn whole(count: usize) -> Self {
        Self { rows: vec![(0..count).collect()], tokens: vec![0], shares: std::iter::once(0..1).collect(), rank: 0 }
    }

    /// Cuts rows, each given by the tokens of it that a pass runs, into parts, and divides the parts among `ranks`
    /// ranks. `share` says whether common prefixes run once in a part. A part takes further rows until it has at least
    /// [`MIN_TOKENS`] tokens, the tokens of all rows ÷ [`MAX_PARTS`], and [`PREFIX_RATIO`] times the prefix that the
    /// next row has in common with the row before it. A last part of less than half the first two sizes joins the part
    /// before it.
    pub(super) fn cut(rows: &[RowTokens<'_>], share: bool, (rank, ranks): (usize, usize)) -> Self {
        let order = order_by_prefix(rows, share);
        let total: usize = rows.iter().map(|row| row.ids.len()).sum();
        let wanted = MIN_TOKENS.max(total / MAX_PARTS);
        let (mut parts, mut tokens) = (Vec::<Vec<usize>>::new(), Vec::<usize>::new());
        let mut before: Option<usize> = None;
        for row in order {
            let own = rows[row].ids.len();
            let common = before.filter(|_| share).map_or(0, |before| rows[row].common(&rows[before], 0));
            before = Some(row);
            match (parts.last_mut(), tokens.last_mut()) {
                (Some(part), Some(filled)) if *filled < wanted || *filled < common * PREFIX_RATIO => {
                    part.push(row);
                    *filled += own - common;
                }
                _ => {
                    parts.push(vec![row]);
                    tokens.push(own);
                }
            }
        }
        // A rest that is too small joins the part before it.
        if tokens.len() > 1 && tokens.last().is_some_and(|last| *last < wanted / 2) {
            let (rest, more) = (parts.pop().unwrap_or_default(), tokens.pop().unwrap_or_default());
            parts.last_mut().into_iter().for_each(|part| part.extend(&rest));
            tokens.last_mut().into_iter().for_each(|filled| *filled += more);
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        let shares = divide(&tokens, ranks);
        Self { rows: parts, tokens, shares, rank }
    }

    /// The number of parts.
    pub(crate) fn count(&self) -> usize {
        self.rows.len()
    }

    /// The indices of the parts that are here.
    pub(super) fn local_parts(&self) -> Range<usize> {
        self.shares[self.rank].clone()
    }

    /// About the most tokens that a rank runs: prefixes too short to be shared count once.
    pub(crate) fn largest_share(&self) -> usize {
        self.shares.iter().map(|own| self.tokens[own.clone()].iter().sum()).max().unwrap_or(0)
    }

    /// The number of tokens of the parts before those that are here, if no prefix is shared.
    pub(super) fn first_token(&self) -> usize {
        self.tokens[..self.local_parts().start].iter().sum()
    }

    /// For each rank, the rows of its parts, by their index in the slice, ascending.
    pub(crate) fn rows_of_ranks(&self) -> impl Iterator<Item = Vec<usize>> {
        self.shares.iter().map(|own| {
            let mut rows = self.rows[own.clone()].concat();
            rows.sort_unstable();
            rows
        })
    }

    /// The rows of the parts that are here, by their index in the slice, ascending.
    pub(crate) fn own_rows(&self) -> Vec<usize> {
        self.rows_of_ranks().nth(self.rank).unwrap_or_default()
    }

    /// For each rank, the subtrees of the sum over all parts that it computes, each as a range of parts.
    pub(crate) fn subtrees(&self) -> Vec<Vec<Range<usize>>> {
        self.shares.iter().map(|own| TokenParts::subtrees(self.count(), own)).collect()
    }
}

/// The rows in an order in which rows with a common prefix are adjacent; their own order if nothing is shared.
fn order_by_prefix(rows: &[RowTokens<'_>], share: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if share {
        let ends = Pieces::shared(rows).ends;
        order.sort_by_key(|row| ends[*row]);
    }
    order
}

/// Divides items with these weights into `shares` ranges of consecutive items with about equal weights. An item
/// belongs to the share in which the middle of its weight lies. Some ranges may be empty.
pub(crate) fn divide(weights: &[usize], shares: usize) -> Vec<Range<usize>> {
    let total: usize = weights.iter().sum();
    let (mut start, mut before) = (0, 0);
    let mut share = |number: usize| {
        let goal = total * (number + 1);
        let mut end = start;
        while end < weights.len() && (2 * before + weights[end]) * shares < 2 * goal {
            before += weights[end];
            end += 1;
        }
        let end = if number + 1 == shares { weights.len() } else { end };
        let range = start..end;
        start = end;
        range
    };
    (0..shares).map(&mut share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rows: &[Vec<u32>], share: bool, ranks: usize) -> RowParts {
        let marks = vec![false; 4000];
        let rows: Vec<RowTokens<'_>> =
            rows.iter().map(|ids| RowTokens { ids, marks: &marks[..ids.len()], first_row: 0 }).collect();
        RowParts::cut(&rows, share, (0, ranks))
    }

    /// `count` tokens that begin with `common` equal ones and go on with those of `seed`.
    fn row(seed: u32, common: usize, count: usize) -> Vec<u32> {
        (0..count).map(|at| if at < common { 1 } else { 100 * seed + at as u32 }).collect()
    }

    #[test]
    fn rows_fill_parts_of_enough_tokens_in_their_order() {
        let rows: Vec<Vec<u32>> = (1..8).map(|seed| row(seed, 0, 90)).collect();
        let parts = cut(&rows, true, 2);
        assert_eq!(parts.rows, [vec![0, 1, 2], vec![3, 4, 5, 6]]);
        assert_eq!(parts.tokens, [270, 360]);
        assert_eq!(parts.shares, [0..1, 1..2]);
        assert_eq!(cut(&rows[..3], true, 3).rows, [vec![0, 1, 2]]);
    }

    #[test]
    fn rows_with_a_long_common_prefix_stay_together_wherever_they_are() {
        let rows: Vec<Vec<u32>> = [1, 2, 1, 2, 1, 2, 1, 2]
            .iter()
            .zip(1..)
            .map(|(prompt, seed)| [row(*prompt, 0, 100), row(10 + seed, 0, 40)].concat())
            .collect();
        let parts = cut(&rows, true, 2);
        assert_eq!(parts.rows, [vec![0, 2, 4, 6], vec![1, 3, 5, 7]]);
        assert_eq!(parts.tokens, [260, 260]);
        assert_eq!(cut(&rows, false, 2).rows.len(), 4);
    }

    #[test]
    fn a_short_common_prefix_runs_once_in_each_of_some_large_parts() {
        let rows: Vec<Vec<u32>> = (1..41).map(|seed| row(seed, 20, 100)).collect();
        let parts = cut(&rows, true, 4);
        assert!(parts.count() > 2, "{parts:?}");
        assert!(parts.tokens[..parts.count() - 1].iter().all(|tokens| *tokens >= 20 * PREFIX_RATIO), "{parts:?}");
    }

    #[test]
    fn every_part_belongs_to_one_share_and_shares_are_even() {
        assert_eq!(divide(&[1, 1, 1, 1], 2), [0..2, 2..4]);
        assert_eq!(divide(&[1, 1, 1, 1], 3), [0..1, 1..3, 3..4]);
        assert_eq!(divide(&[5, 1], 3), [0..0, 0..1, 1..2]);
        assert_eq!(divide(&[], 2), [0..0, 0..0]);
        for count in 0..40_usize {
            let weights: Vec<usize> = (0..count).map(|at| at * 37 % 11).collect();
            for shares in 1..9 {
                let found = divide(&weights, shares);
                assert_eq!(found.len(), shares);
                assert_eq!(found.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
            }
        }
    }
}
