//! Sequences of unequal length, packed one after another without padding; a sequence may continue another one.

pub(super) mod device;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};

/// The sequences of a packed batch: where each begins and ends, and which other sequence it continues, if any.
///
/// A token attends to its own sequence up to itself, and to all tokens of the sequence that this one continues, of the
/// sequence that that one continues, and so on. So a prefix that several rows share is in the batch once, as a sequence
/// that the rest of each row continues.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    sequences: Vec<Sequence>,
    /// Tables of tiles for the attention kernels of a device, created on demand and kept for clones as well.
    plans: Arc<Mutex<Vec<device::CachedPlan>>>,
}

/// One sequence of a packed batch.
#[derive(Clone, Debug)]
struct Sequence {
    /// Its tokens, without those of the sequence that it continues.
    own: Span,
    /// The index of the sequence that it continues.
    parent: Option<usize>,
    /// The end of the rows of this sequence and of all that continue it, directly or not. These rows are adjacent.
    reach: usize,
}

/// Tokens with consecutive positions in their sequence and consecutive rows in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The position of the first token, counted from the start of the sequences that its own continues.
    pub(super) first: usize,
    pub(super) rows: Range<usize>,
}

impl Span {
    /// The range of positions that the span covers.
    pub(super) fn positions(&self) -> Range<usize> {
        self.first..self.first + self.rows.len()
    }

    /// Returns the rows of the tokens at `positions`, which must lie within the span.
    pub(super) fn rows_of(&self, positions: &Range<usize>) -> Range<usize> {
        self.rows.start + positions.start - self.first..self.rows.start + positions.end - self.first
    }
}

/// Splits a range of positions at every multiple of `size`, so that each piece lies between two of them. An empty range
/// has no pieces.
pub(super) fn split_at_multiples(positions: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end_of = move |start: usize| ((start / size + 1) * size).min(positions.end);
    let first = (positions.start < positions.end).then_some(positions.start);
    std::iter::successors(first, move |start| Some(end_of(*start)).filter(|next| *next < positions.end))
        .map(move |start| start..end_of(start))
}

impl Segments {
    /// Packs independent sequences of these lengths, in order: none continues another one. A length may be 0.
    #[must_use]
    pub fn new(lengths: &[usize]) -> Self {
        let mut segments = Self::default();
        lengths.iter().for_each(|length| segments.push(*length, None));
        segments
    }

    /// Packs sequences, in order, each given as its length and the index of the sequence that it continues, if any.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the sequence that a sequence continues is the one just before it in the list, or one
    /// that the one just before it continues, directly or not. So all that continue a sequence must follow it before an
    /// unrelated one begins.
    pub fn branching(pieces: &[(usize, Option<usize>)]) -> Result<Self> {
        let mut segments = Self::default();
        for (number, (length, parent)) in pieces.iter().enumerate() {
            if parent.is_some_and(|parent| !segments.self_and_ancestors(number.checked_sub(1)).any(|one| one == parent))
            {
                return Err(Error::argument(format!("sequence {number} does not follow the one that it goes on from")));
            }
            segments.push(*length, *parent);
        }
        Ok(segments)
    }

    /// Appends a sequence of `length` tokens after all others. It continues the sequence with index `parent`, if any:
    /// its positions begin at the end of that sequence's, else at 0. Extends the reach of `parent`, and of all
    /// sequences that `parent` continues, to the new end. Panics if `parent` does not exist.
    fn push(&mut self, length: usize, parent: Option<usize>) {
        let (start, end) = (self.tokens(), self.tokens() + length);
        let first = parent.map_or(0, |parent| self.sequences[parent].own.positions().end);
        let ancestors: Vec<usize> = self.self_and_ancestors(parent).collect();
        ancestors.into_iter().for_each(|one| self.sequences[one].reach = end);
        self.sequences.push(Sequence { own: Span { first, rows: start..end }, parent, reach: end });
    }

