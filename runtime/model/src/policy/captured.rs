//! Activations that carry a gradient: captures them for learning, and takes the gradients of a loss with respect to
//! them (seeds) to the flat gradient of the trained parameters.

use std::ops::Range;
use std::sync::Arc;

use tunebox_compute::parameters::GradientSums;
use tunebox_compute::{DType, Tensor};

use super::capture::{CapturePacking, CapturePass, CaptureRequest, CaptureResult};
use super::division::DividedSlice;
use super::learning_pass::slice_pass;
use super::{Policy, View};
use crate::decoder::hook::{ActivationGradient, AtSite};
use crate::decoder::network::Network;
use crate::decoder::stack;
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::stream::{Patches, Site, Token};

/// Activations that were captured for learning, and what is kept for their backward pass.
pub struct Captured {
    /// The rows of which activations were captured.
    pub rows: Arc<Rows>,
    /// The activations, in the shape that [`Policy::capture`] returns: `f32` on the CPU.
    pub values: Tensor,
    /// The policy's update count when they were captured.
    pub generation: u64,
    request: CaptureRequest,
    /// The update count and the pass that name the first slice's dropout masks and noise; each further slice has the
    /// next pass.
    learning_pass: Option<(u64, u64)>,
    /// What each slice saved for its backward pass; `None`, or no element, for a slice that saved nothing.
    passes: Vec<Option<CapturePass>>,
    /// The patches that were active; the backward pass goes through them.
    patches: Patches,
}

impl Captured {
    /// The bytes of activations that are saved for the backward pass on this rank; 0 after it.
    #[must_use]
    pub fn saved_bytes(&self) -> usize {
        self.passes.iter().flatten().map(|pass| pass.blocks.bytes()).sum()
    }
}

/// The seeds of a slice of rows, in host memory.
struct SliceSeeds {
    /// Those of each layer, vector after vector, `hidden` numbers for each.
    layers: Vec<Vec<f32>>,
    /// The index of the first vector among the vectors of a layer of the whole batch.
    first: usize,
    hidden: usize,
}

impl SliceSeeds {
    /// Copies the seeds of the slice `rows` (row indices) to host memory as `f32`. `seeds` are those of the whole
    /// batch, in the shape of the captured values.
    fn read(seeds: &Tensor, request: &CaptureRequest, rows: &Range<usize>) -> Result<Self> {
        let of_layer = |number| -> Result<Vec<f32>> {
            let seeds = seeds.get(number)?.narrow(0, rows.start, rows.len())?;
            Ok(seeds.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?)
        };
        let layers = (0..request.layers.len()).map(of_layer).collect::<Result<_>>()?;
        Ok(Self { layers, first: rows.start * request.vectors_per_row(), hidden: seeds.dim(seeds.rank() - 1)? })
    }

    /// Selects the `hidden` seeds of one captured vector from `layer`, an element of `layers`. `index` is the vector's
    /// index among those of the whole batch.
    fn of_vector<'a>(&self, layer: &'a [f32], index: usize) -> &'a [f32] {
        &layer[(index - self.first) * self.hidden..][..self.hidden]
    }

    /// Collects the seeds of some captured vectors of one layer, vector after vector. `number` is the position of the
    /// layer in the request, `indices` are indices among the vectors of the whole batch.
    fn of_layer(&self, number: usize, indices: &[usize]) -> Vec<f32> {
        indices.iter().flat_map(|index| self.of_vector(&self.layers[number], *index)).copied().collect()
    }

    /// Whether any of these captured vectors, given by index among those of the whole batch, has a seed other than 0 in
    /// any layer.
    fn has_any(&self, mut indices: impl Iterator<Item = usize>) -> bool {
        let is_seeded =
            |index| self.layers.iter().any(|layer| self.of_vector(layer, index).iter().any(|seed| *seed != 0.0));
        indices.any(is_seeded)
    }
}

impl Policy {
    /// Captures activations as [`capture`](Self::capture) does through [`View::Policy`], to learn from them: adapter
    /// dropout and the noise on embeddings apply, and activations are saved for
    /// [`backward_captured`](Self::backward_captured) by the rules of [`score`](Self::score). Advances the counter that
    /// names dropout masks and noise by the number of slices, also if it fails later.
    ///
    /// # Errors
    /// Those of [`capture`](Self::capture).
    pub fn capture_for_learning(
        &self,
        rows: &Arc<Rows>,
        layers: &[usize],
        site: Site,
        token: Token,
    ) -> Result<Captured> {
        let request = CaptureRequest::new(rows, layers, site, token, &self.model.configuration)?;
        let CaptureResult { values, learning_pass, passes } = self.run_capture(&View::Policy, rows, &request, true)?;
        Ok(Captured {
            rows: Arc::clone(rows),
            values,
            generation: self.generation,
            request,
            learning_pass,
            passes,
            patches: self.patches.clone(),
        })
    }

