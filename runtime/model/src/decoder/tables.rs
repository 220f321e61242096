//! The rotation tables (RoPE) of a model, built for the longest sequence so far, cached and shared.
//! Leaves the frequencies to `configuration` and the rotation to `fused`.
//!
//! With LongRoPE, long sequences have other frequencies than short ones. A table then has a row for each position of a
//! short sequence, and after them one for each position of a long sequence. The length of a sequence alone selects
//! between them, so that its results do not depend on other sequences in the batch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tunebox_compute::fused::RopeTable;

use crate::configuration::{Configuration, RopeSetting};
use crate::error::{Error, Result};

/// The rotation tables of one model, one for each of its rotations.
#[derive(Debug, Default)]
pub struct RopeTables {
    cached: Mutex<BTreeMap<usize, Arc<RopeTable>>>,
}

/// The row of the rotation tables for the first position of a sequence of `length` tokens: 0, or, if the sequence is
/// longer than LongRoPE's original context, the first of the rows for long sequences.
pub(crate) fn first_table_row(configuration: &Configuration, length: usize) -> usize {
    configuration.short_context().filter(|most| length > *most).unwrap_or(0)
}

impl RopeTables {
    /// Returns the table of rotation `number`, an index into [`Configuration::ropes`], with at least `rows` rows: the
    /// cached one if it is large enough, else a new one that replaces it. A new table has `rows` rounded up to a power
    /// of two, at least 256. Locks the cache meanwhile. Errors: the model has no such rotation.
    pub(crate) fn get_or_build(
        &self,
        configuration: &Configuration,
        number: usize,
        rows: usize,
    ) -> Result<Arc<RopeTable>> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = cached.get(&number).filter(|found| found.positions() >= rows) {
            return Ok(Arc::clone(found));
        }
        let rows = rows.next_power_of_two().max(256);
        let Some(setting) = configuration.ropes.get(number) else {
            return Err(Error::Argument(format!("a layer has rotation `{number}`, which the model does not have")));
        };
        let table = Arc::new(table(setting, configuration, rows)?);
        cached.insert(number, Arc::clone(&table));
        Ok(table)
    }
}

/// Builds a rotation table with `rows` rows. With LongRoPE, as many rows as its original context is long have the
/// frequencies for short sequences; the rows after them start from position 0 again, with the frequencies for long
/// sequences. Without LongRoPE, row i is position i.
fn table(setting: &RopeSetting, configuration: &Configuration, rows: usize) -> Result<RopeTable> {
    let short = configuration.short_context().unwrap_or(rows).min(rows);
    let (width, factor) = (configuration.rotated, setting.attention_factor());
    let frequencies = setting.frequencies(width);
    let table = RopeTable::from_frequencies(&frequencies, short, factor);
    let frequencies = setting.long_frequencies(width).unwrap_or(frequencies);
    let table = table.followed_by(RopeTable::from_frequencies(&frequencies, rows - short, factor))?;
    Ok(table.with_adjacent_pairs(configuration.adjacent_pairs))
}
