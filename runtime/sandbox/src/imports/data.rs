//! Implements `wit/data.wit`: one function for each of the interface, in its order.
//!
//! The tensors of a batch are made anew at each call and charged like all other tensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::DType;
use tunebox_compute::{Device, Tensor};
use tunebox_model::rows::Rows;

use crate::bindings::data::{Host, HostBatch, HostRows};
use crate::printable::printable;
use crate::refusal::{ErrorCode, Refusal, Result, ensure};
use crate::state::{Answer, BatchEntry, DEVICE, Handle, HostContext, RowsEntry, State, TENSOR_BYTES};

/// Bytes that a row of a method's own tokens counts as read back: its length, its targets and the place of the first
/// one can be asked for, and so tell the numbers that the row was made of.
const ROW_BYTES: u64 = 8;

impl HostRows for HostContext<'_> {
    /// Counts the call and returns the number of rows.
    fn count(&mut self, this: Handle<RowsEntry>) -> wasmtime::Result<u32> {
        self.enter("data.rows.count")?;
        count_to_u32(self.table.get(&this)?.0.count())
    }

    /// Counts the call and returns the length of the longest row in tokens, prompt included.
    fn width(&mut self, this: Handle<RowsEntry>) -> wasmtime::Result<u32> {
        self.enter("data.rows.width")?;
        count_to_u32(self.table.get(&this)?.0.width())
    }

    /// Returns a handle of the token ids: `[rows, width]`, `u32`, 0 in the padding.
    fn ids(&mut self, this: Handle<RowsEntry>) -> Answer {
        self.enter("data.rows.ids")?;
        self.push_token_tensor(&this, Rows::ids_tensor)
    }

    /// Returns a handle of the target mask: `[rows, width]`, `f32`, 1 where a token is a target, else 0.
    fn mask(&mut self, this: Handle<RowsEntry>) -> Answer {
        self.enter("data.rows.mask")?;
        self.push_token_tensor(&this, Rows::mask_tensor)
    }

    /// Returns a handle of the padding mask: `[rows, width]`, `f32`, 1 where there is a token, 0 in the padding.
    fn presence(&mut self, this: Handle<RowsEntry>) -> Answer {
        self.enter("data.rows.presence")?;
        self.push_token_tensor(&this, Rows::presence_tensor)
    }

    /// Returns a handle of the number of target tokens of each row: `[rows]`, `f32`.
    fn lengths(&mut self, this: Handle<RowsEntry>) -> Answer {
        self.enter("data.rows.lengths")?;
        let rows = self.table.get(&this)?.0.clone();
        self.meters.charge_units(rows.tokens() as u64)?;
        self.push_new_tensor(rows.count() as u64, |_| rows.lengths_tensor(&DEVICE))
    }

    /// Counts the call and returns the number of target tokens of all rows together.
    fn targets(&mut self, this: Handle<RowsEntry>) -> wasmtime::Result<u32> {
        self.enter("data.rows.targets")?;
        count_to_u32(self.table.get(&this)?.0.targets())
    }

    /// Makes a copy of the rows in which every token but the first of each row is a target, and returns the handle of
    /// the copy. Charges one unit of work for each token and reserves the bytes of the copy.
    fn whole(&mut self, this: Handle<RowsEntry>) -> Answer<RowsEntry> {
        self.enter("data.rows.whole")?;
        let rows = self.table.get(&this)?.0.clone();
        let tokens = rows.tokens() as u64;
        self.meters.charge_units(tokens)?;
        let reservation = self.reserve(row_bytes(tokens, rows.count()))?;
        Ok(self.table.push(RowsEntry(Arc::new(rows.whole()), reservation))?)
    }

    /// Copies the tokens before each row's first target and returns the handle. Charges one unit of work for each token
    /// of the rows and reserves the bytes of the copy. Errors: `invalid-argument` for a row without a target.
    fn prompts(&mut self, this: Handle<RowsEntry>) -> Answer<RowsEntry> {
        self.enter("data.rows.prompts")?;
        let rows = self.table.get(&this)?.0.clone();
        self.meters.charge_units(rows.tokens() as u64)?;
        let reservation = self.reserve(row_bytes(rows.tokens() as u64, rows.count()))?;
        let prompts = rows.prompts().map_err(|row| Refusal::argument(format!("row {row} has no target")))?;
        let held = row_bytes(prompts.tokens() as u64, prompts.count());
        Ok(self.table.push(RowsEntry(Arc::new(prompts), reservation.shrunk_to(held)))?)
    }

    /// Copies the rows with these indices, in that order, and returns the handle. An index may repeat. Reserves the
    /// bytes of the copy.
    ///
    /// Errors: `invalid-argument` for no index, more indices than rows, or an index past the last row.
    fn select(&mut self, this: Handle<RowsEntry>, numbers: Vec<u32>) -> Answer<RowsEntry> {
        self.enter("data.rows.select")?;
        let rows = self.table.get(&this)?.0.clone();
        let count = rows.count();
        let asked = numbers.len();
        let allowed =
            || Refusal::argument(format!("{asked} of {count} rows were asked for; select takes 1 to {count}"));
        ensure((1..=count).contains(&asked), allowed)?;
        // Every number may name the longest row.
        let tokens = numbers.len() as u64 * rows.width() as u64;
        self.meters.charge_units(tokens)?;
        let reservation = self.reserve(row_bytes(tokens, numbers.len()))?;
        let Some(selected) = rows.select(&numbers) else {
            let largest = numbers.iter().max().copied().unwrap_or_default();
            return Err(Refusal::argument(format!("row {largest} of {count} rows, which are counted from 0")));
        };
        let held = row_bytes(selected.tokens() as u64, selected.count());
        Ok(self.table.push(RowsEntry(Arc::new(selected), reservation.shrunk_to(held)))?)
    }

    /// Deletes the handle and releases the bytes that were reserved for it. Not counted as a call.
    fn drop(&mut self, this: Handle<RowsEntry>) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl HostBatch for HostContext<'_> {
    /// Counts the call and returns the names of the batch's sides, such as `chosen` and `rejected`.
    fn sides(&mut self, this: Handle<BatchEntry>) -> wasmtime::Result<Vec<String>> {
        self.enter("data.batch.sides")?;
        Ok(self.table.get(&this)?.0.sides.iter().map(|(side, _)| side.clone()).collect())
    }

    /// Returns a handle of the rows of one side and reserves their bytes; `invalid-argument` if the batch has no such
    /// side.
    fn rows(&mut self, this: Handle<BatchEntry>, side: String) -> Answer<RowsEntry> {
        self.enter("data.batch.rows")?;
        let batch = self.table.get(&this)?.0.clone();
        let names = || batch.sides.iter().map(|(name, _)| name.as_str());
        let found = batch.sides.iter().find(|(name, _)| *name == side);
        self.push_rows(&found.ok_or_else(|| unknown_side(&side, names()))?.1)
    }

    /// Counts the call and returns the number of records in the batch.
    fn size(&mut self, this: Handle<BatchEntry>) -> wasmtime::Result<u32> {
        self.enter("data.batch.size")?;
        Ok(self.table.get(&this)?.0.size)
    }

    /// Returns a handle of a numeric column of the records: `[size]`, `f32`, NaN where absent; `invalid-argument` for
    /// an unknown name.
    fn column(&mut self, this: Handle<BatchEntry>, name: String) -> Answer {
        self.enter("data.batch.column")?;
        let batch = self.table.get(&this)?.0.clone();
        let missing = || Refusal::argument(format!("the records have no column `{}`", printable(&name, 64)));
        let column = batch.columns.get(&name).ok_or_else(missing)?;
        self.meters.charge_units(column.len() as u64)?;
        self.push_list(column)
    }

    /// Returns a handle of a column with a number for each target token: `[rows, width]` of the only side, `f32`, 0 off
    /// the targets, NaN at those of a record without the column; `invalid-argument` for an unknown name, and for a
    /// record whose list has another length.
    fn token_column(&mut self, this: Handle<BatchEntry>, name: String) -> Answer {
        self.enter("data.batch.token-column")?;
        let batch = self.table.get(&this)?.0.clone();
        let shown = printable(&name, 64);
        let missing =
            || Refusal::argument(format!("the records have no column `{shown}` with a number for each token"));
        let (column, (_, rows)) = batch.token_columns.get(&name).zip(batch.sides.first()).ok_or_else(missing)?;
        let column = column.as_ref().map_err(Refusal::argument)?;
        let elements = rows.count() as u64 * rows.width() as u64;
        self.meters.charge_units(elements)?;
        self.push_new_tensor(elements, |_| rows.target_tensor(column, &DEVICE))
    }

    /// Returns a handle of the index of each record in the data of the run: `[size]`, `u32`.
    fn record_indices(&mut self, this: Handle<BatchEntry>) -> Answer {
        self.enter("data.batch.record-indices")?;
        let batch = self.table.get(&this)?.0.clone();
        self.meters.charge_units(batch.indices.len() as u64)?;
        self.push_list(&batch.indices)
    }

    /// Returns the number of target tokens of one side in all micro-batches of the update, at least 1;
    /// `invalid-argument` for an unknown side.
    fn window_targets(&mut self, this: Handle<BatchEntry>, side: String) -> Result<u32> {
        self.enter("data.batch.window-targets")?;
        side_count(&self.table.get(&this)?.0.window_targets, &side)
    }

    /// Returns the number of tokens of one side that are not the first of their row, in all micro-batches of the
    /// update, at least 1; `invalid-argument` for an unknown side.
    fn window_tokens(&mut self, this: Handle<BatchEntry>, side: String) -> Result<u32> {
        self.enter("data.batch.window-tokens")?;
        side_count(&self.table.get(&this)?.0.window_tokens, &side)
    }

    /// Returns the number of records in all micro-batches of the update, at least 1.
    fn window_size(&mut self, this: Handle<BatchEntry>) -> wasmtime::Result<u32> {
        self.enter("data.batch.window-size")?;
        Ok(self.table.get(&this)?.0.window_size.max(1))
    }

    /// Returns whether the batch is the last micro-batch of its update.
    fn ends_window(&mut self, this: Handle<BatchEntry>) -> wasmtime::Result<bool> {
        self.enter("data.batch.ends-window")?;
        Ok(self.table.get(&this)?.0.ends_window)
    }

    /// Deletes the handle. Not counted as a call.
    fn drop(&mut self, this: Handle<BatchEntry>) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl Host for HostContext<'_> {
    /// Makes rows of a method's own tokens, [`Rows::from_padded`], and returns their handle. Charges the work for every
    /// element and reserves the bytes of the rows, and of copies of the three tensors meanwhile. First counts
    /// [`ROW_BYTES`] a row as read back.
    ///
    /// Errors: `shape-mismatch` for other shapes than one `[rows, width]`; `dtype-mismatch`; `invalid-argument` for a
    /// token that is not in the vocabulary, a row longer than the model's maximum, and masks that no rows have;
    /// `out-of-budget` past the bytes that a step may read back.
    fn make_rows(&mut self, ids: Handle, presence: Handle, mask: Handle) -> Answer<RowsEntry> {
        self.enter("data.make-rows")?;
        let parts = [(&ids, "ids", DType::U32), (&presence, "presence", DType::F32), (&mask, "mask", DType::F32)];
        let shape = self.tensor_node(&ids)?.tensor.dims().to_vec();
        let [rows, width] = shape[..] else {
            let other = format!("`ids` is [rows, width], this is {shape:?}");
            return Err(Refusal::new(ErrorCode::ShapeMismatch, other));
        };
        for (handle, name, dtype) in parts {
            check_like(&self.tensor_node(handle)?.tensor, name, &shape, dtype)?;
        }
        let elements = (rows * width) as u64;
        self.meters.count_readback(ROW_BYTES * rows as u64)?;
        self.meters.charge_units(elements)?;
        let reservation = self.reserve(row_bytes(elements, rows))?;
        let _scratch = self.reserve(3 * 4 * elements)?;
        let numbers = |handle: &Handle| Ok::<_, Refusal>(self.tensor_node(handle)?.tensor.detach().flatten_all()?);
        let (ids, presence, mask) =
            (numbers(&ids)?.to_vec1()?, numbers(&presence)?.to_vec1()?, numbers(&mask)?.to_vec1()?);
        let made = Rows::from_padded(&ids, &presence, &mask, width)?;
        made.ids.iter().try_for_each(|row| self.check_tokens(row))?;
        let (longest, most) = (made.width(), self.configuration.max_positions);
        ensure(longest <= most, || Refusal::argument(format!("a row has {longest} tokens, the model takes {most}")))?;
        let held = row_bytes(made.tokens() as u64, made.count());
        Ok(self.table.push(RowsEntry(Arc::new(made), reservation.shrunk_to(held)))?)
    }
}

