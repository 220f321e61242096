//! The final norm and the output head, over the tokens that predict a target.
//! `fused` computes the logits in tiles over the vocabulary, so that a pass with taps never stores all of them.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, HeadOptions, HeadTaps, Indices, Tap, TapGradients, TapSet};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::precision::bytes;

use super::network::{Matrix, Network};
use super::norm::Norm;
use crate::error::Result;

/// The final norm and the output head, with the weights of one view of the model.
pub(crate) struct OutputHead {
    norm: Norm,
    matrix: Matrix,
    options: HeadOptions,
}

/// What the backward pass of the final norm and the output head needs.
#[derive(Debug)]
pub(crate) struct SavedHead {
    /// The hidden states that predict a target, before the final norm: `[targets, hidden]`.
    selected: Tensor,
    /// 1/rms of each row of `selected`, `[targets]`.
    inverse: Tensor,
    /// The taps (log-probability and others) of each target, in the order of the targets.
    pub(crate) taps: HeadTaps,
    /// The gradient of each target's log-probability with respect to the normalized hidden state that predicts it:
    /// `[targets, hidden]`, `f32`; `None` if the forward pass did not compute it.
    slopes: Option<Tensor>,
}

impl SavedHead {
    /// The bytes of the saved tensors, and of two values for each target: its logsumexp and its log-probability.
    /// Further taps are not counted.
    pub(crate) fn bytes(&self) -> usize {
        let taps = 2 * size_of_val(self.taps.logsumexp.as_slice());
        bytes(&self.selected) + bytes(&self.inverse) + taps + self.slopes.as_ref().map_or(0, bytes)
    }
}

impl OutputHead {
    /// Builds the final norm and the output head of a network, with logits divided by `temperature`. `taps` says which
    /// values are computed for each target.
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

    /// Applies the final norm to `selected` `[targets, hidden]`, the hidden states that predict the targets, and computes
    /// the taps of each target; `targets` holds their token ids. With `save`, and if the head is frozen and the mean
    /// log-probability is not tapped, also computes the gradients of the log-probabilities, so that the backward pass
    /// needs no logits unless a loss uses other taps.
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

    /// Returns the gradient `[targets, hidden]` of a loss with respect to the selected hidden states, given the loss's
    /// gradients with respect to the taps (`seeds`). If the only seeds are those of the log-probability and the forward
    /// pass saved its gradients, scales these; else computes the logits again. Adds the gradients of the head and the
    /// final norm to `gradients` if they are trained.
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
        self.norm.backward(&upstream, &saved.selected, &saved.inverse, None, gradients)
    }

    /// Applies the final norm to a few hidden states `[rows, hidden]` and computes all their logits,
    /// `[rows, vocabulary]`, `f32`, after scale, soft cap and division by the temperature.
    pub(crate) fn logits(&self, rows: &Tensor) -> Result<Tensor> {
        let (normed, _) = self.norm.forward(rows)?;
        Ok(fused::logits(&normed, &self.matrix.weight, &self.options)?)
    }
}