    /// Yields the index `from`, then the index of the sequence that sequence `from` continues, and so on up to a
    /// sequence that continues none. Yields nothing for `None`.
    fn self_and_ancestors(&self, from: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(from, |one| self.sequences[*one].parent)
    }

    /// The number of sequences.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sequences.len()
    }

    /// The number of tokens of all sequences together.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.sequences.last().map_or(0, |last| last.own.rows.end)
    }

    /// The rows of each sequence, in order, without those of the sequences that it continues.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.sequences.iter().map(|sequence| sequence.own.rows.clone())
    }

    /// Returns the position of each token, in the order of the rows. Positions of a sequence count up from 0 or, if it
    /// continues another one, from the end of that one's positions.
    ///
    /// # Errors
    /// [`Error::Argument`] if a position does not fit in 32 bits.
    pub fn positions(&self) -> Result<Vec<u32>> {
        let number = |position| u32::try_from(position).map_err(|_| Error::argument("a sequence is too long"));
        let mut positions = Vec::with_capacity(self.tokens());
        for sequence in &self.sequences {
            let covered = sequence.own.positions();
            positions.extend(number(covered.start)?..number(covered.end)?);
        }
        Ok(positions)
    }

    /// The tokens of the sequence with index `number`, without those of the sequences that it continues.
    pub(super) fn span(&self, number: usize) -> Span {
        self.sequences[number].own.clone()
    }

    /// Returns all tokens that the last token of the sequence with index `number` attends to if attention has no
    /// window: the spans of the sequences that it continues, directly or not, the outermost first, then its own span.
    pub(super) fn path(&self, number: usize) -> Vec<Span> {
        let mut path: Vec<Span> = self.self_and_ancestors(Some(number)).map(|one| self.span(one)).collect();
        path.reverse();
        path
    }

    /// Yields the tokens of the sequence with index `number`, then those of each sequence that continues it, directly
    /// or not. Their rows are adjacent.
    pub(super) fn family(&self, number: usize) -> impl Iterator<Item = Span> {
        let reach = self.sequences[number].reach;
        let rest = self.sequences[number..].iter().map(|sequence| sequence.own.clone());
        rest.take_while(move |own| own.rows.start < reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_restart_in_every_sequence() {
        let segments = Segments::new(&[2, 0, 3]);
        assert_eq!((segments.count(), segments.tokens()), (3, 5));
        assert_eq!(segments.ranges().collect::<Vec<_>>(), [0..2, 2..2, 2..5]);
        assert_eq!(segments.positions().unwrap(), [0, 1, 0, 1, 2]);
    }

    #[test]
    fn positions_go_on_where_a_sequence_goes_on_from_another() {
        let segments = Segments::branching(&[(2, None), (3, Some(0)), (1, Some(1)), (2, Some(0)), (1, None)]).unwrap();
        assert_eq!(segments.positions().unwrap(), [0, 1, 2, 3, 4, 5, 2, 3, 0]);
        let rows = |spans: Vec<Span>| spans.into_iter().map(|one| one.rows).collect::<Vec<_>>();
        assert_eq!(rows(segments.path(2)), [0..2, 2..5, 5..6]);
        assert_eq!(rows(segments.path(3)), [0..2, 6..8]);
        assert_eq!(rows(segments.family(0).collect()), [0..2, 2..5, 5..6, 6..8]);
        assert_eq!(rows(segments.family(1).collect()), [2..5, 5..6]);
        assert_eq!((segments.family(4).count(), segments.span(4).rows), (1, 8..9));
    }

    #[test]
    fn a_sequence_that_does_not_follow_what_it_goes_on_from_is_refused() {
        for pieces in
            [&[(1, Some(0))][..], &[(1, None), (1, None), (1, Some(0))], &[(1, None), (1, Some(2)), (1, None)]]
        {
            assert!(Segments::branching(pieces).is_err(), "{pieces:?}");
        }
    }
}
