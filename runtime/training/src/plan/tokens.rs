//! The most tokens that a step holds at once, from the sizes of the data and the method's settings, for the memory estimate.

use super::method::PlannedMethod;
use crate::configuration::RunSettings;
use crate::data::{Dataset, Shape};

/// The most tokens that a step holds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Tokens of one pass.
    pub(crate) slice: u64,
    /// Tokens that the method scores before it runs backward; `u64::MAX` if unknown.
    pub(crate) together: u64,
    /// Generated rows; `None` for methods that learn from the records.
    pub(crate) generated: Option<Generated>,
}

/// The generated rows of an update, including their prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generated {
    /// Number of rows; `u64::MAX` if unknown.
    pub(crate) rows: u64,
    /// Tokens of the longest row.
    pub(crate) length: u64,
}

/// The sizes that the tokens of a step depend on.
#[derive(Clone, Copy)]
struct Sizes {
    /// Records in a micro-batch.
    batch: u64,
    /// Micro-batches in one call of the method.
    micro_batches: u64,
    /// Records in the data.
    records: u64,
    /// Tokens of the longest record, all sides together.
    record: u64,
}

impl Tokens {
    /// The most tokens of a step with micro-batches of `batch` records, from the sizes of the data, the method's
    /// settings, and whether records are packed or completions generated.
    pub(super) fn of(settings: &RunSettings, data: &Dataset, method: &PlannedMethod, batch: u32) -> Self {
        let micro = method.package.manifest.batch.is_micro();
        let sizes = Sizes {
            batch: batch.into(),
            micro_batches: if micro { 1 } else { settings.file.train.accumulation.into() },
            records: data.examples.len() as u64,
            record: data.report.longest.saturating_mul(data.sides_per_example()) as u64,
        };
        let length = data.report.length as u64;
        if data.shape == Shape::Prompts {
            let rest = length.saturating_sub(sizes.record);
            let new = method.new_tokens().map_or(rest, |most| most.min(rest));
            // With dropout each row has its own masks, so a prompt cannot be shared by its completions.
            let shared = settings.file.train.adapter.dropout == 0.0 && settings.file.model.adapter.is_none();
            return sizes.generated(new, method.completions(), shared);
        }
        if !settings.file.data.packing {
            return sizes.fixed();
        }
        let longest = data.examples.iter().map(|example| example.tokens() as u64).max().unwrap_or(0);
        sizes.packed(length, longest, data.report.tokens as u64)
    }
}

impl Sizes {
    /// The tokens of a step without packing: micro-batches of `batch` records, each counted as long as the longest.
    fn fixed(self) -> Tokens {
        let of = |records: u64| self.record.saturating_mul(records.min(self.records));
        Tokens { slice: of(self.batch), together: of(self.batch.saturating_mul(self.micro_batches)), generated: None }
    }

    /// The tokens of a step with packing: micro-batches of at most `batch` × `length` tokens. `longest` is the tokens
    /// of the longest record, `all` those of all records together.
    fn packed(self, length: u64, longest: u64, all: u64) -> Tokens {
        let bin = self.batch.saturating_mul(length).max(longest).min(all);
        Tokens { slice: bin, together: bin.saturating_mul(self.micro_batches).min(all), generated: None }
    }

    /// The tokens of a step that generates `completions` of `new` tokens for each prompt; `None` if their number is
    /// unknown. One pass has as many rows as a micro-batch has records, and holds a prompt only once if `shared`.
    fn generated(self, new: u64, completions: Option<u64>, shared: bool) -> Tokens {
        let prompts = self.batch.saturating_mul(self.micro_batches).min(self.records);
        let rows = completions.map_or(u64::MAX, |each| prompts.saturating_mul(each));
        let count = self.batch.min(rows);
        // The prompts in one pass; one more if the pass cuts through the completions of a prompt.
        let prompts = completions.filter(|_| shared).map_or(count, |each| {
            let cut = !each.is_multiple_of(count) && !count.is_multiple_of(each);
            (count.div_ceil(each) + u64::from(cut)).min(count)
        });
        let slice = new.saturating_mul(count).saturating_add(self.record.saturating_mul(prompts));
        let together = slice.saturating_mul(rows.div_ceil(count.max(1)));
        Tokens { slice, together, generated: Some(Generated { rows, length: self.record + new }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { batch: 4, micro_batches: 3, records: 100, record: 20 };

    #[test]
    fn records_are_counted_as_long_as_the_longest_and_packed_ones_as_bins_of_tokens() {
        for (tokens, slice, together) in [
            (SIZES.fixed(), 80, 240),
            (Sizes { records: 5, ..SIZES }.fixed(), 80, 100),
            (SIZES.packed(64, 20, 1000), 256, 768),
            (SIZES.packed(64, 20, 300), 256, 300),
            (SIZES.packed(64, 300, 1000), 300, 900),
        ] {
            assert_eq!(tokens, Tokens { slice, together, generated: None });
        }
    }

    #[test]
    fn completions_are_counted_each_with_a_prompt_that_they_may_share() {
        for (completions, shared, slice, together) in [
            (Some(8), false, 200, 50 * 8 * 12),
            // Without a number, as many as can be.
            (None, true, 200, u64::MAX),
            (Some(8), true, 4 * 30 + 20, 24 * 140),
            (Some(2), true, 4 * 30 + 2 * 20, 6 * 160),
            // A group of three does not fill a slice of four: at most three prompts are in one.
            (Some(3), true, 4 * 30 + 3 * 20, 9 * 180),
        ] {
            let tokens = SIZES.generated(30, completions, shared);
            assert_eq!((tokens.slice, tokens.together), (slice, together), "{completions:?}");
            let rows = completions.map_or(u64::MAX, |each| 12 * each);
            assert_eq!(tokens.generated, Some(Generated { rows, length: 50 }));
        }
    }
}
