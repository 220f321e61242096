//! In which order a run sees its examples, and how they fall into micro-batches and windows.
//!
//! The order of an epoch depends on the seed and the epoch's number alone, so a run can go on
//! from any place without walking there.

use serde::{Deserialize, Serialize};
use tunebox_compute::random::Stream;

use super::packing::pack;

/// How examples become batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Examples of a micro-batch.
    pub batch: usize,
    /// Micro-batches of an update.
    pub accumulation: usize,
    /// Tokens of a packed micro-batch; `None` counts examples instead.
    pub capacity: Option<usize>,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Where the orders come from.
    pub seed: u64,
}

/// A place in the data: everything before it has been learned from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Passes begun, from 0.
    pub epoch: u64,
    /// Micro-batches of this pass that are done.
    pub index: usize,
}

/// Walks the data window by window, for ever.
#[derive(Debug, Clone)]
pub struct Walk {
    batching: Batching,
    lengths: Vec<usize>,
    cursor: Cursor,
    batches: Vec<Vec<usize>>,
}

impl Walk {
    /// Starts at a cursor over examples of these lengths (in tokens); there must be at least one.
    ///
    /// `None` when there is no example, or the cursor is past the end of its epoch.
    #[must_use]
    pub fn from(cursor: Cursor, batching: Batching, lengths: Vec<usize>) -> Option<Self> {
        let batches = epoch(cursor.epoch, &batching, &lengths);
        let inside = !batches.is_empty() && cursor.index <= batches.len();
        inside.then_some(Self { batching, lengths, cursor, batches })
    }

    /// The place before the coming window.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Goes back to a place that it was at.
    pub(crate) fn back_to(&mut self, cursor: Cursor) {
        if cursor.epoch != self.cursor.epoch {
            self.batches = epoch(cursor.epoch, &self.batching, &self.lengths);
        }
        self.cursor = cursor;
    }

    /// Windows of a whole epoch. Every epoch has as many: shuffling changes no counts.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.batches.len().div_ceil(self.batching.accumulation)
    }

    /// Epochs done, with the part of the one begun.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        self.cursor.epoch as f64 + self.cursor.index as f64 / self.batches.len() as f64
    }

    /// The micro-batches of the coming window. A window never reaches into the next epoch, so
    /// the last one of an epoch may be smaller.
    pub fn next_window(&mut self) -> Vec<Vec<usize>> {
        if self.cursor.index >= self.batches.len() {
            self.cursor = Cursor { epoch: self.cursor.epoch + 1, index: 0 };
            self.batches = epoch(self.cursor.epoch, &self.batching, &self.lengths);
        }
        let start = self.cursor.index;
        let end = (start + self.batching.accumulation).min(self.batches.len());
        self.cursor.index = end;
        self.batches[start..end].to_vec()
    }
}

/// The micro-batches of one epoch, in order.
fn epoch(number: u64, batching: &Batching, lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut stream = Stream::new(batching.seed, &format!("data/{number}"));
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    if batching.shuffle {
        order = stream.permutation(lengths.len()).into_iter().map(|index| index as usize).collect();
    }
    let Some(capacity) = batching.capacity else {
        return order.chunks(batching.batch).map(<[usize]>::to_vec).collect();
    };
    let bins = pack(&order, lengths, capacity);
    if !batching.shuffle {
        return bins;
    }
    // Packing sorts by length; without this every epoch would begin with the longest.
    let places = stream.permutation(bins.len());
    places.into_iter().map(|place| bins[place as usize].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batching(accumulation: usize, capacity: Option<usize>) -> Batching {
        Batching { batch: 3, accumulation, capacity, shuffle: true, seed: 7 }
    }

    fn walk(cursor: Cursor, batching: Batching) -> Walk {
        Walk::from(cursor, batching, (0..20).map(|index| 4 + index % 7).collect()).unwrap()
    }

    fn seen(windows: &[Vec<Vec<usize>>]) -> Vec<usize> {
        let mut all: Vec<usize> = windows.iter().flatten().flatten().copied().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_epoch_sees_every_example_once() {
        for capacity in [None, Some(24)] {
            let mut walk = walk(Cursor::default(), batching(2, capacity));
            let windows: Vec<_> = (0..walk.windows()).map(|_| walk.next_window()).collect();

            assert_eq!(seen(&windows), (0..20).collect::<Vec<_>>());
            assert_eq!(walk.epochs(), 1.0);
        }
    }

    #[test]
    fn two_epochs_differ_in_order() {
        let mut walk = walk(Cursor::default(), batching(1, None));
        let first: Vec<_> = (0..walk.windows()).map(|_| walk.next_window()).collect();
        let second: Vec<_> = (0..walk.windows()).map(|_| walk.next_window()).collect();

        assert_ne!(first, second);
        assert_eq!(seen(&first), seen(&second));
    }

    #[test]
    fn a_walk_taken_up_at_its_cursor_goes_on_the_same() {
        for capacity in [None, Some(24)] {
            let mut whole = walk(Cursor::default(), batching(2, capacity));
            for _ in 0..9 {
                let mut taken_up = walk(whole.cursor(), batching(2, capacity));
                assert_eq!(whole.next_window(), taken_up.next_window());
            }
        }
    }

    #[test]
    fn a_walk_that_goes_back_sees_the_same_again() {
        let mut walk = walk(Cursor::default(), batching(2, None));
        for _ in 0..9 {
            let place = walk.cursor();
            let seen = walk.next_window();
            walk.back_to(place);
            assert_eq!(walk.next_window(), seen);
        }
    }

    #[test]
    fn a_window_stays_inside_its_epoch() {
        let mut walk = walk(Cursor::default(), batching(4, None));
        let sizes: Vec<usize> = (0..4).map(|_| walk.next_window().len()).collect();

        assert_eq!(sizes, [4, 3, 4, 3]);
    }

    #[test]
    fn without_shuffling_the_order_is_that_of_the_file() {
        let mut walk = walk(Cursor::default(), Batching { shuffle: false, ..batching(1, None) });

        assert_eq!(walk.next_window(), [[0, 1, 2]]);
    }
}
