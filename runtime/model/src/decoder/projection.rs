//! The linear maps of a half of a block: those that read the same rows (query, key and value, or gate and up), and the
//! output projection, input + scale · norm(hooks(linear(rows))).
//! A checkpoint may fuse the maps that read the same rows into one matrix; the block gets separate outputs either way.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, LinearInput};
use tunebox_compute::parameters::GradientSums;

use super::hook::SiteHooks;
use super::linear::{Linear, SavedLinear};
use super::norm::{Norm, saved_bytes};
use crate::error::{Error, Result};

/// Linear maps that read the same input.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    /// One map for each output, or one fused map for all of them.
    pub(crate) linears: Vec<Linear>,
    /// The widths of the outputs into which that of a fused map is split; empty if each output has its own map.
    pub(crate) widths: Vec<usize>,
}

impl Projection {
    /// Whether any of the linear maps is trained.
    pub(crate) fn is_trained(&self) -> bool {
        self.linears.iter().any(Linear::is_trained)
    }

    /// Applies the maps to `[tokens, in]`. Returns the `PARTS` outputs, each `[tokens, width]`, and what the backward
    /// pass of each map needs, one entry for each map. The output of a fused map is split by `widths`. Maps for
    /// decoding save nothing. Errors: the maps give another number of outputs than `PARTS`.
    pub(crate) fn forward<const PARTS: usize>(&self, input: &Tensor) -> Result<([Tensor; PARTS], Vec<SavedLinear>)> {
        let (mut parts, mut saved) = (Vec::with_capacity(PARTS), Vec::with_capacity(PARTS));
        let few = LinearInput::of(input);
        for linear in &self.linears {
            let (part, own) = if linear.decoding {
                (linear.forward_few(&few)?, SavedLinear::default())
            } else {
                linear.forward(input)?
            };
            parts.push(part);
            saved.push(own);
        }
        if let ([joined], [_, ..]) = (parts.as_slice(), self.widths.as_slice()) {
            parts = fused::split_columns(joined, &self.widths)?;
        }
        let parts = parts.try_into().map_err(|parts: Vec<Tensor>| {
            Error::Argument(format!("a block needs `{PARTS}` projections here, its weights give `{}`", parts.len()))
        })?;
        Ok((parts, saved))
    }

    /// Runs the backward pass; `upstream` has the gradient of each output, `[tokens, width]`, which are joined for a
    /// fused map. Adds the gradients of trained weights to `gradients`. Returns the gradient of the input `[tokens,
    /// in]`, summed over the outputs, if `want_input`, else `None`.
    pub(crate) fn backward(
        &self,
        upstream: &[Tensor],
        input: &Tensor,
        saved: &[SavedLinear],
        want_input: bool,
        gradients: &GradientSums<'_>,
    ) -> Result<Option<Tensor>> {
        let joined = if self.widths.is_empty() { None } else { Some(fused::concat_columns(upstream)?) };
        let upstream = joined.as_ref().map_or(upstream, std::slice::from_ref);
        let mut total: Option<Tensor> = None;
        for ((linear, upstream), saved) in self.linears.iter().zip(upstream).zip(saved) {
            let input = |_: Option<&Tensor>| Ok(input.clone());
            total = linear.backward(upstream, input, saved, want_input, total, gradients)?;
        }
        Ok(total)
    }
}

/// The output projection of attention or feed-forward, whose result is added to the residual stream.
#[derive(Debug, Clone)]
pub(crate) struct ResidualOutput {
    pub(crate) linear: Linear,
    pub(crate) addition: ResidualAddition,
}

/// How the output of attention or feed-forward is added to the residual stream: input + scale · norm(hooks(output)).
#[derive(Debug, Clone)]
pub(crate) struct ResidualAddition {
    /// The hooks of the output.
    pub(crate) hooks: SiteHooks,
    /// The norm of the output before it is added to the stream (Gemma, OLMo 2).
    pub(crate) norm: Option<Norm>,
    /// The scale (Granite), once for each feature, `[hidden]`, `f32`; `None` for 1.
    pub(crate) scale: Option<Tensor>,
}

