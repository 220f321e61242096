//! The end of both halves of a block: input + norm(hook(linear(rows))), forward and backward.

use tunebox_compute::parameters::Parameters;
use tunebox_compute::{Tensor, fused};

use super::hook::Hook;
use super::linear::{Linear, SavedLinear};
use super::norm::{Norm, saved_bytes};
use crate::error::Result;

/// The output projection of attention or feed-forward, and the way back into the residual stream.
#[derive(Debug, Clone)]
pub(crate) struct ResidualOutput {
    pub(crate) linear: Linear,
    /// What the projection gives.
    pub(crate) hook: Hook,
    /// Gemma's second norm.
    pub(crate) norm: Option<Norm>,
}

/// What the backward pass of a [`ResidualOutput`] needs beside its rows.
#[derive(Debug)]
pub(crate) struct SavedOutput {
    linear: SavedLinear,
    /// The rows before the norm, and 1/rms.
    before_norm: Option<(Tensor, Tensor)>,
}

impl SavedOutput {
    /// The bytes of all saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        self.linear.bytes() + saved_bytes(self.before_norm.as_ref())
    }
}

impl ResidualOutput {
    /// Whether the projection or the norm has trained weights.
    pub(crate) fn is_trained(&self) -> bool {
        self.linear.is_trained() || self.norm.as_ref().is_some_and(Norm::is_trained)
    }

    /// Projects `rows`, applies hook and norm, and adds the result to `input`. Returns the stream `[tokens, hidden]`,
    /// and what the backward pass needs.
    pub(crate) fn forward(&self, input: &Tensor, rows: &Tensor) -> Result<(Tensor, SavedOutput)> {
        let (output, linear) = self.linear.forward(rows)?;
        let output = self.hook.forward(output)?;
        let Some(norm) = &self.norm else {
            return Ok((fused::add(input, &output)?, SavedOutput { linear, before_norm: None }));
        };
        let (normed, inverse) = norm.forward(&output)?;
        Ok((fused::add(input, &normed)?, SavedOutput { linear, before_norm: Some((output, inverse)) }))
    }

    /// Adds the gradients of the norm and the projection, if they are trained, to `gradients`, from the gradient of the
    /// stream. Returns the gradient of `rows` if `want_rows`, else `None`.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        rows: &Tensor,
        saved: &SavedOutput,
        want_rows: bool,
        gradients: &Parameters,
    ) -> Result<Option<Tensor>> {
        let upstream = match (&self.norm, &saved.before_norm) {
            (Some(norm), Some((rows, inverse))) => norm.backward(upstream, rows, inverse, gradients)?,
            _ => upstream.clone(),
        };
        let upstream = self.hook.backward(upstream)?;
        self.linear.backward(&upstream, rows, &saved.linear, want_rows, gradients)
    }
}
