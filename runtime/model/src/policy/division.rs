//! Divides a slice of rows among ranks, and joins what they computed.

use std::ops::Range;

use tunebox_compute::parameters::{GradientSums, TokenParts};

use super::{Policy, View};
use crate::configuration::Configuration;
use crate::decoder::packing::{Packing, RowParts};
use crate::error::Result;
use crate::ranks::{bytes_of, message_size_error, numbers_of};
use crate::rows::Rows;

/// Numbers of the flat gradient that ranks exchange at a time.
pub(super) const CHUNK_NUMBERS: usize = 1 << 20;

/// A slice of rows, and the parts into which it is cut.
pub(super) struct DividedSlice {
    pub(super) rows: Range<usize>,
    /// How many tokens of each row, from its first, a pass runs.
    pub(super) lengths: Vec<usize>,
    pub(super) parts: RowParts,
}

impl DividedSlice {
    /// Packs the tokens on which the targets of this rank's parts depend; `share` packs common prefixes once. Errors:
    /// those of [`Packing::of_targets`].
    pub(super) fn pack_targets(&self, rows: &Rows, share: bool, configuration: &Configuration) -> Result<Packing> {
        Packing::of_targets(rows, self.rows.clone(), &self.lengths, (&self.parts, share), configuration)
    }
}

/// Results of passes over a batch, filled in slice by slice: tables with the same number of entries, each of which has
/// the same number of numbers.
pub(super) struct BatchValues {
    /// Table after table, entry after entry.
    pub(super) numbers: Vec<f32>,
    tables: usize,
    /// How many numbers a table has.
    length: usize,
    /// How many numbers an entry has.
    width: usize,
}

impl BatchValues {
    /// Tables filled with 0, of `count` entries with `width` numbers each.
    pub(super) fn new(tables: usize, count: usize, width: usize) -> Self {
        let length = count * width;
        Self { numbers: vec![0.0; tables * length], tables, length, width }
    }

    /// The numbers of one table, entry after entry.
    pub(super) fn table(&mut self, index: usize) -> &mut [f32] {
        &mut self.numbers[index * self.length..][..self.length]
    }

    /// Writes entries of one table from `numbers`, entry after entry, at these indices.
    pub(super) fn set_entries(&mut self, table: usize, indices: &[usize], numbers: &[f32]) {
        let width = self.width;
        let table = self.table(table);
        for (at, entry) in indices.iter().zip(numbers.chunks_exact(width)) {
            table[at * width..][..width].copy_from_slice(entry);
        }
    }

    /// Copies the entries at these indices from all tables: table after table, in the order of the indices.
    fn entries(&self, indices: &[usize]) -> Vec<f32> {
        let tables = self.numbers.chunks_exact(self.length.max(1));
        tables
            .flat_map(|table| indices.iter().flat_map(|at| &table[at * self.width..][..self.width]))
            .copied()
            .collect()
    }
}

impl Policy {
    /// Whether passes are divided among several ranks. Where weights of the model are trained themselves, those for
    /// learning are not: every rank runs all of them, because a gradient is as large as these weights.
    pub(super) fn divides(&self, learning: bool) -> bool {
        self.ranks.are_several() && !(learning && self.adapter.trains_weights())
    }

    /// Cuts a batch into slices, and each slice into parts that are divided among the ranks. If passes are not divided,
    /// a slice is one part, unless it is for `learning` on the CPU and low-rank factors alone are trained: then it is
    /// cut as for several ranks, so that the gradient gets the same bits. `share` says whether common prefixes run
    /// once. `length` gets the index of a row and returns how many of its tokens, from the first, a pass runs.
    pub(super) fn divided_slices(
        &self,
        rows: &Rows,
        view: &View,
        (learning, share): (bool, bool),
        length: impl Fn(usize) -> usize,
    ) -> Vec<DividedSlice> {
        let configuration = &self.model_of(view).configuration;
        let sums_in_parts = self.model.weights.device().is_cpu() && !self.adapter.trains_weights();
        let divides = self.divides(learning);
        let is_cut = divides || learning && sums_in_parts && self.adapter.trainable() > 0;
        let position = if divides { self.ranks.position() } else { (0, 1) };
        let divide = |slice: Range<usize>| {
            let lengths: Vec<usize> = slice.clone().map(&length).collect();
            let parts = match is_cut {
                true => Packing::cut(rows, slice.clone(), &lengths, share, configuration, position),
                false => RowParts::whole(slice.len()),
            };
            DividedSlice { rows: slice, lengths, parts }
        };
        self.slices(rows, share).into_iter().map(divide).collect()
    }

