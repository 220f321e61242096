//! What passes for learning have in common, whether they score rows or capture activations: which dropout masks they
//! have, what they save for their backward passes, and when that can no longer be used.

use std::sync::atomic::Ordering;

use super::division::DividedSlice;
use super::{Policy, View};
use crate::decoder::network::Network;
use crate::decoder::packing::Packing;
use crate::error::{Error, Result};
use crate::rows::Rows;

impl Policy {
    /// Whether common prefixes of rows run once. False only if `learning` is set, the view is [`View::Policy`] and the
    /// adapter has dropout or the embeddings noise, because masks and noise then differ between rows.
    #[must_use]
    pub fn shares_prefixes(&self, view: &View, learning: bool) -> bool {
        let differs = self.noise.is_some() || self.adapter.settings().dropout > 0.0;
        !(learning && *view == View::Policy && differs)
    }

    /// Returns the (update count, pass number) that names the dropout masks and the noise of the first of these slices;
    /// each further slice has the next pass. Advances the counter of slices by their number.
    pub(super) fn next_learning_pass(&self, slices: &[DividedSlice]) -> (u64, u64) {
        (self.generation, self.learning_slices.fetch_add(slices.len() as u64, Ordering::Relaxed))
    }

    /// Builds the network of a view for a pass over `packing`, with the dropout masks and the noise that
    /// `learning_pass` (update count, pass number) names; without both if it is `None`.
    pub(super) fn learning_network(
        &self,
        view: &View,
        learning_pass: Option<(u64, u64)>,
        packing: &Packing,
    ) -> Result<Network<'_>> {
        Ok(Network { learning_pass, first_token: packing.first_token, ..self.network(view)? })
    }

    /// Whether a pass saves the activations of a slice with `tokens` packed tokens in the blocks below `layers` for its
    /// backward pass: if it is the only one of `slices` and the slice setting allows all rows in one pass, or as long
    /// as `max_saved_bytes` has room. Leaves out the activations of adapter modules.
    pub(super) fn can_save(&self, rows: &Rows, slices: &[DividedSlice], (tokens, layers): (usize, usize)) -> bool {
        let token = self.base_token_bytes(self.settings.recompute, layers);
        let needed = self.saved.held().saturating_add(token.saturating_mul(tokens as u64));
        // A batch that the setting allows in one pass is always saved, further slices only while there is room.
        slices.len() == 1 && self.settings.slice.holds(rows) || needed <= self.settings.max_saved_bytes
    }

    /// Whether a block below `layers`, or the embedding, has something to train.
    #[must_use]
    pub fn trains_below(&self, layers: usize) -> bool {
        self.adapter.lowest_trained().is_some_and(|lowest| lowest < layers)
    }

    /// Returns [`Error::Argument`] if the update count is no longer `generation`, at which rows were scored or
    /// captured. `done` and `again` are the verbs of the message, such as `scored` and `score`.
    pub(super) fn check_generation(&self, generation: u64, [done, again]: [&str; 2]) -> Result<()> {
        if generation == self.generation {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "the rows were {done} after update `{generation}`, the weights have had `{}`; {again} them again",
            self.generation
        )))
    }
}

/// Returns the (update count, pass number) that names the dropout masks and noise of the slice with the index `slice`:
/// `first`, that of slice 0, with `slice` added to the pass number. `None`, as `first`, for rows that are not for
/// learning.
pub(super) fn slice_pass(first: Option<(u64, u64)>, slice: u64) -> Option<(u64, u64)> {
    first.map(|(generation, pass)| (generation, pass + slice))
}
