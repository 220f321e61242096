//! The order of the examples in a run, and their micro-batches and windows.
//!
//! The order of an epoch depends only on the seed and the epoch's number, so a run resumes at any position without
//! replaying the earlier ones. With packing, a micro-batch is a bin of examples; its rows are separate segments:
//! attention does not cross from one example to another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tunebox_compute::random::Stream;

/// How examples become batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batching {
    /// Examples in a micro-batch; not used with packing.
    pub batch: usize,
    /// Micro-batches of a window; a window is the data of one update.
    pub accumulation: usize,
    /// Capacity of a packed micro-batch in tokens; `None` without packing.
    pub capacity: Option<usize>,
    /// Whether each epoch has its own random order.
    pub shuffle: bool,
    /// Seed of the random orders.
    pub seed: u64,
}

/// A position in the data: the micro-batches before it are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Finished micro-batches of the epoch.
    pub index: usize,
}

/// Yields the examples of window after window, epoch after epoch, without end.
#[derive(Debug, Clone)]
pub(crate) struct BatchSampler {
    batching: Batching,
    /// Tokens of each example.
    lengths: Vec<usize>,
    cursor: Cursor,
    /// The micro-batches of the present epoch, as indices of examples.
    batches: Vec<Vec<usize>>,
}

impl BatchSampler {
    /// Creates a sampler that continues at `cursor`. `lengths` are the tokens of each example.
    ///
    /// `None` if there is no example, or the cursor is past the end of its epoch.
    pub(crate) fn new(cursor: Cursor, batching: Batching, lengths: Vec<usize>) -> Option<Self> {
        let batches = epoch_batches(cursor.epoch, &batching, &lengths);
        let inside = !batches.is_empty() && cursor.index <= batches.len();
        inside.then_some(Self { batching, lengths, cursor, batches })
    }

    /// Returns the position before the next window, from which [`BatchSampler::new`] continues. At the end of an epoch
    /// it is that end.
    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Moves to a position that [`BatchSampler::cursor`] returned, forward or back, without checking it. Draws the
    /// micro-batches of the position's epoch if it is not the present epoch.
    pub(crate) fn seek(&mut self, cursor: Cursor) {
        if cursor.epoch != self.cursor.epoch {
            self.batches = epoch_batches(cursor.epoch, &self.batching, &self.lengths);
        }
        self.cursor = cursor;
    }

    /// Number of windows, and so of updates, in an epoch. It is the same for every epoch: shuffling does not change it.
    pub(crate) fn windows_per_epoch(&self) -> usize {
        self.batches.len().div_ceil(self.batching.accumulation)
    }

    /// Number of finished epochs, plus the finished fraction of the present epoch by micro-batches.
    pub(crate) fn finished_epochs(&self) -> f64 {
        self.cursor.epoch as f64 + self.cursor.index as f64 / self.batches.len() as f64
    }

    /// Returns the micro-batches of the next window, as indices of examples, and advances the cursor past the window.
    /// If the present epoch is finished, starts the next one first. A window does not reach into the next epoch, so the
    /// last window of an epoch may have fewer micro-batches.
    pub(crate) fn next_window(&mut self) -> Vec<Vec<usize>> {
        if self.cursor.index >= self.batches.len() {
            self.cursor = Cursor { epoch: self.cursor.epoch + 1, index: 0 };
            self.batches = epoch_batches(self.cursor.epoch, &self.batching, &self.lengths);
        }
        let start = self.cursor.index;
        let end = (start + self.batching.accumulation).min(self.batches.len());
        self.cursor.index = end;
        self.batches[start..end].to_vec()
    }
}

/// Draws the micro-batches of the epoch with this number (from 0), in order, as indices of examples. Depends only on
/// its arguments. `lengths` are the tokens of each example. Without packing, cuts the order of the examples (shuffled,
/// or that of the file) into groups of `batching.batch`; the last may be smaller. With packing, the micro-batches are
/// bins of [`pack`], in random order if shuffled.
fn epoch_batches(number: u64, batching: &Batching, lengths: &[usize]) -> Vec<Vec<usize>> {
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
    // Packing sorts by length, so every epoch would begin with the longest examples.
    let order = stream.permutation(bins.len());
    order.into_iter().map(|index| bins[index as usize].clone()).collect()
}

