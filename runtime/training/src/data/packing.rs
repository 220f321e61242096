//! Best-fit-decreasing bin packing of examples.
//!
//! A bin becomes one micro-batch whose rows are separate segments: attention does not cross from one example to another.

use std::collections::BTreeMap;

/// Packs examples into bins of at most `capacity` tokens. `order` holds indices of `lengths` (in tokens); each bin of
/// the result holds such indices.
///
/// The longest go first, each into the fullest bin that has room for it; ties keep the given order. An example longer
/// than `capacity` gets its own bin. The number of bins depends only on the lengths, not on the order.
pub(super) fn pack(order: &[usize], lengths: &[usize], capacity: usize) -> Vec<Vec<usize>> {
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

/// Removes the bin whose free space is the least that is still at least `length` tokens. Returns the bin's index and
/// its free tokens; `None` if no bin has room. `room` maps free tokens to indices of bins.
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
