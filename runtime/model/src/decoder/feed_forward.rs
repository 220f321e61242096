//! The feed-forward half of a block, forward and backward:
//! x + post(down(activation(gate) ⊙ up)) with gate, up = projections(norm(x)), or the half of `experts`. A family may
//! have no norm of x.
//! Leaves the arithmetic to `fused`.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Activation};
use tunebox_compute::precision::bytes;

use super::attention::Context;
use super::experts::{ExpertFeedForward, SavedExperts};
use super::linear::SavedLinear;
use super::norm::InputNorm;
use super::projection::{Projection, ResidualOutput, SavedOutput};
use crate::error::{Error, Result};

/// The feed-forward half of one block, with the weights and the adapter of one view of the model.
#[derive(Debug, Clone)]
pub(crate) enum FeedForward {
    /// Every token runs through the same matrices.
    Dense(DenseFeedForward),
    /// Every token runs through some of several experts.
    Experts(ExpertFeedForward),
}

/// What the backward pass of the feed-forward half needs.
#[derive(Debug)]
pub(crate) enum SavedFeedForward {
    Dense(SavedDense),
    Experts(SavedExperts),
}

impl SavedFeedForward {
    /// The bytes of all saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Dense(saved) => saved.bytes(),
            Self::Experts(saved) => saved.bytes(),
        }
    }
}

impl FeedForward {
    /// Runs the feed-forward half over `input` `[tokens, hidden]`. Returns the residual stream `[tokens, hidden]` after
    /// it, and what the backward pass needs.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<(Tensor, SavedFeedForward)> {
        Ok(match self {
            Self::Dense(half) => {
                let (stream, saved) = half.forward(input)?;
                (stream, SavedFeedForward::Dense(saved))
            }
            Self::Experts(half) => {
                let (stream, saved) = half.forward(input)?;
                (stream, SavedFeedForward::Experts(saved))
            }
        })
    }

    /// Runs the backward pass of the feed-forward half: `upstream` `[tokens, hidden]` is the gradient of the half's
    /// output. Adds the gradients of trained weights to `context.gradients`. Returns the gradient of the half's input,
    /// the residual connection included; `None` unless `context.want_input` is set or the input norm is trained.
    /// Computes nothing if `context.want_input` is not set and no weight of the half is trained. Errors: `saved` is of
    /// a half of the other kind.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        saved: &SavedFeedForward,
        context: &Context<'_>,
    ) -> Result<Option<Tensor>> {
        match (self, saved) {
            (Self::Dense(half), SavedFeedForward::Dense(saved)) => half.backward(upstream, saved, context),
            (Self::Experts(half), SavedFeedForward::Experts(saved)) => half.backward(upstream, saved, context),
            _ => Err(Error::Argument("the saved activations are of another kind of block".into())),
        }
    }
}

/// The feed-forward half of a block whose tokens all run through the same matrices.
#[derive(Debug, Clone)]
pub(crate) struct DenseFeedForward {
    pub(crate) input_norm: InputNorm,
    pub(crate) projection: Projection,
    pub(crate) output: ResidualOutput,
    pub(crate) activation: Activation,
}

/// What the backward pass of [`DenseFeedForward`] needs.
#[derive(Debug)]
pub(crate) struct SavedDense {
    /// The half's input, `[tokens, hidden]`.
    input: Tensor,
    /// 1/rms of each row of the input, `[tokens]`; `None` without a norm of it.
    input_inverse: Option<Tensor>,
    /// What the gate and up projections saved, one entry for each map.
    linears: Vec<SavedLinear>,
    /// The output of the gate projection before the activation, `[tokens, intermediate]`.
    gate: Tensor,
    /// The output of the up projection, `[tokens, intermediate]`.
    up: Tensor,
    /// What the down projection and its norm saved.
    output: SavedOutput,
}

impl SavedDense {
    /// The bytes of all saved tensors.
    fn bytes(&self) -> usize {
        let rows =
            bytes(&self.input) + self.input_inverse.as_ref().map_or(0, bytes) + bytes(&self.gate) + bytes(&self.up);
        let linears: usize = self.linears.iter().map(SavedLinear::bytes).sum();
        rows + linears + self.output.bytes()
    }
}

impl DenseFeedForward {
    /// Whether any weight of this half is trained.
    fn is_trained(&self) -> bool {
        self.projection.is_trained() || self.input_norm.is_trained() || self.output.is_trained()
    }

    /// Runs the half over `input` `[tokens, hidden]`; see [`FeedForward::forward`].
    fn forward(&self, input: &Tensor) -> Result<(Tensor, SavedDense)> {
        let (normed, input_inverse) = self.input_norm.forward(input)?;
        let ([gate, up], linears) = self.projection.forward(&normed)?;
        let inner = fused::gated(&gate, &up, self.activation)?;
        let (stream, output) = self.output.forward(input, &inner)?;
        let saved = SavedDense { input: input.clone(), input_inverse, linears, gate, up, output };
        Ok((stream, saved))
    }

    /// Runs the backward pass of the half; see [`FeedForward::backward`].
    fn backward(&self, upstream: &Tensor, saved: &SavedDense, context: &Context<'_>) -> Result<Option<Tensor>> {
        if !context.want_input && !self.is_trained() {
            return Ok(None);
        }
        let gradients = context.gradients;
        let want = context.want_input || self.input_norm.is_trained();
        let deeper = want || self.projection.is_trained();
        let (gate, up, activation) = (&saved.gate, &saved.up, self.activation);
        let mut parts = None;
        // The rows of the output projection are computed again, together with the gradients of gate and up.
        let rows = |found: Option<&Tensor>| -> Result<Tensor> {
            let Some(found) = found else { return Ok(fused::gated(gate, up, activation)?) };
            let (dgate, dup, rows) = fused::gated_backward_with_result(found, gate, up, activation)?;
            parts = Some((dgate, dup));
            Ok(rows)
        };
        let Some(found) = self.output.backward(upstream, rows, &saved.output, deeper, gradients)? else {
            return Ok(None);
        };
        let (gate, up) = parts.map_or_else(|| fused::gated_backward(&found, gate, up, activation), Ok)?;
        drop(found);
        let (normed, _) = self.input_norm.forward(&saved.input)?;
        let found = self.projection.backward(&[gate, up], &normed, &saved.linears, want, gradients)?;
        let Some(found) = found else { return Ok(None) };
        let inverse = saved.input_inverse.as_ref();
        Ok(Some(self.input_norm.backward(&found, &saved.input, inverse, upstream, gradients)?))
    }
}
