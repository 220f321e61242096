//! The feed-forward half of a block with experts, forward and backward: x + Σ weight · expert(norm(x)) over the experts
//! that the router chooses for each token. An expert is down(activation(gate) ⊙ up). Leaves the arithmetic to `fused`.

use rayon::prelude::*;
use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Activation, ExpertTokens, Routes};
use tunebox_compute::parameters::GradientSums;
use tunebox_compute::precision::bytes;

use super::attention::Context;
use super::linear::{Linear, SavedLinear};
use super::norm::InputNorm;
use super::projection::{Projection, ResidualAddition, SavedAddition};
use crate::error::Result;

/// The feed-forward half of one block with experts, with the weights of one view of the model.
#[derive(Debug, Clone)]
pub(crate) struct ExpertFeedForward {
    pub(crate) input_norm: InputNorm,
    /// `[tokens, hidden] → [tokens, experts]`.
    pub(crate) router: Linear,
    pub(crate) experts: Vec<Expert>,
    /// The number of experts of a token.
    pub(crate) active: usize,
    /// Whether the weights of a token's experts are divided by their sum.
    pub(crate) normalized: bool,
    pub(crate) activation: Activation,
    pub(crate) addition: ResidualAddition,
}

/// The matrices of one expert. Without adapters.
#[derive(Debug, Clone)]
pub(crate) struct Expert {
    /// Gate and up.
    pub(crate) projection: Projection,
    pub(crate) down: Linear,
}

/// What the backward pass of [`ExpertFeedForward`] needs.
#[derive(Debug)]
pub(crate) struct SavedExperts {
    /// The half's input, `[tokens, hidden]`.
    input: Tensor,
    /// 1/rms of each row of the input, `[tokens]`; `None` without a norm of it.
    input_inverse: Option<Tensor>,
    /// The router's output, `[tokens, experts]`.
    logits: Tensor,
    routes: Routes,
    /// For each group of the routes, the outputs of the gate and the up projection, `[tokens of the group,
    /// intermediate]`.
    gates: Vec<[Tensor; 2]>,
    addition: SavedAddition,
}

impl SavedExperts {
    /// The bytes of all saved tensors and routes.
    pub(super) fn bytes(&self) -> usize {
        let rows = bytes(&self.input) + self.input_inverse.as_ref().map_or(0, bytes) + bytes(&self.logits);
        let gates: usize = self.gates.iter().flatten().map(bytes).sum();
        rows + gates + self.routes.bytes() + self.addition.bytes()
    }
}

/// The gradients of one expert's backward pass.
struct ExpertGradients {
    /// That of the rows that the expert read, `[tokens of the group, hidden]`.
    rows: Tensor,
    /// Those of the expert's weights in the sums of its tokens.
    weights: Vec<f32>,
}

impl Expert {
    /// Whether a matrix of the expert is trained.
    fn is_trained(&self) -> bool {
        self.projection.is_trained() || self.down.is_trained()
    }

    /// Runs the expert over the tokens of a group, rows of `normed` `[tokens, hidden]`. Returns its output `[tokens of
    /// the group, hidden]` and those of gate and up.
    fn forward(&self, normed: &Tensor, group: &ExpertTokens, activation: Activation) -> Result<(Tensor, [Tensor; 2])> {
        let rows = fused::gather_rows(normed, &group.tokens)?;
        let (parts, _) = self.projection.forward::<2>(&rows)?;
        let (output, _) = self.down.forward(&fused::gated(&parts[0], &parts[1], activation)?)?;
        Ok((output, parts))
    }

