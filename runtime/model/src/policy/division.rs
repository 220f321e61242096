//! Divides a slice of rows among ranks, and joins what they computed.

use std::ops::Range;

use tunebox_compute::parameters::{GradientSums, TokenParts};

use super::score::Scored;
use super::taps::BatchTaps;
use super::{Policy, View};
use crate::decoder::packing::{Packing, RowParts};
use crate::error::Result;
use crate::ranks::{bytes_of, numbers_of, wrong_message};
use crate::rows::Rows;

/// Numbers of the flat gradient that ranks exchange at a time.
pub(super) const CHUNK_NUMBERS: usize = 1 << 20;

/// A slice of rows, and the parts into which it is cut.
pub(super) struct DividedSlice {
    pub(super) rows: Range<usize>,
    pub(super) parts: RowParts,
}

impl Policy {
    /// Whether passes are divided among several ranks. Where all weights are trained, those for learning are not: every
    /// rank runs all of them, because a gradient is as large as the model.
    pub(super) fn divides(&self, learning: bool) -> bool {
        self.ranks.are_several() && !(learning && self.adapter.is_full())
    }

    /// Cuts a batch into slices, and each slice into parts that are divided among the ranks. One process alone cuts
    /// parts only where gradients are added up on the CPU for an adapter, so that they have the bits of several ranks.
    /// `share` is whether common prefixes run once.
    pub(super) fn divided_slices(
        &self,
        rows: &Rows,
        view: &View,
        (learning, share): (bool, bool),
    ) -> Vec<DividedSlice> {
        let configuration = &self.model_of(view).configuration;
        let sums_in_parts = self.model.weights.device().is_cpu() && !self.adapter.is_full();
        let divides = self.divides(learning);
        let is_cut = divides || learning && sums_in_parts && self.adapter.trainable() > 0;
        let position = if divides { self.ranks.position() } else { (0, 1) };
        let divide = |slice: Range<usize>| {
            let parts = match is_cut {
                true => Packing::cut(rows, slice.clone(), share, configuration, position),
                false => RowParts::whole(slice.len()),
            };
            DividedSlice { rows: slice, parts }
        };
        self.slices(rows, share).into_iter().map(divide).collect()
    }

    /// Where the gradients of these parts are added: to the parameters, or to buffers if they are divided among ranks.
    pub(super) fn gradient_sums(&self, parts: TokenParts) -> Result<GradientSums<'_>> {
        let parameters = self.adapter.parameters();
        let sums = match self.divides(true) {
            true => GradientSums::apart(parameters, parts),
            false => GradientSums::new(parameters, parts),
        };
        Ok(sums?)
    }

    /// Fills in the taps of the rows that other ranks scored. `own` has those of this rank.
    pub(super) fn gather_taps(
        &self,
        scored: &Scored,
        slices: &[DividedSlice],
        own: Result<BatchTaps>,
    ) -> Result<BatchTaps> {
        if !self.divides(scored.learning_pass.is_some()) {
            return own;
        }
        let (rank, ranks) = self.ranks.position();
        let mut of_ranks = vec![Vec::new(); ranks];
        for slice in slices {
            let indices = Packing::target_indices(&scored.rows, &slice.rows, &slice.parts);
            of_ranks.iter_mut().zip(indices).for_each(|(all, indices)| all.extend(indices));
        }
        let message = own.as_ref().map(|taps| bytes_of(&taps.values_at(&of_ranks[rank])));
        let message = message.map_err(ToString::to_string);
        let gathered = self.ranks.gather("score", message);
        let (mut taps, gathered) = (own?, gathered?);
        for (indices, message) in of_ranks.iter().zip(gathered) {
            if message.len() != 4 * indices.len() * taps.count() {
                return Err(wrong_message("score"));
            }
            taps.set_at(indices, numbers_of(&message));
        }
        Ok(taps)
    }

    /// Adds the gradient of one slice of rows to the flat gradient. `own` has the sums over the parts that are here; if they
    /// are divided among ranks, gathers those of the others.
    pub(super) fn add_gradient(&self, parts: &RowParts, own: Result<GradientSums<'_>>) -> Result<()> {
        if !self.divides(true) {
            return own.map(|_| ());
        }
        let parameters = self.adapter.parameters();
        let own: Result<Vec<Vec<f32>>> = own.and_then(|sums| {
            let flat = sums.into_subtrees().into_iter().map(|(_, flat)| Ok(flat.to_vec1::<f32>()?));
            flat.collect()
        });
        let subtrees = parts.subtrees();
        for start in (0..parameters.flat_len()).step_by(CHUNK_NUMBERS) {
            let range = start..(start + CHUNK_NUMBERS).min(parameters.flat_len());
            let message = own.as_ref().map(|flat| flat.iter().flat_map(|all| bytes_of(&all[range.clone()])).collect());
            let gathered = self.ranks.gather("gradient", message.map_err(ToString::to_string));
            let gathered = match &own {
                Ok(_) => gathered?,
                Err(_) => break,
            };
            let mut found = Vec::new();
            for (subtrees, message) in subtrees.iter().zip(gathered) {
                if message.len() != 4 * range.len() * subtrees.len() {
                    return Err(wrong_message("gradient"));
                }
                let sums = message.chunks_exact(4 * range.len()).map(|bytes| numbers_of(bytes).collect());
                found.extend(subtrees.iter().cloned().zip(sums));
            }
            parameters.add_subtrees(start, parts.count(), &found)?;
        }
        own.map(|_| ())
    }
}