/// What the backward pass of a [`ResidualOutput`] needs beside its rows.
#[derive(Debug)]
pub(crate) struct SavedOutput {
    linear: SavedLinear,
    addition: SavedAddition,
}

/// What the backward pass of a [`ResidualAddition`] needs.
#[derive(Debug)]
pub(crate) struct SavedAddition {
    /// The output before the norm, and 1/rms of each row; `None` without a norm.
    before_norm: Option<(Tensor, Tensor)>,
}

impl SavedOutput {
    /// The bytes of all saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        self.linear.bytes() + self.addition.bytes()
    }
}

impl SavedAddition {
    /// The bytes of all saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        saved_bytes(self.before_norm.as_ref())
    }
}

impl ResidualOutput {
    /// Whether the projection or the norm has trained weights.
    pub(crate) fn is_trained(&self) -> bool {
        self.linear.is_trained() || self.addition.is_trained()
    }

    /// Projects `rows` `[tokens, in]`, applies the hooks, then norm and scale, if there are any, and adds the result to
    /// `input` `[tokens, hidden]`. Returns the sum, the residual stream `[tokens, hidden]`, and what the backward pass
    /// needs.
    pub(crate) fn forward(&self, input: &Tensor, rows: &Tensor) -> Result<(Tensor, SavedOutput)> {
        let (output, linear) = self.linear.forward(rows)?;
        let (stream, addition) = self.addition.forward(input, output)?;
        Ok((stream, SavedOutput { linear, addition }))
    }

    /// Runs the backward pass through scale, norm, hooks and projection, but not through the residual connection;
    /// `upstream` `[tokens, hidden]` is the gradient of the stream, `rows` returns the input of the projection, see
    /// [`Linear::backward`]. Adds the gradients of the norm and the projection, if they are trained, to `gradients`.
    /// Returns the gradient of the rows if `want_rows`, else `None`.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        rows: impl FnOnce(Option<&Tensor>) -> Result<Tensor>,
        saved: &SavedOutput,
        want_rows: bool,
        gradients: &GradientSums<'_>,
    ) -> Result<Option<Tensor>> {
        let upstream = self.addition.backward(upstream, &saved.addition, gradients)?;
        self.linear.backward(&upstream, rows, &saved.linear, want_rows, None, gradients)
    }
}

impl ResidualAddition {
    /// Whether the norm is trained.
    pub(crate) fn is_trained(&self) -> bool {
        self.norm.as_ref().is_some_and(Norm::is_trained)
    }

    /// Applies the hooks, then norm and scale, if there are any, to `output` `[tokens, hidden]`, and adds the result to
    /// `input` `[tokens, hidden]`. Returns the sum, the residual stream, and what the backward pass needs.
    pub(crate) fn forward(&self, input: &Tensor, output: Tensor) -> Result<(Tensor, SavedAddition)> {
        let output = self.hooks.forward(output)?;
        let Some(norm) = &self.norm else {
            return Ok((fused::add(input, &self.scaled(&output)?)?, SavedAddition { before_norm: None }));
        };
        let (normed, inverse) = norm.forward(&output)?;
        Ok((fused::add(input, &self.scaled(&normed)?)?, SavedAddition { before_norm: Some((output, inverse)) }))
    }

    /// `rows` `[tokens, hidden]` times the scale, if there is one.
    fn scaled(&self, rows: &Tensor) -> Result<Tensor> {
        Ok(match &self.scale {
            Some(scale) => fused::scale_columns(rows, scale, None)?,
            None => rows.clone(),
        })
    }

    /// Runs the backward pass through scale, norm and hooks, but not through the residual connection: returns the
    /// gradient of the output `[tokens, hidden]` from `upstream`, that of the stream. Adds the gradient of a trained
    /// norm to `gradients`.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        saved: &SavedAddition,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        let upstream = self.scaled(upstream)?;
        let upstream = match (&self.norm, &saved.before_norm) {
            (Some(norm), Some((rows, inverse))) => norm.backward(&upstream, rows, inverse, None, gradients)?,
            _ => upstream,
        };
        self.hooks.backward(upstream)
    }
}