impl State {
    /// Returns a handle of existing rows. Reserves their bytes, although the batch or the completions that they belong
    /// to hold them too: the handle may outlive these.
    pub(crate) fn push_rows(&mut self, rows: &Arc<Rows>) -> Answer<RowsEntry> {
        let reservation = self.reserve(row_bytes(rows.tokens() as u64, rows.count()))?;
        Ok(self.table.push(RowsEntry(Arc::clone(rows), reservation))?)
    }

    /// Returns a handle of a tensor `[rows, width]` that `make` computes from the rows. Charges one unit of work for
    /// each element and reserves 4 bytes for it.
    fn push_token_tensor(
        &mut self,
        this: &Handle<RowsEntry>,
        make: fn(&Rows, &Device) -> Result<Tensor, tunebox_model::error::Error>,
    ) -> Answer {
        let rows = self.table.get(this)?.0.clone();
        let elements = rows.count() as u64 * rows.width() as u64;
        self.meters.charge_units(elements)?;
        self.push_new_tensor(elements, |_| make(&rows, &DEVICE))
    }
}

/// Estimates the bytes of rows: 5 a token (id and target mark), 128 a row for its two lists, and [`TENSOR_BYTES`] for
/// the handle.
pub(crate) fn row_bytes(tokens: u64, rows: usize) -> u64 {
    TENSOR_BYTES + 5 * tokens + 128 * rows as u64
}