    /// Adds Σ seed · d(activation)/d(parameter) to the flat gradient; `seeds`, of the shape of the captured values, are
    /// the gradients of a loss with respect to them. Seeds at tokens that are not captured are ignored. Consumes the
    /// saved activations of `captured`. A slice of the rows that has none runs its forward pass again, with the dropout
    /// masks, the noise and the patches of the first time, so with the same result; at a second call every slice does.
    /// Skips slices whose seeds are all 0. If nothing is trained up to the highest captured layer, checks the
    /// arguments, frees the saved activations and does nothing else.
    ///
    /// # Errors
    /// When the activations were captured before the last update, seeds have another shape, or the deadline has passed.
    /// If a slice fails, the gradient has the terms of the slices before it.
    pub fn backward_captured(&self, captured: &mut Captured, seeds: &Tensor) -> Result<()> {
        self.check_generation(captured.generation, ["captured", "capture"])?;
        let (found, wanted) = (seeds.dims(), captured.values.dims());
        if found != wanted {
            let message = format!("seeds of shape {found:?} for captured activations of shape {wanted:?}");
            return Err(Error::Argument(message));
        }
        let kept = std::mem::take(&mut captured.passes);
        let request = &captured.request;
        if !self.trains_below(request.last + 1) {
            return Ok(());
        }
        let share = self.shares_prefixes(&View::Policy, true);
        let length = |row| request.length(row);
        let slices = self.divided_slices(&captured.rows, &View::Policy, (true, share), length);
        let kept = kept.into_iter().chain(std::iter::repeat_with(|| None));
        for ((slice, number), kept) in slices.iter().zip(0_u64..).zip(kept) {
            let seeds = SliceSeeds::read(seeds, request, &slice.rows)?;
            let vectors = slice.rows.clone().flat_map(|row| request.vectors(row));
            if !seeds.has_any(vectors.map(|(index, _)| index)) {
                continue;
            }
            let sums = self.backward_captured_slice((captured, number), slice, (kept, share), &seeds);
            self.add_gradient(&slice.parts, sums)?;
        }
        Ok(())
    }

    /// Runs the backward pass over this rank's parts of slice `number`. Runs the forward pass first if `kept`, what
    /// that pass saved, is `None`; else frees `kept` at the end. Runs neither pass if all seeds of these parts are 0.
    /// `share` says whether common prefixes run once. Returns the sums of the gradient, which are in the flat gradient
    /// already unless passes for learning are divided among ranks.
    fn backward_captured_slice(
        &self,
        (captured, number): (&Captured, u64),
        slice: &DividedSlice,
        (kept, share): (Option<CapturePass>, bool),
        seeds: &SliceSeeds,
    ) -> Result<GradientSums<'_>> {
        let request = &captured.request;
        let pass = match kept {
            Some(pass) => pass,
            None => {
                let configuration = &self.model.configuration;
                let packed = CapturePacking::new(&captured.rows, slice, request, share, configuration)?;
                if !seeds.has_any(packed.indices.iter().copied()) {
                    return self.gradient_sums(packed.packing.parts);
                }
                let (network, recompute) = (self.captured_network(captured, number, &packed)?, self.settings.recompute);
                let (_, blocks) = stack::forward_saving(&network, &packed.packing, request.last, recompute)?;
                CapturePass { packed, blocks, reservation: None }
            }
        };
        let CapturePass { packed, blocks, reservation: _reservation } = pass;
        let gradients = self.gradient_sums(packed.packing.parts.clone())?;
        if !seeds.has_any(packed.indices.iter().copied()) {
            return Ok(gradients);
        }
        let gradient = |(number, layer): (usize, &usize)| {
            let seeds = seeds.of_layer(number, &packed.indices);
            (*layer, Arc::new(ActivationGradient::new(&packed.selection, seeds)))
        };
        let layers = request.layers.iter().enumerate().map(gradient).collect();
        let read_gradients = AtSite { site: request.site, layers };
        let network = self.captured_network(captured, number, &packed)?;
        let network = Network { read_gradients: Some(&read_gradients), ..network };
        // Nothing above the highest captured layer has a gradient.
        let upstream = stack::zeros(&network, &packed.packing)?;
        stack::backward(&network, &packed.packing, blocks, upstream, &gradients)?;
        Ok(gradients)
    }

    /// Builds the network of [`View::Policy`] for a pass over slice `number`, with the patches, dropout masks and noise
    /// of the capture.
    fn captured_network<'a>(
        &'a self,
        captured: &'a Captured,
        number: u64,
        packed: &CapturePacking,
    ) -> Result<Network<'a>> {
        let learning_pass = slice_pass(captured.learning_pass, number);
        let network = self.learning_network(&View::Policy, learning_pass, &packed.packing)?;
        Ok(Network { patches: &captured.patches, ..network })
    }
}