    /// Creates the sums to which the gradients of these parts are added: the flat gradient of the parameters itself,
    /// or, if passes for learning are divided among ranks, new buffers of 0.
    pub(super) fn gradient_sums(&self, parts: TokenParts) -> Result<GradientSums<'_>> {
        let parameters = self.adapter.parameters();
        let sums = match self.divides(true) {
            true => GradientSums::in_subtrees(parameters, parts),
            false => GradientSums::new(parameters, parts),
        };
        Ok(sums?)
    }

    /// Adds the values of the rows that other ranks computed to `local`, the values of this rank. `indices` returns,
    /// for the index of a row, the indices of its entries in the tables. `purpose` names the exchange, and `learning`
    /// says whether the pass is for learning. Returns `local` unchanged if such passes are not divided. Errors: the
    /// error in `local`, which all ranks then return; another rank failed, or sent a message of the wrong size.
    pub(super) fn gather_values<I: IntoIterator<Item = usize>>(
        &self,
        (purpose, learning): (&'static str, bool),
        slices: &[DividedSlice],
        indices: impl Fn(usize) -> I,
        local: Result<BatchValues>,
    ) -> Result<BatchValues> {
        if !self.divides(learning) {
            return local;
        }
        let (rank, ranks) = self.ranks.position();
        let mut of_ranks = vec![Vec::new(); ranks];
        for slice in slices {
            for (all, numbers) in of_ranks.iter_mut().zip(slice.parts.rows_of_ranks()) {
                all.extend(numbers.into_iter().flat_map(|number| indices(slice.rows.start + number)));
            }
        }
        let message = local.as_ref().map(|values| bytes_of(&values.entries(&of_ranks[rank])));
        let gathered = self.ranks.gather(purpose, message.map_err(ToString::to_string));
        let (mut values, gathered) = (local?, gathered?);
        for (indices, message) in of_ranks.iter().zip(gathered) {
            let length = indices.len() * values.width;
            if message.len() != 4 * length * values.tables {
                return Err(message_size_error(purpose));
            }
            for (table, bytes) in message.chunks_exact((4 * length).max(1)).enumerate() {
                values.set_entries(table, indices, &numbers_of(bytes).collect::<Vec<f32>>());
            }
        }
        Ok(values)
    }

    /// Completes the gradient of one slice of rows. `local` has the sums over the parts of this rank. If passes for
    /// learning are not divided, these sums are in the flat gradient already, and only an error in `local` is returned.
    /// Otherwise exchanges the sums of all ranks, [`CHUNK_NUMBERS`] numbers at a time, and adds them to the flat
    /// gradient. Errors: the error in `local`, which all ranks then return; another rank failed, or sent a message of
    /// the wrong size. Chunks that were added before the error stay added.
    pub(super) fn add_gradient(&self, parts: &RowParts, local: Result<GradientSums<'_>>) -> Result<()> {
        if !self.divides(true) {
            return local.map(|_| ());
        }
        let parameters = self.adapter.parameters();
        let local: Result<Vec<Vec<f32>>> = local.and_then(|sums| {
            let flat = sums.into_subtrees().into_iter().map(|(_, flat)| Ok(flat.to_vec1::<f32>()?));
            flat.collect()
        });
        let subtrees = parts.subtrees();
        for start in (0..parameters.flat_len()).step_by(CHUNK_NUMBERS) {
            let range = start..(start + CHUNK_NUMBERS).min(parameters.flat_len());
            let message =
                local.as_ref().map(|flat| flat.iter().flat_map(|all| bytes_of(&all[range.clone()])).collect());
            let gathered = self.ranks.gather("gradient", message.map_err(ToString::to_string));
            let gathered = match &local {
                Ok(_) => gathered?,
                Err(_) => break,
            };
            let mut found = Vec::new();
            for (subtrees, message) in subtrees.iter().zip(gathered) {
                if message.len() != 4 * range.len() * subtrees.len() {
                    return Err(message_size_error("gradient"));
                }
                let sums = message.chunks_exact(4 * range.len()).map(|bytes| numbers_of(bytes).collect());
                found.extend(subtrees.iter().cloned().zip(sums));
            }
            parameters.add_subtrees(start, parts.count(), &found)?;
        }
        local.map(|_| ())
    }
}
