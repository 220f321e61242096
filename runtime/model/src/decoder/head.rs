//! The end of a pass: final norm and head over the rows that predict a target.
//! Leaves the tiles over the vocabulary to `fused`; logits are never stored whole.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, HeadOptions, HeadTaps, Indices, Tap, TapGradients, TapSet};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::precision::bytes;

use super::network::{Matrix, Network};
use super::norm::Norm;
use crate::error::Result;

/// The end of the model as one view sees it.
pub(crate) struct OutputHead {
    norm: Norm,
    matrix: Matrix,
    options: HeadOptions,
}

/// What the backward pass of the head needs.
#[derive(Debug)]
pub(crate) struct SavedHead {
    /// The rows that predict a target, before the norm.
    selected: Tensor,
    inverse: Tensor,
    /// The taps (log-probability and others) of each target, in the order of the targets.
    pub(crate) taps: HeadTaps,
    /// The gradient of each log-probability by its row, where the forward pass made it.
    slopes: Option<Tensor>,
}

impl SavedHead {
    /// The bytes of all saved values.
    pub(crate) fn bytes(&self) -> usize {
        let taps = 2 * size_of_val(self.taps.log_sum_exp.as_slice());
        bytes(&self.selected) + bytes(&self.inverse) + taps + self.slopes.as_ref().map_or(0, bytes)
    }
}

impl OutputHead {
    /// The final norm and output head of a network, with logits divided by `temperature`. `taps` says which values per
    /// target are computed.
    pub(crate) fn new(network: &Network<'_>, temperature: f32, taps: TapSet) -> Result<Self> {
        let configuration = &network.model.configuration;
        let options = HeadOptions {
            inverse_temperature: 1.0 / temperature,
            soft_cap: configuration.logit_soft_cap,
            logit_scale: configuration.logit_scale,
            taps,
            deadline: network.deadline,
        };
        Ok(Self { norm: network.norm("model.norm.weight")?, matrix: network.head()?, options })
    }

    /// Computes the taps of each target from the row of activations before it, `[targets, hidden]`. With `save`, and if
    /// the head is frozen and the mean log-probability is not tapped, also computes the gradients of the
    /// log-probabilities, so that the backward pass needs no logits unless a loss uses other taps.
    pub(crate) fn forward(&self, selected: Tensor, targets: &Indices, save: bool) -> Result<SavedHead> {
        let (normed, inverse) = self.norm.forward(&selected)?;
        let (weight, options) = (&self.matrix.weight, &self.options);
        let (taps, slopes) = if save && self.matrix.slot.is_none() && !options.taps.contains(Tap::MeanLogprob) {
            let (taps, slopes) = fused::head_taps_with_gradient(&normed, weight, targets, options)?;
            (taps, Some(slopes))
        } else {
            (fused::head_taps(&normed, weight, targets, options)?, None)
        };
        Ok(SavedHead { selected, inverse, taps, slopes })
    }

    /// The gradient of the selected rows from the gradients of the taps (`seeds`). Adds those of a trained head and
    /// norm to `gradients`.
    pub(crate) fn backward(
        &self,
        saved: &SavedHead,
        targets: &Indices,
        seeds: TapGradients<'_>,
        gradients: &Parameters,
    ) -> Result<Tensor> {
        let SavedHead { selected, taps, .. } = saved;
        let only_logprob = seeds.iter().all(|(tap, _)| tap == Tap::Logprob);
        let slopes = saved.slopes.as_ref().filter(|_| only_logprob).zip(seeds.get(Tap::Logprob));
        let upstream = if let Some((slopes, seeds)) = slopes {
            fused::scale_head_gradient(slopes, seeds, selected.dtype())?
        } else {
            let (normed, _) = self.norm.forward(selected)?;
            let Matrix { weight, slot } = &self.matrix;
            let (upstream, gradient) =
                fused::head_taps_backward(&normed, weight, targets, &self.options, taps, seeds, slot.is_some())?;
            if let (Some(slot), Some(gradient)) = (slot, gradient) {
                gradients.accumulate(*slot, &gradient)?;
            }
            upstream
        };
        self.norm.backward(&upstream, &saved.selected, &saved.inverse, gradients)
    }

    /// The logits `[rows, vocabulary]` of a few rows after scale, soft cap and division by the temperature.
    pub(crate) fn logits(&self, rows: &Tensor) -> Result<Tensor> {
        let (normed, _) = self.norm.forward(rows)?;
        Ok(fused::logits(&normed, &self.matrix.weight, &self.options)?)
    }
}
