//! The final norm and the output head, over the tokens that predict a target.
//! `fused` computes the logits in tiles over the vocabulary, so that a pass with taps never stores all of them.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, HeadInput, HeadOptions, HeadTaps, Indices, Tap, TapGradients, TapSet};
use tunebox_compute::parameters::GradientSums;
use tunebox_compute::precision::bytes;

use super::network::{Matrix, Network};
use super::norm::Norm;
use crate::error::{Error, Result};

/// The final norm and the output head, with the weights of one view of the model.
#[derive(Debug)]
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
    /// What the gradient of the divergence needs; `None` if none was computed.
    divergence: Option<SavedDivergence>,
}

/// What the gradient of each target's divergence needs.
#[derive(Debug)]
enum SavedDivergence {
    /// The gradient with respect to the normalized hidden state, `[targets, hidden]` f32.
    Slopes(Tensor),
    /// The other head, with which a trained head computes its gradient once the seeds are known.
    Other(OtherHead),
}

/// The head that a divergence is taken to, with what it reads.
#[derive(Debug)]
pub(crate) struct OtherHead {
    head: OutputHead,
    /// Normalized hidden states, `[targets, hidden]`.
    normed: Tensor,
    beta: f32,
}

impl OtherHead {
    /// Applies the final norm of `head` to the hidden states that predict the targets, `[targets, hidden]`. β is that
    /// of [`fused::head_divergence`].
    pub(crate) fn new(head: OutputHead, selected: &Tensor, beta: f32) -> Result<Self> {
        let (normed, _) = head.norm.forward(selected)?;
        Ok(Self { head, normed, beta })
    }
}

impl SavedHead {
    /// The bytes of the saved tensors, and of two values for each target: its logsumexp and its log-probability.
    /// Further taps are not counted.
    pub(crate) fn bytes(&self) -> usize {
        let taps = 2 * size_of_val(self.taps.logsumexp.as_slice());
        let divergence = match &self.divergence {
            Some(SavedDivergence::Slopes(tensor)) | Some(SavedDivergence::Other(OtherHead { normed: tensor, .. })) => {
                bytes(tensor)
            }
            None => 0,
        };
        bytes(&self.selected) + bytes(&self.inverse) + taps + self.slopes.as_ref().map_or(0, bytes) + divergence
    }
}

impl OutputHead {
    /// Builds the final norm and the output head of a network, with logits divided by `temperature`. `taps` says which
    /// values are computed for each target; the divergence among them is up to [`forward`](Self::forward).
    pub(crate) fn new(network: &Network<'_>, temperature: f32, taps: TapSet) -> Result<Self> {
        let configuration = &network.model.configuration;
        let options = HeadOptions {
            inverse_temperature: 1.0 / temperature,
            soft_cap: configuration.logit_soft_cap,
            logit_scale: configuration.logit_divisor.recip(),
            taps: taps.of_one_head(),
            deadline: network.deadline,
        };
        Ok(Self { norm: network.build_norm("model.norm.weight")?, matrix: network.head()?, options })
    }

    /// Applies the final norm to `selected` `[targets, hidden]`, the hidden states that predict the targets, and
    /// computes the taps of each target; `targets` holds their token ids. With `other`, also the divergence to that
    /// head.
    ///
    /// With `save`, a frozen head also computes the gradients that most losses need, so that the backward pass
    /// computes no logits: those of the divergences if there is `other`; else those of the log-probabilities, unless
    /// the mean log-probability was asked for. A loss on other taps makes the backward pass compute the logits again.
    pub(crate) fn forward(
        &self,
        selected: Tensor,
        targets: &Indices,
        save: bool,
        other: Option<OtherHead>,
    ) -> Result<SavedHead> {
        let (normed, inverse) = self.norm.forward(&selected)?;
        let (weight, options, frozen) = (&self.matrix.weight, &self.options, self.matrix.slot.is_none());
        let saves_slopes = save && frozen && other.is_none() && !options.taps.contains(Tap::MeanLogprob);
        let (mut taps, slopes) = if saves_slopes {
            let (taps, slopes) = fused::head_taps_with_gradient(&normed, weight, targets, options)?;
            (taps, Some(slopes))
        } else {
            (fused::head_taps(&normed, weight, targets, options)?, None)
        };
        let mut divergence = None;
        if let Some(other) = other {
            let ones = vec![1.0; targets.len()];
            let found = self.diverge(&normed, &other, (save && frozen).then_some(ones.as_slice()), false)?;
            taps.values.insert(Tap::Divergence, found.values);
            divergence = Some(found.hidden.map_or(SavedDivergence::Other(other), SavedDivergence::Slopes));
        }
        Ok(SavedHead { selected, inverse, taps, slopes, divergence })
    }