/// Packs examples into bins of at most `capacity` tokens. `order` holds indices of `lengths` (in tokens); each bin of
/// the result holds such indices.
///
/// The longest go first, each into the fullest bin that has room for it; ties keep the given order. An example longer
/// than `capacity` gets its own bin. The number of bins depends only on the lengths, not on the order.
fn pack(order: &[usize], lengths: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    let mut longest_first = order.to_vec();
    longest_first.sort_by_key(|example| std::cmp::Reverse(lengths[*example]));
    let mut bins: Vec<Vec<usize>> = Vec::new();
    // Bins by their free tokens.
    let mut room: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for example in longest_first {
        let length = lengths[example];
        let (bin, left) = match remove_fullest(&mut room, length) {
            Some((bin, left)) => (bin, left - length),
            None => {
                bins.push(Vec::new());
                (bins.len() - 1, capacity.saturating_sub(length))
            }
        };
        bins[bin].push(example);
        room.entry(left).or_default().push(bin);
    }
    bins
}

/// Removes from `room` the bin whose free space is the least that is still at least `length` tokens; of several, the
/// one added last. Returns the bin's index and its free tokens; `None` if no bin has room. `room` maps free tokens to
/// indices of bins.
fn remove_fullest(room: &mut BTreeMap<usize, Vec<usize>>, length: usize) -> Option<(usize, usize)> {
    let (&left, bins) = room.range_mut(length..).next()?;
    let bin = bins.pop();
    if bins.is_empty() {
        room.remove(&left);
    }
    bin.map(|bin| (bin, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batching(accumulation: usize, capacity: Option<usize>) -> Batching {
        Batching { batch: 3, accumulation, capacity, shuffle: true, seed: 7 }
    }

    fn sampler(cursor: Cursor, batching: Batching) -> BatchSampler {
        BatchSampler::new(cursor, batching, (0..20).map(|index| 4 + index % 7).collect()).unwrap()
    }

    /// The examples of an epoch in the order of their windows.
    fn epoch(sampler: &mut BatchSampler) -> Vec<usize> {
        (0..sampler.windows_per_epoch()).flat_map(|_| sampler.next_window()).flatten().collect()
    }

    #[test]
    fn an_epoch_sees_every_example_once_in_its_own_order() {
        for (accumulation, capacity) in [(2, None), (2, Some(24)), (1, None)] {
            let mut sampler = sampler(Cursor::default(), batching(accumulation, capacity));
            let (first, is_whole) = (epoch(&mut sampler), sampler.finished_epochs() == 1.0);
            let second = epoch(&mut sampler);
            assert!(is_whole && first != second);
            for mut seen in [first, second] {
                seen.sort_unstable();
                assert_eq!(seen, (0..20).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_sampler_started_at_a_cursor_or_moved_back_to_it_yields_the_same_windows() {
        for capacity in [None, Some(24)] {
            let mut whole = sampler(Cursor::default(), batching(2, capacity));
            for _ in 0..9 {
                let cursor = whole.cursor();
                let window = whole.next_window();
                assert_eq!(sampler(cursor, batching(2, capacity)).next_window(), window);
                whole.seek(cursor);
                assert_eq!(whole.next_window(), window);
            }
        }
    }

    #[test]
    fn a_window_stays_inside_its_epoch() {
        let mut sampler = sampler(Cursor::default(), batching(4, None));
        let sizes: Vec<usize> = (0..4).map(|_| sampler.next_window().len()).collect();

        assert_eq!(sizes, [4, 3, 4, 3]);
    }

    #[test]
    fn without_shuffling_the_order_is_that_of_the_file() {
        let mut sampler = sampler(Cursor::default(), Batching { shuffle: false, ..batching(1, None) });

        assert_eq!(sampler.next_window(), [[0, 1, 2]]);
    }

    #[test]
    fn the_longest_go_first_and_the_rest_fills_the_gaps() {
        let lengths = [3, 7, 5, 2, 3];

        assert_eq!(pack(&[0, 1, 2, 3, 4], &lengths, 10), [vec![1, 0], vec![2, 4, 3]]);
    }

    #[test]
    fn no_bin_is_overfull_and_nothing_is_lost() {
        for (count, factor, longest, capacity) in [(200, 37, 90, 100), (50, 13, 40, 64)] {
            let lengths: Vec<usize> = (0..count).map(|index| 1 + index * factor % longest).collect();
            let (order, backwards): (Vec<_>, Vec<_>) = ((0..count).collect(), (0..count).rev().collect());
            let bins = pack(&order, &lengths, capacity);
            let mut all: Vec<usize> = bins.concat();
            all.sort_unstable();

            assert_eq!(all, order);
            assert!(bins.iter().all(|bin| bin.iter().map(|example| lengths[*example]).sum::<usize>() <= capacity));
            assert_eq!(bins.len(), pack(&backwards, &lengths, capacity).len(), "the order does not matter");
        }
    }
}