    /// Runs the backward pass of the expert over the tokens of a group: `upstream` `[tokens, hidden]` is the gradient
    /// of the sum over all experts, `parts` are the outputs of gate and up. Adds the gradients of trained matrices to
    /// `gradients`.
    fn backward(
        &self,
        upstream: &Tensor,
        normed: &Tensor,
        group: &ExpertTokens,
        [gate, up]: &[Tensor; 2],
        activation: Activation,
        gradients: &GradientSums<'_>,
    ) -> Result<ExpertGradients> {
        let upstream = fused::gather_rows(upstream, &group.tokens)?;
        let inner = fused::gated(gate, up, activation)?;
        // A row's weight w scales the product with the matrix: upstream·w and inner make the gradient that upstream and
        // inner·w make, and (upstream·down)·inner is the gradient of w.
        let rows = |_: Option<&Tensor>| Ok(fused::scale_rows(&inner, &group.weights)?);
        let found = self.down.backward(&upstream, rows, &SavedLinear::NOTHING, true, None, gradients)?;
        let found = found.map_or_else(|| inner.zeros_like(), Ok)?;
        let weights = fused::row_dots(&found, &inner)?;
        let found = fused::scale_rows(&found, &group.weights)?;
        let (gate, up) = fused::gated_backward(&found, gate, up, activation)?;
        let rows = fused::gather_rows(normed, &group.tokens)?;
        let saved = [SavedLinear::NOTHING, SavedLinear::NOTHING];
        let found = self.projection.backward(&[gate, up], &rows, &saved, true, gradients)?;
        Ok(ExpertGradients { rows: found.map_or_else(|| rows.zeros_like(), Ok)?, weights })
    }
}

impl ExpertFeedForward {
    /// Whether any weight of this half is trained.
    fn is_trained(&self) -> bool {
        self.input_norm.is_trained()
            || self.router.is_trained()
            || self.experts.iter().any(Expert::is_trained)
            || self.addition.is_trained()
    }

    /// Runs the half over `input` `[tokens, hidden]`; see [`FeedForward::forward`](super::feed_forward::FeedForward).
    pub(super) fn forward(&self, input: &Tensor) -> Result<(Tensor, SavedExperts)> {
        let (normed, input_inverse) = self.input_norm.forward(input)?;
        let (logits, _) = self.router.forward(&normed)?;
        let routes = fused::route(&logits, self.active, self.normalized)?;
        // One expert has too few tokens for all threads.
        let run = |group: &ExpertTokens| self.experts[group.expert].forward(&normed, group, self.activation);
        let found = routes.groups().par_iter().map(run).collect::<Result<Vec<_>>>()?;
        let (outputs, gates): (Vec<Tensor>, Vec<[Tensor; 2]>) = found.into_iter().unzip();
        let (stream, addition) = self.addition.forward(input, routes.mix(&outputs, input)?)?;
        Ok((stream, SavedExperts { input: input.clone(), input_inverse, logits, routes, gates, addition }))
    }

    /// Runs the backward pass of the half; see [`FeedForward::backward`](super::feed_forward::FeedForward).
    pub(super) fn backward(
        &self,
        upstream: &Tensor,
        saved: &SavedExperts,
        context: &Context<'_>,
    ) -> Result<Option<Tensor>> {
        if !context.want_input && !self.is_trained() {
            return Ok(None);
        }
        let (gradients, routes, logits) = (context.gradients, &saved.routes, &saved.logits);
        let output = self.addition.backward(upstream, &saved.addition, gradients)?;
        let (normed, _) = self.input_norm.forward(&saved.input)?;
        let run = |(group, parts): (&ExpertTokens, &[Tensor; 2])| {
            let expert = &self.experts[group.expert];
            expert.backward(&output, &normed, group, parts, self.activation, gradients)
        };
        let groups = routes.groups();
        // Gradients of trained matrices are added in place to one buffer, by one thread at a time.
        let found = match self.experts.iter().any(Expert::is_trained) {
            true => groups.iter().zip(&saved.gates).map(run).collect::<Result<Vec<_>>>()?,
            false => groups.par_iter().zip(&saved.gates).map(run).collect::<Result<Vec<_>>>()?,
        };
        let (rows, weights): (Vec<Tensor>, Vec<Vec<f32>>) =
            found.into_iter().map(|found| (found.rows, found.weights)).unzip();
        let total = routes.sum(&rows, &normed)?;
        drop(rows);
        let logits = routes.backward(logits, &weights)?;
        let read = |_: Option<&Tensor>| Ok(normed.clone());
        let found = self.router.backward(&logits, read, &SavedLinear::NOTHING, true, Some(total), gradients)?;
        let Some(found) = found.filter(|_| context.want_input || self.input_norm.is_trained()) else { return Ok(None) };
        let inverse = saved.input_inverse.as_ref();
        Ok(Some(self.input_norm.backward(&found, &saved.input, inverse, upstream, gradients)?))
    }
}
