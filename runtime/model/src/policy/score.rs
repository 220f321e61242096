//! Scoring, which computes the taps of rows through a view, and the backward pass, which takes the gradients of a loss
//! with respect to those taps (seeds) to the flat gradient of the trained parameters.

use std::sync::Arc;

use tunebox_compute::Tensor;
use tunebox_compute::budget::Reservation;
use tunebox_compute::fused::{Tap, Taps};
use tunebox_compute::parameters::GradientSums;

use super::division::{BatchValues, DividedSlice};
use super::learning_pass::slice_pass;
use super::taps::{SeedValues, TapRequest};
use super::{Policy, Seeds, View};
use crate::decoder::head::{OtherHead, OutputHead, SavedHead};
use crate::decoder::network::Network;
use crate::decoder::packing::Packing;
use crate::decoder::{SavedBlocks, stack};
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::stream::Patches;

/// Rows that were scored, and what is kept for learning from them.
pub struct Scored {
    /// The view through which the rows were scored.
    pub view: View,
    /// The rows that were scored.
    pub rows: Arc<Rows>,
    /// The computed taps, each `[rows, width]` with the length of the longest row as `width`, `f32` on the CPU;
    /// exactly 0 at tokens that are not targets.
    pub taps: Taps<Tensor>,
    /// The policy's update count when the rows were scored.
    pub generation: u64,
    pub(super) asked: TapRequest,
    pub(super) temperature: f32,
    /// The update count and the pass that name the first slice's dropout masks and noise; each further slice has the
    /// next pass. `None` if the rows were not scored for learning.
    pub(super) learning_pass: Option<(u64, u64)>,
    /// What each slice saved for its backward pass; `None`, or no element, for a slice that saved nothing.
    pub(super) passes: Vec<Option<Pass>>,
    /// The patches under which the rows were scored; the backward pass goes through them.
    pub(super) patches: Patches,
}

/// What one slice's forward pass saves for its backward pass.
pub(super) struct Pass {
    pub(super) packing: Packing,
    pub(super) blocks: SavedBlocks,
    pub(super) head: SavedHead,
    /// The bytes of the saved tensors, reserved in the policy's count of saved bytes.
    pub(super) reservation: Option<Reservation>,
}

impl Pass {
    /// The bytes of all tensors that the pass saved, of the blocks and of the head.
    fn bytes(&self) -> usize {
        self.blocks.bytes() + self.head.bytes()
    }
}

impl Scored {
    /// Wraps taps that [`Policy::score`] did not compute, without saved activations, dropout, noise and patches, at
    /// temperature 1. `generation` is the update count of the policy that they are for. Checks nothing.
    #[must_use]
    pub fn of_taps(view: View, rows: Arc<Rows>, taps: Taps<Tensor>, generation: u64) -> Self {
        Self {
            view,
            rows,
            asked: taps.set().into(),
            taps,
            generation,
            temperature: 1.0,
            learning_pass: None,
            passes: Vec::new(),
            patches: Patches::default(),
        }
    }

    /// A copy with other rows, without saved activations, dropout and noise: its backward pass runs the forward pass
    /// over `rows` again. View, update count, temperature, patches and tap values are those of `self`; the values are
    /// not computed for `rows`. Not for rows scored with dropout or noise, which belong to their batch.
    #[must_use]
    pub fn of_rows(&self, rows: Arc<Rows>) -> Self {
        let copy = Self::of_taps(self.view.clone(), rows, self.taps.clone(), self.generation);
        Self { asked: self.asked.clone(), temperature: self.temperature, patches: self.patches.clone(), ..copy }
    }

    /// The values of a tap, `[rows, width]`.
    ///
    /// # Errors
    /// When the tap was not asked for.
    pub fn tap(&self, tap: Tap) -> Result<&Tensor> {
        let missing = || format!("the tap `{}` was not asked for when the rows were scored", tap.name());
        self.taps.get(tap).ok_or_else(|| Error::Argument(missing()))
    }

    /// The bytes of activations that are saved for the backward pass on this rank; 0 after it.
    #[must_use]
    pub fn saved_bytes(&self) -> usize {
        self.passes.iter().flatten().map(Pass::bytes).sum()
    }
}

