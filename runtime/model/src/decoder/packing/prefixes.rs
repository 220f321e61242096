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
pub(super) struct Line<'a> {
    pub(super) ids: &'a [u32],
    pub(super) marks: &'a [bool],
    /// The row of its first token in the rotation tables.
    pub(super) first_row: usize,
}

impl Line<'_> {
    /// The id and the target mark of token `place`, and the line's first row in the rotation tables: what must match
    /// for two lines to share the token. `None` past the end.
    fn at(&self, place: usize) -> Option<(u32, bool, usize)> {
        Some((*self.ids.get(place)?, *self.marks.get(place)?, self.first_row))
    }

    /// The length of the common prefix of two lines, whose first `from` tokens are known to match.
    pub(super) fn common(&self, other: &Line<'_>, from: usize) -> usize {
        let length = self.ids.len().min(other.ids.len());
        (from..length).find(|place| self.at(*place) != other.at(*place)).unwrap_or(length)
    }
}

/// Consecutive tokens that are packed once, for one or more lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The index of a line that contains the piece.
    pub(super) line: usize,
    /// The range of its tokens in that line.
    pub(super) tokens: Range<usize>,
    /// The index of the piece that it continues, always a lower one; `None` at the start of a line.
    pub(super) parent: Option<usize>,
}

/// Lines cut into pieces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Depth first: all pieces that continue a piece, directly or not, follow it before any other.
    pub(super) pieces: Vec<Piece>,
    /// For each line, the index of its last piece; `None` for a line without tokens.
    pub(super) ends: Vec<Option<usize>>,
}

/// Lines whose first `at` tokens are equal. Their first `from` tokens are already in pieces, the last of which is
/// `parent`.
struct Branch {
    lines: Vec<usize>,
    from: usize,
    at: usize,
    parent: Option<usize>,
}

impl Pieces {
    /// Makes each line one piece, without sharing; a line without tokens gets none.
    pub(super) fn unshared(lines: &[Line<'_>]) -> Self {
        let mut pieces = Self { pieces: Vec::new(), ends: vec![None; lines.len()] };
        for (line, tokens) in lines.iter().enumerate() {
            pieces.add_remainder(line, 0..tokens.ids.len(), None);
        }
        pieces
    }

    /// Cuts lines into pieces so that common prefixes are packed once, where that saves enough. Below [`MIN_TOKENS`]
    /// tokens in all, shares nothing.
    pub(super) fn shared(lines: &[Line<'_>]) -> Self {
        // By what the lines hold apart: that is what they cost when nothing is shared.
        if lines.iter().map(|line| line.ids.len()).sum::<usize>() < MIN_TOKENS {
            return Self::unshared(lines);
        }
        let mut found = Self { pieces: Vec::new(), ends: vec![None; lines.len()] };
        let mut waiting = vec![Branch { lines: (0..lines.len()).collect(), from: 0, at: 0, parent: None }];
        while let Some(branch) = waiting.pop() {
            let next = found.add_common_prefix(branch, lines);
            waiting.extend(next.into_iter().rev());
        }
        found
    }

    /// Adds the common prefix of a branch's lines as a piece if it saves enough tokens. Returns the branches that
    /// follow, grouped by their next token; a branch of one line is finished here.
    fn add_common_prefix(&mut self, branch: Branch, lines: &[Line<'_>]) -> Vec<Branch> {
        let Branch { lines: members, mut from, at, mut parent } = branch;
        let Some((first, others)) = members.split_first() else { return Vec::new() };
        let length = lines[*first].ids.len();
        let to = others.iter().fold(length, |to, other| to.min(lines[*first].common(&lines[*other], at)));
        if others.is_empty() {
            self.add_remainder(*first, from..length, parent);
            return Vec::new();
        }
        if to - from >= MIN_PREFIX && (to - from) * others.len() >= MIN_TOKENS_SAVED {
            self.pieces.push(Piece { line: *first, tokens: from..to, parent });
            (from, parent) = (to, Some(self.pieces.len() - 1));
        }
        let (mut parts, mut numbers) = (Vec::<Branch>::new(), HashMap::new());
        for line in members {
            // Lines that end here go on alone, if only for the tokens that were not worth sharing.
            let token = lines[line].at(to);
            let number = token.map_or(parts.len(), |token| *numbers.entry(token).or_insert(parts.len()));
            match parts.get_mut(number) {
                Some(part) => part.lines.push(line),
                None => parts.push(Branch { lines: vec![line], from, at: to, parent }),
            }
        }
        parts
    }

    /// Adds the last tokens of a line as a piece and records it as the line's end. Without tokens, the line ends with
    /// `parent`.
    fn add_remainder(&mut self, line: usize, tokens: Range<usize>, parent: Option<usize>) {
        if tokens.is_empty() {
            self.ends[line] = parent;
            return;
        }
        self.ends[line] = Some(self.pieces.len());
        self.pieces.push(Piece { line, tokens, parent });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece as line, first token, end of tokens, parent.
    type Plain = (usize, usize, usize, Option<usize>);

    fn pieces(ids: &[Vec<u32>]) -> (Vec<Plain>, Vec<Option<usize>>) {
        let marks: Vec<Vec<bool>> = ids.iter().map(|ids| vec![false; ids.len()]).collect();
        let lines: Vec<Line<'_>> =
            ids.iter().zip(&marks).map(|(ids, marks)| Line { ids, marks, first_row: 0 }).collect();
        let Pieces { pieces, ends } = Pieces::shared(&lines);
        let plain = |piece: Piece| (piece.line, piece.tokens.start, piece.tokens.end, piece.parent);
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
        let line = |marks, first_row| Line { ids: &ids, marks, first_row };
        let lines = [line(&marks[0], 0), line(&marks[1], 0)];
        assert_eq!(Pieces::shared(&lines), Pieces::unshared(&lines));
        let lines = [line(&marks[0], 0), line(&marks[0], 64)];
        assert_eq!(Pieces::shared(&lines), Pieces::unshared(&lines));
    }

    #[test]
    fn a_line_without_tokens_has_no_piece() {
        assert_eq!(pieces(&[vec![], row(80, &[])]), (vec![(1, 0, 80, None)], vec![None, Some(0)]));
    }
}
