//! Tokens that a step is about, from the data's sizes and the method's settings: what a forecast of memory begins with.

use super::PlannedMethod;
use super::sides;
use crate::configuration::RunSettings;
use crate::data::{Dataset, Shape};

/// Tokens of the rows that a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Of a micro-batch at most.
    pub(crate) slice: u64,
    /// Of what the method scores before it learns; the most that can be where it is not known.
    pub(crate) together: u64,
    /// Rows that are written, prompts before them included; none of records that are learned from as they are.
    pub(crate) written: Option<Written>,
}

/// Completions of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// How many; the most that can be where it is not known.
    pub(crate) rows: u64,
    /// Tokens of the longest, its prompt included.
    pub(crate) length: u64,
}

/// What of a dataset decides.
#[derive(Clone, Copy)]
struct Sizes {
    /// Records of a micro-batch.
    batch: u64,
    /// Micro-batches that the method gets at once.
    steps: u64,
    /// Records there are.
    records: u64,
    /// Tokens of the longest record, all its sides together.
    record: u64,
}

impl Tokens {
    /// Those of micro-batches of `batch` records.
    pub(super) fn of(settings: &RunSettings, data: &Dataset, method: &PlannedMethod, batch: u32) -> Self {
        let micro = method.package.manifest.batch.is_micro();
        let sizes = Sizes {
            batch: batch.into(),
            steps: if micro { 1 } else { settings.file.train.accumulation.into() },
            records: data.examples.len() as u64,
            record: data.report.longest.saturating_mul(sides(data)) as u64,
        };
        let length = data.report.length as u64;
        if data.shape == Shape::Prompts {
            let rest = length.saturating_sub(sizes.record);
            let new = method.new_tokens().map_or(rest, |most| most.min(rest));
            // With dropout each row has masks of its own, and a prompt goes through the model with every completion.
            let shared = settings.file.train.adapter.dropout == 0.0 && settings.file.model.adapter.is_none();
            return sizes.written(new, method.completions(), shared);
        }
        if !settings.file.data.packing {
            return sizes.rows();
        }
        let longest = data.examples.iter().map(|example| example.tokens() as u64).max().unwrap_or(0);
        sizes.packed(length, longest, data.report.tokens as u64)
    }
}

impl Sizes {
    /// Micro-batches of so many records, each as long as the longest.
    fn rows(self) -> Tokens {
        let of = |records: u64| self.record.saturating_mul(records.min(self.records));
        Tokens { slice: of(self.batch), together: of(self.batch.saturating_mul(self.steps)), written: None }
    }

    /// Micro-batches of as many records as fit into `batch` times `length` tokens; one that is longer has its own.
    fn packed(self, length: u64, longest: u64, all: u64) -> Tokens {
        let bin = self.batch.saturating_mul(length).max(longest).min(all);
        Tokens { slice: bin, together: bin.saturating_mul(self.steps).min(all), written: None }
    }

    /// Prompts, each with so many completions of `new` tokens: a slice is as many rows as a micro-batch has records, and
    /// holds a prompt that its rows share once.
    fn written(self, new: u64, completions: Option<u64>, shared: bool) -> Tokens {
        let prompts = self.batch.saturating_mul(self.steps).min(self.records);
        let rows = completions.map_or(u64::MAX, |each| prompts.saturating_mul(each));
        let count = self.batch.min(rows);
        // The prompts of a slice; where it cuts through groups, one more.
        let begun = completions.filter(|_| shared).map_or(count, |each| {
            let cut = !each.is_multiple_of(count) && !count.is_multiple_of(each);
            (count.div_ceil(each) + u64::from(cut)).min(count)
        });
        let slice = new.saturating_mul(count).saturating_add(self.record.saturating_mul(begun));
        let together = slice.saturating_mul(rows.div_ceil(count.max(1)));
        Tokens { slice, together, written: Some(Written { rows, length: self.record + new }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { batch: 4, steps: 3, records: 100, record: 20 };

    #[test]
    fn records_are_counted_as_long_as_the_longest_and_no_more_than_there_are() {
        assert_eq!(SIZES.rows(), Tokens { slice: 80, together: 240, written: None });
        let few = Sizes { records: 5, ..SIZES };
        assert_eq!(few.rows(), Tokens { slice: 80, together: 100, written: None });
    }

    #[test]
    fn a_packed_micro_batch_is_a_bin_of_tokens() {
        assert_eq!(SIZES.packed(64, 20, 1000), Tokens { slice: 256, together: 768, written: None });
        assert_eq!(SIZES.packed(64, 20, 300), Tokens { slice: 256, together: 300, written: None });
        assert_eq!(SIZES.packed(64, 300, 1000), Tokens { slice: 300, together: 900, written: None });
    }

    #[test]
    fn completions_are_counted_each_and_without_a_number_as_many_as_can_be() {
        let apart = SIZES.written(30, Some(8), false);
        assert_eq!((apart.slice, apart.together), (200, 50 * 8 * 12));
        assert_eq!(apart.written, Some(Written { rows: 96, length: 50 }));
        let unknown = SIZES.written(30, None, true);
        assert_eq!((unknown.slice, unknown.together), (200, u64::MAX));
    }

    #[test]
    fn completions_of_a_prompt_share_it_in_their_slice() {
        let shared = SIZES.written(30, Some(8), true);
        assert_eq!((shared.slice, shared.together), (4 * 30 + 20, 24 * 140));
        assert_eq!(SIZES.written(30, Some(2), true).slice, 4 * 30 + 2 * 20);
        // A group of three does not fill a slice of four: at most three prompts are in one.
        assert_eq!(SIZES.written(30, Some(3), true).slice, 4 * 30 + 3 * 20);
    }
}
