//! An accumulation window: its micro-batches, with the denominators of the whole window.
//!
//! They are known before the first micro-batch runs, which is what makes accumulation exact.

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_model::rows::Rows;
use tunebox_sandbox::Batch;

use super::Dataset;
use crate::error::Error;

/// The micro-batches of one update, and what they hold.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// What the method gets, one after another.
    pub batches: Vec<Batch>,
    /// Tokens of all rows.
    pub tokens: u64,
    /// Target tokens of all rows.
    pub targets: u64,
}

/// Makes the batches of a window from the examples that it names.
///
/// # Errors
/// When an example's rows do not fit together, which tokenising rules out.
pub fn window(data: &Dataset, places: &[Vec<usize>]) -> Result<Window, Error> {
    let mut window = Window::default();
    for places in places {
        window.batches.push(batch(data, places)?);
    }
    let mut targets: BTreeMap<String, u32> = BTreeMap::new();
    let mut size = 0;
    for batch in &window.batches {
        size += batch.size;
        for (side, rows) in &batch.sides {
            *targets.entry(side.clone()).or_default() += narrow(rows.targets());
            window.tokens += rows.tokens() as u64;
        }
    }
    window.targets = targets.values().map(|count| u64::from(*count)).sum();
    targets.values_mut().for_each(|count| *count = (*count).max(1));
    for batch in &mut window.batches {
        batch.window_targets.clone_from(&targets);
        batch.window_size = size.max(1);
    }
    Ok(window)
}

fn batch(data: &Dataset, places: &[usize]) -> Result<Batch, Error> {
    let examples: Vec<_> = places.iter().map(|place| &data.examples[*place]).collect();
    let mut sides = Vec::new();
    for (number, side) in data.shape.sides().iter().enumerate() {
        let ids = examples.iter().map(|example| example.sides[number].ids.clone()).collect();
        let targets = examples.iter().map(|example| example.sides[number].targets.clone()).collect();
        sides.push(((*side).to_owned(), Arc::new(Rows::new(ids, targets)?)));
    }
    let names = examples.iter().flat_map(|example| example.columns.keys());
    let mut columns: BTreeMap<String, Vec<f32>> = names.map(|name| (name.clone(), Vec::new())).collect();
    for (name, column) in &mut columns {
        column.extend(examples.iter().map(|example| example.columns.get(name).copied().unwrap_or(f32::NAN)));
    }
    Ok(Batch { sides, size: narrow(examples.len()), columns, ..Batch::default() })
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
