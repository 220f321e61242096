//! Scoring: per-token taps of rows through a view.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tunebox_compute::Tensor;
use tunebox_compute::budget::Reservation;
use tunebox_compute::fused::{Tap, TapSet, Taps};

use super::memory::token_bytes;
use super::taps::BatchTaps;
use super::{Policy, View};
use crate::decoder::head::{OutputHead, SavedHead};
use crate::decoder::network::Network;
use crate::decoder::packing::Packing;
use crate::decoder::{SavedBlock, stack};
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::stream::Patches;

/// Rows that were scored, and what is kept for learning from them.
pub struct Scored {
    /// What they were scored through.
    pub view: View,
    /// What was scored.
    pub rows: Arc<Rows>,
    /// What came out: `[rows, width]` each, `f32` on the CPU, exactly 0 where the rows' mask is 0.
    pub taps: Taps<Tensor>,
    /// The updates that the weights had had.
    pub generation: u64,
    pub(super) asked: TapSet,
    pub(super) temperature: f32,
    /// The pass of the first slice, which dropout masks belong to; each further slice has the next.
    pub(super) dropout: Option<(u64, u64)>,
    /// What is kept of each slice; empty where nothing is.
    pub(super) passes: Vec<Option<Pass>>,
    /// The patches that it was scored under: its gradient passes through these.
    pub(super) patches: Patches,
}

/// All that a backward pass needs.
pub(super) struct Pass {
    pub(super) packing: Packing,
    pub(super) blocks: Vec<SavedBlock>,
    pub(super) head: SavedHead,
    /// Its bytes in the policy's account.
    pub(super) reservation: Option<Reservation>,
}

impl Pass {
    /// The bytes of all saved tensors.
    fn bytes(&self) -> usize {
        self.blocks.iter().map(SavedBlock::bytes).sum::<usize>() + self.head.bytes()
    }
}

impl Scored {
    /// Wraps taps that were not computed by [`Policy::score`]. Without saved activations and dropout, at temperature 1.
    #[must_use]
    pub fn of_taps(view: View, rows: Arc<Rows>, taps: Taps<Tensor>, generation: u64) -> Self {
        Self {
            view,
            rows,
            asked: taps.set(),
            taps,
            generation,
            temperature: 1.0,
            dropout: None,
            passes: Vec::new(),
            patches: Patches::default(),
        }
    }

    /// A copy with other rows, for the same view, taps and patches, and without saved activations: its backward pass
    /// runs the forward pass again. Not for rows scored with dropout, whose masks belong to their batch.
    #[must_use]
    pub fn of_rows(&self, rows: Arc<Rows>) -> Self {
        let copy = Self::of_taps(self.view.clone(), rows, self.taps.clone(), self.generation);
        Self { asked: self.asked, temperature: self.temperature, patches: self.patches.clone(), ..copy }
    }

    /// The values of a tap, `[rows, width]`.
    ///
    /// # Errors
    /// When the tap was not asked for.
    pub fn tap(&self, tap: Tap) -> Result<&Tensor> {
        let missing = || format!("the tap `{}` was not asked for when the rows were scored", tap.name());
        self.taps.get(tap).ok_or_else(|| Error::Argument(missing()))
    }

    /// The bytes of activations saved for a backward pass.
    #[must_use]
    pub fn saved_bytes(&self) -> usize {
        self.passes.iter().flatten().map(Pass::bytes).sum()
    }
}

impl Policy {
    /// Computes taps of every target through a view; logits are divided by the temperature. With `keep`, and on the
    /// policy alone, adapter dropout applies and activations are saved for [`Policy::backward`], which otherwise runs
    /// the forward pass again: all of them for rows of one slice, else those of as many slices as there is room for.
    ///
    /// # Errors
    /// When the temperature is not positive, a token is not in the vocabulary, or a snapshot does not exist.
    pub fn score(&self, view: &View, rows: &Arc<Rows>, taps: TapSet, temperature: f32, keep: bool) -> Result<Scored> {
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(Error::Argument(format!("temperature `{temperature}` is not a positive number")));
        }
        let configuration = &self.model.configuration;
        let learning = keep && *view == View::Policy;
        let share = self.shares_prefixes(view, keep);
        let slices = self.slices(rows, share);
        let count = slices.len() as u64;
        // What a batch is meant to take is kept; what is only there because memory is, while there is room.
        let whole = count == 1 && self.settings.slice.holds(rows);
        let dropout = learning.then(|| (self.generation, self.passes.fetch_add(count, Ordering::Relaxed)));
        let (mut all, mut passes) = (BatchTaps::new(rows, taps), Vec::new());
        for (slice, number) in slices.into_iter().zip(0_u64..) {
            let packing = Packing::new(rows, slice, share, configuration)?;
            if packing.is_empty() {
                passes.push(None);
                continue;
            }
            let network = Network { dropout: slice_dropout(dropout, number), ..self.network(view)? };
            let head = OutputHead::new(&network, temperature, taps)?;
            if learning && (whole || self.has_room(packing.ids.len())) {
                let mut pass = self.forward_pass(&network, &head, packing)?;
                pass.reservation = Some(self.saved.reserve(pass.bytes() as u64)?);
                all.add(&pass.packing, &pass.head.taps);
                passes.push(Some(pass));
            } else {
                let hidden = stack::forward(&network, &packing)?;
                let scored = head.forward(packing.select_predictors(&hidden)?, &packing.targets, false)?;
                all.add(&packing, &scored.taps);
                passes.push(None);
            }
        }
        Ok(Scored {
            view: view.clone(),
            rows: Arc::clone(rows),
            taps: all.finish()?,
            generation: self.generation,
            asked: taps,
            temperature,
            dropout,
            passes,
            patches: self.patches.clone(),
        })
    }

    /// Runs blocks and head over one slice and saves what its backward pass needs. Reserves no bytes.
    pub(super) fn forward_pass(&self, network: &Network<'_>, head: &OutputHead, packing: Packing) -> Result<Pass> {
        let (hidden, blocks) = stack::forward_saving(network, &packing, self.settings.recompute)?;
        let head = head.forward(packing.select_predictors(&hidden)?, &packing.targets, true)?;
        Ok(Pass { packing, blocks, head, reservation: None })
    }

    /// Whether common prefixes of rows run once. False for learning passes (`keep`, on the policy) with dropout: each
    /// row has its own masks.
    #[must_use]
    pub fn shares_prefixes(&self, view: &View, keep: bool) -> bool {
        !(keep && *view == View::Policy && self.adapter.settings().dropout > 0.0)
    }

    /// Whether the estimated activations of `tokens` tokens fit, with all that is saved already, into the `keep` limit.
    fn has_room(&self, tokens: usize) -> bool {
        let token = token_bytes(&self.model.configuration, self.precision(), self.settings.recompute);
        let bytes = token.saturating_mul(tokens as u64);
        self.saved.held().saturating_add(bytes) <= self.settings.keep
    }
}

/// The (generation, pass) pair that names a slice's dropout masks: the first slice's pass plus the slice's index;
/// `None` without dropout.
pub(super) fn slice_dropout(first: Option<(u64, u64)>, slice: u64) -> Option<(u64, u64)> {
    first.map(|(generation, pass)| (generation, pass + slice))
}