    /// Computes the divergence of each normalized hidden state's distribution to that of the other head, and, with
    /// `seeds`, the gradient of Σ seed·divergence with respect to the hidden states. `want_weight` adds the gradient
    /// with respect to this head's matrix.
    fn diverge(
        &self,
        normed: &Tensor,
        other: &OtherHead,
        seeds: Option<&[f32]>,
        want_weight: bool,
    ) -> Result<fused::Divergences> {
        let (own, to) = (self.input(normed), other.head.input(&other.normed));
        Ok(fused::head_divergence(own, to, other.beta, seeds, want_weight)?)
    }

    /// Pairs this head with normalized hidden states, `[targets, hidden]`, as one side of a divergence.
    fn input<'a>(&'a self, hidden: &'a Tensor) -> HeadInput<'a> {
        HeadInput { hidden, weight: (&self.matrix.weight).into(), options: &self.options }
    }

    /// Returns the gradient `[targets, hidden]` of a loss with respect to the selected hidden states, given the loss's
    /// gradients with respect to the taps (`seeds`). Scales the gradients that the forward pass saved where that is
    /// enough; else computes the logits again. Adds the gradients of the head and the final norm to `gradients` if they
    /// are trained.
    pub(crate) fn backward(
        &self,
        saved: &SavedHead,
        targets: &Indices,
        seeds: TapGradients<'_>,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        let own: TapGradients<'_> = seeds.into_iter().filter(|(tap, _)| *tap != Tap::Divergence).collect();
        let upstream = match seeds.get(Tap::Divergence) {
            None => self.taps_gradient(saved, targets, own, gradients)?,
            Some(seeds) => {
                let upstream = self.divergence_gradient(saved, seeds, gradients)?;
                match own.iter().next() {
                    Some(_) => fused::add(&upstream, &self.taps_gradient(saved, targets, own, gradients)?)?,
                    None => upstream,
                }
            }
        };
        self.norm.backward(&upstream, &saved.selected, &saved.inverse, None, gradients)
    }

    /// Returns the gradient of a loss of the taps of this head alone with respect to the normalized hidden states,
    /// `[targets, hidden]`. Adds that of the head to `gradients` if it is trained.
    fn taps_gradient(
        &self,
        saved: &SavedHead,
        targets: &Indices,
        seeds: TapGradients<'_>,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        let SavedHead { selected, taps, .. } = saved;
        let only_logprob = seeds.iter().all(|(tap, _)| tap == Tap::Logprob);
        let slopes = saved.slopes.as_ref().filter(|_| only_logprob).zip(seeds.get(Tap::Logprob));
        if let Some((slopes, seeds)) = slopes {
            return Ok(fused::scale_head_gradient(slopes, seeds, selected.dtype())?);
        }
        let (normed, _) = self.norm.forward(selected)?;
        let Matrix { weight, slot } = &self.matrix;
        let (upstream, gradient) =
            fused::head_taps_backward(&normed, weight, targets, &self.options, taps, seeds, slot.is_some())?;
        if let (Some(slot), Some(gradient)) = (slot, gradient) {
            gradients.accumulate(*slot, &gradient)?;
        }
        Ok(upstream)
    }

    /// Returns the gradient of Σ seed·divergence with respect to the normalized hidden states, `[targets, hidden]`.
    /// Adds that of the head to `gradients` if it is trained. Errors: the forward pass computed no divergence.
    fn divergence_gradient(&self, saved: &SavedHead, seeds: &[f32], gradients: &GradientSums<'_>) -> Result<Tensor> {
        let dtype = saved.selected.dtype();
        match &saved.divergence {
            Some(SavedDivergence::Slopes(slopes)) => Ok(fused::scale_head_gradient(slopes, seeds, dtype)?),
            Some(SavedDivergence::Other(other)) => {
                let (normed, _) = self.norm.forward(&saved.selected)?;
                let found = self.diverge(&normed, other, Some(seeds), self.matrix.slot.is_some())?;
                if let (Some(slot), Some(gradient)) = (self.matrix.slot, found.weight) {
                    gradients.accumulate(slot, &gradient)?;
                }
                let hidden = found.hidden.ok_or_else(|| Error::Argument("no token is a target".into()))?;
                Ok(fused::scale_head_gradient(&hidden, &vec![1.0; seeds.len()], dtype)?)
            }
            None => Err(Error::Argument("the rows were scored without a divergence".into())),
        }
    }

    /// Applies the final norm to a few hidden states `[rows, hidden]` and computes all their logits,
    /// `[rows, vocabulary]`, `f32`, after scale, soft cap and division by the temperature.
    pub(crate) fn logits(&self, rows: &Tensor) -> Result<Tensor> {
        let (normed, _) = self.norm.forward(rows)?;
        Ok(fused::logits(&normed, &self.matrix.weight, &self.options)?)
    }
}
