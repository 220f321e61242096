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
            let row = sizes.record + method.new_tokens().map_or(rest, |most| most.min(rest));
            return sizes.written(row, method.completions());
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

    /// Prompts, each with so many completions, rows of `row` tokens: a slice is as many rows as a micro-batch has records.
    fn written(self, row: u64, completions: Option<u64>) -> Tokens {
        let prompts = self.batch.saturating_mul(self.steps).min(self.records);
        let rows = completions.map_or(u64::MAX, |each| prompts.saturating_mul(each));
        let together = row.saturating_mul(rows);
        let slice = row.saturating_mul(self.batch.min(rows));
        Tokens { slice, together, written: Some(Written { rows, length: row }) }
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
        let known = SIZES.written(50, Some(8));
        assert_eq!((known.slice, known.together), (200, 50 * 8 * 12));
        assert_eq!(known.written, Some(Written { rows: 96, length: 50 }));
        let unknown = SIZES.written(50, None);
        assert_eq!((unknown.slice, unknown.together), (200, u64::MAX));
    }
}
