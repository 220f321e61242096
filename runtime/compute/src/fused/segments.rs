//! Sequences of unequal length, packed one after another without padding.

use std::ops::Range;

use crate::error::{Error, Result};

/// Where each sequence of a packed batch begins and ends. A token sees only its own sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Cumulative starts; the last is the number of tokens.
    starts: Vec<usize>,
}

impl Segments {
    /// Sequences of these lengths, in order. A length may be 0.
    #[must_use]
    pub fn new(lengths: &[usize]) -> Self {
        let mut starts = vec![0];
        let mut end = 0;
        for length in lengths {
            end += length;
            starts.push(end);
        }
        Self { starts }
    }

    /// The number of sequences.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of tokens of all sequences together.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The rows that each sequence covers.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.starts.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// The position of each token in its sequence, from 0.
    ///
    /// # Errors
    /// A sequence of 2³² tokens or more.
    pub fn positions(&self) -> Result<Vec<u32>> {
        let mut positions = Vec::with_capacity(self.tokens());
        for range in self.ranges() {
            let length = u32::try_from(range.len()).map_err(|_| Error::argument("a sequence is too long"))?;
            positions.extend(0..length);
        }
        Ok(positions)
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
}