impl Policy {
    /// Computes the taps in `taps` of every target of `rows` through a view, with logits divided by `temperature`. Runs
    /// the rows slice by slice; a slice without targets runs nothing. With `learning`, on [`View::Policy`] alone,
    /// adapter dropout and the noise on embeddings apply, and activations are saved for [`Policy::backward`]: all of
    /// them if the slice setting allows the rows in one pass, else those of as many slices as
    /// [`PolicySettings::max_saved_bytes`](super::PolicySettings::max_saved_bytes) has room for. The backward pass of a
    /// slice without saved activations runs its forward pass again. Scoring for learning advances the counter that
    /// names dropout masks and noise by the number of slices, also if it fails later. Through another view, `learning`
    /// has no effect. A divergence runs each slice through its view as well, without anything that is for learning.
    ///
    /// # Errors
    /// When the temperature is not positive and finite, a token is not in the vocabulary, a snapshot or a teacher does
    /// not exist, or the deadline has passed.
    pub fn score(
        &self,
        view: &View,
        rows: &Arc<Rows>,
        taps: impl Into<TapRequest>,
        temperature: f32,
        learning: bool,
    ) -> Result<Scored> {
        let asked = taps.into();
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(Error::Argument(format!("temperature `{temperature}` is not a positive number")));
        }
        let learning = learning && *view == View::Policy;
        let share = self.shares_prefixes(view, learning);
        let slices = self.divided_slices(rows, view, (learning, share), |row| rows.scored_length(row));
        let mut scored = Scored {
            view: view.clone(),
            rows: Arc::clone(rows),
            taps: Taps::default(),
            generation: self.generation,
            asked,
            temperature,
            learning_pass: learning.then(|| self.next_learning_pass(&slices)),
            passes: Vec::new(),
            patches: self.patches.clone(),
        };
        let own = self.score_slices(&mut scored, &slices, share);
        let width = rows.width();
        let targets = |row: usize| (1..rows.ids[row].len()).filter(move |at| rows.targets[row][*at]);
        let indices = |row: usize| targets(row).map(move |at| row * width + at);
        let values = self.gather_values(("score", learning), &slices, indices, own)?;
        scored.taps = values.into_taps(scored.asked.taps, rows)?;
        Ok(scored)
    }

    /// Scores this rank's share of the rows of `scored`, slice by slice. Adds an element to `scored.passes` for each
    /// slice: what its backward pass needs, or `None` if the rows are not scored for learning, there is no room to save
    /// it, or this rank has no targets of the slice. Returns the taps, which are 0 at the rows of other ranks.
    fn score_slices(&self, scored: &mut Scored, slices: &[DividedSlice], share: bool) -> Result<BatchValues> {
        let (rows, view, asked) = (Arc::clone(&scored.rows), scored.view.clone(), scored.asked.clone());
        let configuration = &self.model_of(&view).configuration;
        let (temperature, learning) = (scored.temperature, scored.learning_pass.is_some());
        let mut all = BatchValues::new(asked.taps.iter().count(), rows.count() * rows.width(), 1);
        for (slice, number) in slices.iter().zip(0_u64..) {
            let packing = slice.pack_targets(&rows, share, configuration)?;
            if packing.is_empty() {
                scored.passes.push(None);
                continue;
            }
            let network = self.learning_network(&view, slice_pass(scored.learning_pass, number), &packing)?;
            let head = OutputHead::new(&network, temperature, asked.taps)?;
            let other = self.divergence_head(&rows, slice, &asked, temperature)?;
            if learning && self.can_save(&rows, slices, (packing.ids.len(), configuration.layers)) {
                let mut pass = self.forward_pass(&network, &head, packing, other)?;
                pass.reservation = Some(self.saved.reserve(pass.bytes() as u64)?);
                all.add_taps(asked.taps, &pass.packing, &pass.head.taps);
                scored.passes.push(Some(pass));
            } else {
                let hidden = stack::forward(&network, &packing)?;
                let found = head.forward(packing.select_predictors(&hidden)?, &packing.targets, false, other)?;
                all.add_taps(asked.taps, &packing, &found.taps);
                scored.passes.push(None);
            }
        }
        Ok(all)
    }

    /// Runs blocks and head over one slice and saves what its backward pass needs. `other` is the head that a
    /// divergence is taken to, if any. Reserves no bytes.
    fn forward_pass(
        &self,
        network: &Network<'_>,
        head: &OutputHead,
        packing: Packing,
        other: Option<OtherHead>,
    ) -> Result<Pass> {
        let last = network.model.configuration.layers - 1;
        let (hidden, blocks) = stack::forward_saving(network, &packing, last, self.settings.recompute)?;
        let head = head.forward(packing.select_predictors(&hidden)?, &packing.targets, true, other)?;
        Ok(Pass { packing, blocks, head, reservation: None })
    }

    /// Runs a slice of rows through the other model of the divergence tap (`asked.divergence.view`), up to the input of
    /// its output head. Returns that head with the normalized hidden states of the slice's targets; `None` if `asked`
    /// has no divergence. Saves nothing for a backward pass, so the other model gets no gradient. Has no dropout and no
    /// noise. Errors: no snapshot or teacher of this name, or the deadline has passed.
    fn divergence_head(
        &self,
        rows: &Rows,
        slice: &DividedSlice,
        asked: &TapRequest,
        temperature: f32,
    ) -> Result<Option<OtherHead>> {
        let Some(to) = &asked.divergence else { return Ok(None) };
        let network = self.network(&to.view)?;
        // May share prefixes where the scored pass does not: the targets are in the same order either way.
        let packing = slice.pack_targets(rows, true, &network.model.configuration)?;
        let selected = packing.select_predictors(&stack::forward(&network, &packing)?)?;
        let head = OutputHead::new(&network, temperature, asked.taps)?;
        Ok(Some(OtherHead::new(head, &selected, to.beta)?))
    }

    /// Adds Σ seed · d(tap)/d(parameter) to the flat gradient; `seeds` are the gradients of a loss with respect to the
    /// taps. Consumes the saved activations of `scored`; a slice without saved activations, so every slice at a second
    /// call, runs its forward pass again with the dropout masks and the noise of the first time and the same result.
    /// Skips slices whose seeds are all 0. If nothing is trained, checks the arguments, frees the saved activations and
    /// does nothing else.
    ///
    /// # Errors
    /// When the rows were scored through another view or before the last update, seeds have another shape or belong to
    /// a tap that was not asked for, or the deadline has passed. If a slice fails, the gradient has the terms of the
    /// slices before it.
    pub fn backward(&self, scored: &mut Scored, seeds: &Seeds) -> Result<()> {
        self.check(scored, seeds)?;
        let seeds = SeedValues::read(seeds, &scored.rows)?;
        let kept = std::mem::take(&mut scored.passes);
        if self.adapter.trainable() == 0 {
            return Ok(());
        }
        let share = self.shares_prefixes(&scored.view, scored.learning_pass.is_some());
        let length = |row| scored.rows.scored_length(row);
        let slices = self.divided_slices(&scored.rows, &scored.view, (true, share), length);
        let kept = kept.into_iter().chain(std::iter::repeat_with(|| None));
        for ((slice, number), kept) in slices.iter().zip(0_u64..).zip(kept) {
            // Without a target, or without a seed that is not 0, a slice has no gradient.
            if !seeds.has_any(&scored.rows, slice.rows.clone()) {
                continue;
            }
            let sums = self.backward_slice((scored, number), slice, (kept, share), &seeds);
            self.add_gradient(&slice.parts, sums)?;
        }
        Ok(())
    }

    /// Runs the backward pass over this rank's parts of slice `number`, from the seeds of its targets. Runs the forward
    /// pass first if `kept`, what that pass saved, is `None`; else frees `kept` at the end. Runs neither pass if all
    /// seeds of these parts are 0. `share` says whether common prefixes run once. Returns the sums of the gradient,
    /// which are in the flat gradient already unless passes for learning are divided among ranks.
    fn backward_slice(
        &self,
        (scored, number): (&Scored, u64),
        slice: &DividedSlice,
        (kept, share): (Option<Pass>, bool),
        seeds: &SeedValues,
    ) -> Result<GradientSums<'_>> {
        let pass = match kept {
            Some(pass) => pass,
            None => {
                let packing = slice.pack_targets(&scored.rows, share, &self.model.configuration)?;
                if seeds.of(&packing).is_none() {
                    return self.gradient_sums(packing.parts);
                }
                let network = self.network_of(scored, number, &packing)?;
                let head = OutputHead::new(&network, scored.temperature, scored.asked.taps)?;
                let other = self.divergence_head(&scored.rows, slice, &scored.asked, scored.temperature)?;
                self.forward_pass(&network, &head, packing, other)?
            }
        };
        let network = self.network_of(scored, number, &pass.packing)?;
        let Pass { packing, blocks, head: kept, reservation: _reservation } = pass;
        let gradients = self.gradient_sums(packing.parts.clone())?;
        let Some(seeds) = seeds.of(&packing) else { return Ok(gradients) };
        let head = OutputHead::new(&network, scored.temperature, scored.asked.taps)?;
        let selected = head.backward(&kept, &packing.targets, seeds.head(), &gradients)?;
        drop(kept);
        let upstream = packing.scatter_gradients(&selected)?;
        stack::backward(&network, &packing, blocks, upstream, &gradients)?;
        Ok(gradients)
    }

    /// Builds the network of the view through which the rows were scored, with the patches, dropout masks and noise of
    /// that time, for a pass over slice `number`.
    fn network_of<'a>(&'a self, scored: &'a Scored, number: u64, packing: &Packing) -> Result<Network<'a>> {
        let learning_pass = slice_pass(scored.learning_pass, number);
        Ok(Network { patches: &scored.patches, ..self.learning_network(&scored.view, learning_pass, packing)? })
    }

    /// Checks that rows were scored through [`View::Policy`], that the update count has not changed since, and that
    /// each tap with seeds was asked for when the rows were scored.
    fn check(&self, scored: &Scored, seeds: &Seeds) -> Result<()> {
        if scored.view != View::Policy {
            return Err(Error::Argument("only rows scored through the policy can be learned from".into()));
        }
        self.check_generation(scored.generation, ["scored", "score"])?;
        match seeds.iter().find(|(tap, _)| !scored.asked.taps.contains(*tap)) {
            Some((tap, _)) => {
                Err(Error::Argument(format!("there are seeds for `{}`, which was not asked for", tap.name())))
            }
            None => Ok(()),
        }
    }
}
