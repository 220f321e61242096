//! Finds the common prefixes of rows, so that a pass computes each of them once.
//! Tokens of two rows are shared if their ids, target marks and rotations are equal, and those of all tokens before
//! them.

use std::collections::HashMap;
use std::ops::Range;

/// A common prefix is shared only if that saves at least this many tokens, because each cut of a row has a cost.
const MIN_TOKENS_SAVED: usize = 16;

/// The fewest tokens of a shared piece, so that rows of which each is a little longer than the one before are not cut
/// into single tokens.
const MIN_PREFIX: usize = 8;

/// Nothing is shared if the rows have fewer tokens than this in all: in so small a pass it saves no time.
const MIN_TOKENS: usize = 64;

/// The tokens of a row that enter a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTokens<'a> {
    pub(super) ids: &'a [u32],
    pub(super) marks: &'a [bool],
    /// The row of its first token in the rotation tables.
    pub(super) first_row: usize,
}

impl RowTokens<'_> {
    /// The id and the target mark of the token with index `place`, and `first_row`: two rows can share the token only
    /// if all three are equal. `None` past the end.
    fn at(&self, place: usize) -> Option<(u32, bool, usize)> {
        Some((*self.ids.get(place)?, *self.marks.get(place)?, self.first_row))
    }

    /// The length of the common prefix of two rows: the number of first tokens with equal ids, target marks and
    /// `first_row`. Does not compare the first `from` tokens, which the caller has found equal.
    pub(super) fn common(&self, other: &RowTokens<'_>, from: usize) -> usize {
        let length = self.ids.len().min(other.ids.len());
        (from..length).find(|place| self.at(*place) != other.at(*place)).unwrap_or(length)
    }
}

/// Consecutive tokens that are packed once, for one or more rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The index of a row that contains the piece.
    pub(super) row: usize,
    /// The range of its tokens in that row.
    pub(super) tokens: Range<usize>,
    /// The index of the piece that it continues, always a lower one; `None` at the start of a row.
    pub(super) parent: Option<usize>,
}

/// Rows cut into pieces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Depth first: all pieces that continue a piece, directly or not, follow it before any other.
    pub(super) pieces: Vec<Piece>,
    /// For each row, the index of its last piece; `None` for a row without tokens.
    pub(super) ends: Vec<Option<usize>>,
}

/// Rows whose first `at` tokens are equal. Their first `from` tokens are already in pieces, the last of which is
/// `parent`.
struct Branch {
    rows: Vec<usize>,
    from: usize,
    at: usize,
    parent: Option<usize>,
}

