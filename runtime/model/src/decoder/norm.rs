//! Root-mean-square normalization with a weight, over rows or over heads.
//! `fused` computes it; this file adds the gradient of a trained weight to the parameters.

use tunebox_compute::parameters::GradientSums;
use tunebox_compute::precision::bytes;
use tunebox_compute::{Tensor, fused};

use crate::error::Result;

/// One RMS norm of the model.
#[derive(Debug, Clone)]
pub(crate) struct Norm {
    /// `[width]`, `f32`.
    pub(crate) weight: Tensor,
    /// The weight's slot in the parameters; `None` if it is frozen.
    pub(crate) slot: Option<usize>,
    pub(crate) epsilon: f64,
    /// Whether the factor is 1 + weight (Gemma).
    pub(crate) unit_offset: bool,
}

impl Norm {
    /// Whether the weight is trained.
    pub(crate) fn is_trained(&self) -> bool {
        self.slot.is_some()
    }

    /// Normalizes rows `[rows, width]`. Returns them, and 1/rms of each row.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok(fused::rms_norm(input, &self.weight, self.epsilon, self.unit_offset)?)
    }

    /// Returns the gradient of the input `[rows, width]`, from `upstream`, that of the output; `inverse` is 1/rms of
    /// each row. Adds `residual`, the gradient through the connection around the norm, if given. Adds the weight's
    /// gradient to `gradients` if it is trained.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        input: &Tensor,
        inverse: &Tensor,
        residual: Option<&Tensor>,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        if let Some(slot) = self.slot {
            let weight = fused::rms_norm_weight_gradient(upstream, input, inverse)?;
            gradients.accumulate(slot, &weight)?;
        }
        Ok(fused::rms_norm_backward(upstream, input, &self.weight, inverse, self.unit_offset, residual)?)
    }

    /// Normalizes each head of `[tokens, heads · width]`; returns the rows and 1/rms of each head.
    pub(crate) fn forward_heads(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        let (output, inverse) = self.forward(&self.by_head(input)?)?;
        Ok((output.reshape(input.shape())?, inverse))
    }

    /// Returns the gradient of the input of [`Norm::forward_heads`], `[tokens, heads · width]`, from `upstream`, that
    /// of its output. Adds the weight's gradient to `gradients` if it is trained.
    pub(crate) fn backward_heads(
        &self,
        upstream: &Tensor,
        input: &Tensor,
        inverse: &Tensor,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        let heads = self.by_head(input)?;
        let output = self.backward(&self.by_head(upstream)?, &heads, inverse, None, gradients)?;
        Ok(output.reshape(input.shape())?)
    }

    /// Reshapes `[tokens, heads · width]` to `[tokens · heads, width]`.
    fn by_head(&self, rows: &Tensor) -> Result<Tensor> {
        let width = self.weight.elem_count();
        Ok(rows.reshape((rows.elem_count() / width.max(1), width))?)
    }
}

/// The norm of what a part of a block reads; `None` if the part reads the residual stream itself.
#[derive(Debug, Clone)]
pub(crate) struct InputNorm(pub(crate) Option<Norm>);

impl InputNorm {
    /// Whether there is a norm whose weight is trained.
    pub(crate) fn is_trained(&self) -> bool {
        self.0.as_ref().is_some_and(Norm::is_trained)
    }

    /// Normalizes rows `[rows, width]`. Returns them, and 1/rms of each row; without a norm the rows as they are, and
    /// `None`.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let Some(norm) = &self.0 else { return Ok((input.clone(), None)) };
        let (normed, inverse) = norm.forward(input)?;
        Ok((normed, Some(inverse)))
    }

    /// Returns the gradient of the input `[rows, width]`: that through the norm, from `upstream`, plus `residual`, that
    /// through the connection around the part. `inverse` is what [`Self::forward`] returned. Adds the weight's gradient
    /// to `gradients` if it is trained.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        input: &Tensor,
        inverse: Option<&Tensor>,
        residual: &Tensor,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        match (&self.0, inverse) {
            (Some(norm), Some(inverse)) => norm.backward(upstream, input, inverse, Some(residual), gradients),
            _ => Ok(fused::add(residual, upstream)?),
        }
    }
}

/// The bytes of saved rows and their 1/rms; 0 for `None`.
pub(super) fn saved_bytes(saved: Option<&(Tensor, Tensor)>) -> usize {
    saved.map_or(0, |(rows, inverse)| bytes(rows) + bytes(inverse))
}
