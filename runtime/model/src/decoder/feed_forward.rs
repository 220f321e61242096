//! The feed-forward half of a block, forward and backward:
//! x + post(down(activation(gate) ⊙ up)) with gate, up = projections(norm(x)).
//! Leaves the arithmetic to `fused`.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Activation};
use tunebox_compute::precision::bytes;

use super::attention::Context;
use super::hook::Hook;
use super::linear::{Linear, SavedLinear};
use super::norm::Norm;
use super::projection::Projection;
use crate::error::{Error, Result};

/// The feed-forward part of one block as one view of the model sees it.
#[derive(Debug, Clone)]
pub(crate) struct FeedForward {
    pub(crate) input_norm: Norm,
    pub(crate) projection: Projection,
    pub(crate) down: Linear,
    /// What `down` gives.
    pub(crate) output_hook: Hook,
    /// Gemma's second norm, on the way back into the stream.
    pub(crate) output_norm: Option<Norm>,
    pub(crate) activation: Activation,
}

/// What the backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedFeedForward {
    input: Tensor,
    input_inverse: Tensor,
    linears: Vec<SavedLinear>,
    gate: Tensor,
    up: Tensor,
    down: SavedLinear,
    /// The rows before the second norm, and 1/rms.
    before_norm: Option<(Tensor, Tensor)>,
}

impl SavedFeedForward {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let norm = self.before_norm.as_ref();
        let rows = bytes(&self.input)
            + bytes(&self.input_inverse)
            + bytes(&self.gate)
            + bytes(&self.up)
            + norm.map_or(0, |(rows, inverse)| bytes(rows) + bytes(inverse));
        let linears: usize = self.linears.iter().map(SavedLinear::bytes).sum();
        rows + linears + self.down.bytes()
    }
}

impl FeedForward {
    /// Whether a backward pass has gradients to leave here.
    pub(crate) fn trains(&self) -> bool {
        self.projection.trains()
            || self.down.trains()
            || self.input_norm.slot.is_some()
            || self.output_norm.as_ref().is_some_and(|norm| norm.slot.is_some())
    }

    /// The half's output, the input included.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<(Tensor, SavedFeedForward)> {
        let (normed, input_inverse) = self.input_norm.forward(input)?;
        let (parts, linears) = self.projection.forward(&normed)?;
        let [gate, up] = two(parts)?;
        let inner = fused::gated(&gate, &up, self.activation)?;
        let (rows, down) = self.down.forward(&inner)?;
        let rows = self.output_hook.forward(rows)?;
        let (added, before_norm) = match &self.output_norm {
            Some(norm) => {
                let (normed, inverse) = norm.forward(&rows)?;
                (normed, Some((rows, inverse)))
            }
            None => (rows, None),
        };
        let output = fused::add(input, &added)?;
        let saved = SavedFeedForward { input: input.clone(), input_inverse, linears, gate, up, down, before_norm };
        Ok((output, saved))
    }

    /// The gradient of the half's input, residual included, if wanted.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        saved: &SavedFeedForward,
        context: &Context<'_>,
    ) -> Result<Option<Tensor>> {
        if !context.want_input && !self.trains() {
            return Ok(None);
        }
        let gradients = context.gradients;
        let rows = match (&self.output_norm, &saved.before_norm) {
            (Some(norm), Some((rows, inverse))) => norm.backward(upstream, rows, inverse, gradients)?,
            _ => upstream.clone(),
        };
        let rows = self.output_hook.backward(rows)?;
        let want = context.want_input || self.input_norm.slot.is_some();
        let deeper = want || self.projection.trains();
        let inner = fused::gated(&saved.gate, &saved.up, self.activation)?;
        let inner = self.down.backward(&rows, &inner, &saved.down, deeper, gradients)?;
        let Some(inner) = inner else { return Ok(None) };
        let (gate, up) = fused::gated_backward(&inner, &saved.gate, &saved.up, self.activation)?;
        drop(inner);
        let (normed, _) = self.input_norm.forward(&saved.input)?;
        let found = self.projection.backward(&[gate, up], &normed, &saved.linears, want, gradients)?;
        let Some(found) = found else { return Ok(None) };
        let inner = self.input_norm.backward(&found, &saved.input, &saved.input_inverse, gradients)?;
        Ok(Some(fused::add(upstream, &inner)?))
    }
}

fn two(parts: Vec<Tensor>) -> Result<[Tensor; 2]> {
    <[Tensor; 2]>::try_from(parts).map_err(|parts| {
        Error::Argument(format!("the feed-forward part needs `2` projections, its weights give `{}`", parts.len()))
    })
}