impl Pieces {
    /// Makes each row one piece, without sharing; a row without tokens gets none.
    pub(super) fn unshared(rows: &[RowTokens<'_>]) -> Self {
        let mut pieces = Self { pieces: Vec::new(), ends: vec![None; rows.len()] };
        for (row, tokens) in rows.iter().enumerate() {
            pieces.add_remainder(row, 0..tokens.ids.len(), None);
        }
        pieces
    }

    /// Appends the pieces of the rows with the indices `rows`; `part` has them in that order. Returns the number of
    /// tokens of these pieces.
    pub(super) fn append(&mut self, part: Self, rows: &[usize]) -> usize {
        let before = self.pieces.len();
        let later = |number: usize| number + before;
        let tokens = part.pieces.iter().map(|piece| piece.tokens.len()).sum();
        for piece in part.pieces {
            let Piece { row, tokens, parent } = piece;
            self.pieces.push(Piece { row: rows[row], tokens, parent: parent.map(later) });
        }
        for (row, end) in rows.iter().zip(part.ends) {
            self.ends[*row] = end.map(later);
        }
        tokens
    }

    /// Cuts rows into pieces so that a common prefix is one piece, if the piece has at least [`MIN_PREFIX`] tokens and
    /// saves at least [`MIN_TOKENS_SAVED`]. Shares nothing if the rows have fewer than [`MIN_TOKENS`] tokens in all.
    pub(super) fn shared(rows: &[RowTokens<'_>]) -> Self {
        // All tokens of the rows, which is what a pass runs if nothing is shared.
        if rows.iter().map(|row| row.ids.len()).sum::<usize>() < MIN_TOKENS {
            return Self::unshared(rows);
        }
        let mut found = Self { pieces: Vec::new(), ends: vec![None; rows.len()] };
        let mut waiting = vec![Branch { rows: (0..rows.len()).collect(), from: 0, at: 0, parent: None }];
        while let Some(branch) = waiting.pop() {
            let next = found.add_common_prefix(branch, rows);
            waiting.extend(next.into_iter().rev());
        }
        found
    }

    /// Finds the common prefix of a branch's rows. Adds those of its tokens that are in no piece yet as a piece, if
    /// they are at least [`MIN_PREFIX`] and a piece saves at least [`MIN_TOKENS_SAVED`]. Returns the branches that
    /// follow: one for each next token, in the order of their first rows, and one for each row that ends with the
    /// prefix. For a branch of one row, adds the row's remaining tokens as a piece and returns no branch.
    fn add_common_prefix(&mut self, branch: Branch, rows: &[RowTokens<'_>]) -> Vec<Branch> {
        let Branch { rows: members, mut from, at, mut parent } = branch;
        let Some((first, others)) = members.split_first() else { return Vec::new() };
        let length = rows[*first].ids.len();
        let to = others.iter().fold(length, |to, other| to.min(rows[*first].common(&rows[*other], at)));
        if others.is_empty() {
            self.add_remainder(*first, from..length, parent);
            return Vec::new();
        }
        if to - from >= MIN_PREFIX && (to - from) * others.len() >= MIN_TOKENS_SAVED {
            self.pieces.push(Piece { row: *first, tokens: from..to, parent });
            (from, parent) = (to, Some(self.pieces.len() - 1));
        }
        let (mut parts, mut numbers) = (Vec::<Branch>::new(), HashMap::new());
        for row in members {
            // A row that ends here gets a branch of its own, for its tokens that are in no piece yet.
            let token = rows[row].at(to);
            let number = token.map_or(parts.len(), |token| *numbers.entry(token).or_insert(parts.len()));
            match parts.get_mut(number) {
                Some(part) => part.rows.push(row),
                None => parts.push(Branch { rows: vec![row], from, at: to, parent }),
            }
        }
        parts
    }

    /// Adds `tokens`, the last tokens of a row, as a piece that continues `parent`, and records that piece as the row's
    /// last. If `tokens` is empty, adds no piece and records `parent` as the row's last.
    fn add_remainder(&mut self, row: usize, tokens: Range<usize>, parent: Option<usize>) {
        if tokens.is_empty() {
            self.ends[row] = parent;
            return;
        }
        self.ends[row] = Some(self.pieces.len());
        self.pieces.push(Piece { row, tokens, parent });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece as row, first token, end of tokens, parent.
    type Plain = (usize, usize, usize, Option<usize>);

    fn pieces(ids: &[Vec<u32>]) -> (Vec<Plain>, Vec<Option<usize>>) {
        let marks: Vec<Vec<bool>> = ids.iter().map(|ids| vec![false; ids.len()]).collect();
        let rows: Vec<RowTokens<'_>> =
            ids.iter().zip(&marks).map(|(ids, marks)| RowTokens { ids, marks, first_row: 0 }).collect();
        let Pieces { pieces, ends } = Pieces::shared(&rows);
        let plain = |piece: Piece| (piece.row, piece.tokens.start, piece.tokens.end, piece.parent);
        (pieces.into_iter().map(plain).collect(), ends)
    }

    /// The tokens 0 to `common` − 1, then `own`.
    fn row(common: u32, own: &[u32]) -> Vec<u32> {
        (0..common).chain(own.iter().copied()).collect()
    }

    #[test]
    fn beginnings_within_beginnings_are_each_laid_down_once() {
        let rows = [row(90, &[500]), row(60, &[600, 601]), row(90, &[501]), vec![7, 8], row(60, &[])];
        let expected = vec![
            (0, 0, 60, None),
            (0, 60, 90, Some(0)),
            (0, 90, 91, Some(1)),
            (2, 90, 91, Some(1)),
            (1, 60, 62, Some(0)),
            (3, 0, 2, None),
        ];
        assert_eq!(pieces(&rows), (expected, vec![Some(2), Some(4), Some(3), Some(5), Some(0)]));
    }

    #[test]
    fn few_tokens_in_common_are_not_worth_a_cut_but_more_behind_them_are() {
        let rows = [row(4, &[100; 80]), row(4, &[101; 80]), row(4, &[101; 90])];
        let expected = vec![(0, 0, 84, None), (1, 0, 84, None), (2, 84, 94, Some(1))];
        assert_eq!(pieces(&rows), (expected, vec![Some(0), Some(1), Some(2)]));
    }

    #[test]
    fn rows_that_each_go_on_a_little_further_are_not_cut_into_single_tokens() {
        let rows: Vec<Vec<u32>> = (80..100).map(|length| row(length, &[])).collect();
        let (pieces, _) = pieces(&rows);
        let shared = pieces.iter().filter(|(.., parent)| parent.is_none()).count();
        assert_eq!(shared, 1);
        assert!(
            pieces[1..].iter().all(|(_, start, _, parent)| parent.is_some() && (start - 80).is_multiple_of(MIN_PREFIX))
        );
    }

    #[test]
    fn rows_that_are_the_same_go_through_once() {
        let rows = [row(80, &[]), row(80, &[]), row(80, &[])];
        assert_eq!(pieces(&rows), (vec![(0, 0, 80, None)], vec![Some(0); 3]));
    }

    #[test]
    fn rows_stay_apart_where_they_are_few_tokens_and_where_marks_differ() {
        let rows = [row(30, &[]), row(30, &[9])];
        assert_eq!(pieces(&rows), (vec![(0, 0, 30, None), (1, 0, 31, None)], vec![Some(0), Some(1)]));

        let (ids, marks) = (vec![3; 100], [vec![false; 100], vec![true; 100]]);
        let row = |marks, first_row| RowTokens { ids: &ids, marks, first_row };
        let rows = [row(&marks[0], 0), row(&marks[1], 0)];
        assert_eq!(Pieces::shared(&rows), Pieces::unshared(&rows));
        let rows = [row(&marks[0], 0), row(&marks[0], 64)];
        assert_eq!(Pieces::shared(&rows), Pieces::unshared(&rows));
    }

    #[test]
    fn a_row_without_tokens_has_no_piece() {
        assert_eq!(pieces(&[vec![], row(80, &[])]), (vec![(1, 0, 80, None)], vec![None, Some(0)]));
    }
}
