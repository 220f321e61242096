//! Implements `wit/data.wit`: one function for each of the interface, in its order.
//!
//! The tensors of a batch are made anew at each call and charged like any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_compute::{Device, Tensor};
use tunebox_model::rows::Rows;
use wasmtime::component::Resource;

use crate::bindings::data::{Host, HostBatch, HostRows};
use crate::printable::printable;
use crate::refusal::Refusal;
use crate::state::{Answer, BatchEntry, DEVICE, HostContext, RowsEntry, State};

impl HostRows for HostContext<'_> {
    fn count(&mut self, this: Resource<RowsEntry>) -> wasmtime::Result<u32> {
        self.enter("data.rows.count")?;
        whole(self.table.get(&this)?.0.count())
    }

    fn width(&mut self, this: Resource<RowsEntry>) -> wasmtime::Result<u32> {
        self.enter("data.rows.width")?;
        whole(self.table.get(&this)?.0.width())
    }

    fn ids(&mut self, this: Resource<RowsEntry>) -> Answer {
        self.enter("data.rows.ids")?;
        self.per_token(&this, Rows::ids_tensor)
    }

    fn mask(&mut self, this: Resource<RowsEntry>) -> Answer {
        self.enter("data.rows.mask")?;
        self.per_token(&this, Rows::mask_tensor)
    }

    fn presence(&mut self, this: Resource<RowsEntry>) -> Answer {
        self.enter("data.rows.presence")?;
        self.per_token(&this, Rows::presence_tensor)
    }

    fn lengths(&mut self, this: Resource<RowsEntry>) -> Answer {
        self.enter("data.rows.lengths")?;
        let rows = self.table.get(&this)?.0.clone();
        self.work(rows.tokens() as u64)?;
        self.give_new(rows.count() as u64, |_| rows.lengths_tensor(&DEVICE))
    }

    fn targets(&mut self, this: Resource<RowsEntry>) -> wasmtime::Result<u32> {
        self.enter("data.rows.targets")?;
        whole(self.table.get(&this)?.0.targets())
    }

    fn whole(&mut self, this: Resource<RowsEntry>) -> Answer<RowsEntry> {
        self.enter("data.rows.whole")?;
        let rows = self.table.get(&this)?.0.clone();
        let tokens = rows.tokens() as u64;
        self.work(tokens)?;
        let reservation = self.reserve(row_bytes(tokens, rows.count()))?;
        Ok(self.table.push(RowsEntry(Arc::new(rows.whole()), Some(reservation)))?)
    }

    fn select(&mut self, this: Resource<RowsEntry>, numbers: Vec<u32>) -> Answer<RowsEntry> {
        self.enter("data.rows.select")?;
        let rows = self.table.get(&this)?.0.clone();
        let count = rows.count();
        if numbers.is_empty() || numbers.len() > count {
            let asked = numbers.len();
            return Err(Refusal::argument(format!(
                "{asked} of {count} rows were asked for; select takes 1 to {count}"
            )));
        }
        // Every number may name the longest row.
        let tokens = numbers.len() as u64 * rows.width() as u64;
        self.work(tokens)?;
        let reservation = self.reserve(row_bytes(tokens, numbers.len()))?;
        let Some(selected) = rows.select(&numbers) else {
            let largest = numbers.iter().max().copied().unwrap_or_default();
            return Err(Refusal::argument(format!("row {largest} of {count} rows, which are counted from 0")));
        };
        let held = row_bytes(selected.tokens() as u64, selected.count());
        Ok(self.table.push(RowsEntry(Arc::new(selected), Some(reservation.shrunk_to(held))))?)
    }

    fn drop(&mut self, this: Resource<RowsEntry>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostBatch for HostContext<'_> {
    fn sides(&mut self, this: Resource<BatchEntry>) -> wasmtime::Result<Vec<String>> {
        self.enter("data.batch.sides")?;
        Ok(self.table.get(&this)?.0.sides.iter().map(|(side, _)| side.clone()).collect())
    }

    fn rows(&mut self, this: Resource<BatchEntry>, side: String) -> Answer<RowsEntry> {
        self.enter("data.batch.rows")?;
        let batch = self.table.get(&this)?.0.clone();
        match batch.sides.iter().find(|(name, _)| *name == side) {
            Some((_, rows)) => Ok(self.table.push(RowsEntry(rows.clone(), None))?),
            None => Err(no_side(&side, batch.sides.iter().map(|(name, _)| name.as_str()))),
        }
    }

    fn size(&mut self, this: Resource<BatchEntry>) -> wasmtime::Result<u32> {
        self.enter("data.batch.size")?;
        Ok(self.table.get(&this)?.0.size)
    }

    fn column(&mut self, this: Resource<BatchEntry>, name: String) -> Answer {
        self.enter("data.batch.column")?;
        let batch = self.table.get(&this)?.0.clone();
        let Some(column) = batch.columns.get(&name) else {
            return Err(Refusal::argument(format!("the records have no column `{}`", printable(&name, 64))));
        };
        self.work(column.len() as u64)?;
        self.give_new(column.len() as u64, |_| Tensor::from_slice(column, column.len(), &DEVICE))
    }

    fn window_targets(&mut self, this: Resource<BatchEntry>, side: String) -> Result<u32, Refusal> {
        self.enter("data.batch.window-targets")?;
        count_of(&self.table.get(&this)?.0.window_targets, &side)
    }

    fn window_tokens(&mut self, this: Resource<BatchEntry>, side: String) -> Result<u32, Refusal> {
        self.enter("data.batch.window-tokens")?;
        count_of(&self.table.get(&this)?.0.window_tokens, &side)
    }

    fn window_size(&mut self, this: Resource<BatchEntry>) -> wasmtime::Result<u32> {
        self.enter("data.batch.window-size")?;
        Ok(self.table.get(&this)?.0.window_size.max(1))
    }

    fn drop(&mut self, this: Resource<BatchEntry>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl Host for HostContext<'_> {}

impl State {
    /// A tensor `[rows, width]` of the rows.
    fn per_token(
        &mut self,
        this: &Resource<RowsEntry>,
        make: fn(&Rows, &Device) -> Result<Tensor, tunebox_model::error::Error>,
    ) -> Answer {
        let rows = self.table.get(this)?.0.clone();
        let elements = rows.count() as u64 * rows.width() as u64;
        self.work(elements)?;
        self.give_new(elements, |_| make(&rows, &DEVICE))
    }
}

/// Bytes of rows that a method had made: an id and a mark a token, and the lists that hold them.
fn row_bytes(tokens: u64, rows: usize) -> u64 {
    5 * tokens + 48 * rows as u64
}

fn whole(count: usize) -> wasmtime::Result<u32> {
    Ok(u32::try_from(count)?)
}

/// The count of a side, at least 1.
fn count_of(counts: &BTreeMap<String, u32>, side: &str) -> Result<u32, Refusal> {
    match counts.get(side) {
        Some(count) => Ok((*count).max(1)),
        None => Err(no_side(side, counts.keys().map(String::as_str))),
    }
}

fn no_side<'a>(side: &str, sides: impl Iterator<Item = &'a str>) -> Refusal {
    let known: Vec<String> = sides.map(|side| format!("`{side}`")).collect();
    Refusal::argument(format!("the batch has no side `{}`, only {}", printable(side, 64), known.join(", ")))
}