/// Checks that a tensor has this shape and element type; `name` is that of the argument. Errors: `shape-mismatch`,
/// `dtype-mismatch`.
fn check_like(tensor: &Tensor, name: &str, shape: &[usize], dtype: DType) -> Result<()> {
    let (found, other) = (tensor.dims(), tensor.dtype());
    let shapes = || format!("`{name}` is {shape:?} like the ids, this is {found:?}");
    ensure(found == shape, || Refusal::new(ErrorCode::ShapeMismatch, shapes()))?;
    let types = || format!("`{name}` is `{}`, this is `{}`", dtype.as_str(), other.as_str());
    ensure(other == dtype, || Refusal::new(ErrorCode::DtypeMismatch, types()))
}

/// Converts a count to `u32`; traps the method if it does not fit.
fn count_to_u32(count: usize) -> wasmtime::Result<u32> {
    Ok(u32::try_from(count)?)
}

/// Looks up the number (of target tokens, or of tokens) that `counts` has for a side of the batch, such as `chosen`.
/// Returns 1 in place of 0; `invalid-argument` for a side that the batch does not have.
fn side_count(counts: &BTreeMap<String, u32>, side: &str) -> Result<u32> {
    let count = counts.get(side).ok_or_else(|| unknown_side(side, counts.keys().map(String::as_str)))?;
    Ok((*count).max(1))
}

/// Builds the `invalid-argument` error for an unknown side; `sides` are the names that the batch has.
fn unknown_side<'a>(side: &str, sides: impl Iterator<Item = &'a str>) -> Refusal {
    let known: Vec<String> = sides.map(|side| format!("`{side}`")).collect();
    Refusal::argument(format!("the batch has no side `{}`, only {}", printable(side, 64), known.join(", ")))
}
