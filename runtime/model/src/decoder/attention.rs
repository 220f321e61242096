//! The attention half of a block, forward and backward:
//! x + post(output(attention(rope(norm(q)), rope(norm(k)), v))) with q, k, v = projections(norm(x)). A family may have
//! no norm of x. Leaves the arithmetic to `fused`. Decoding with a key-value cache calls `project` and `output`;
//! patches change what the output projection gives.

use std::sync::Arc;

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, AttentionShape, Indices, RopeTable, Segments};
use tunebox_compute::parameters::GradientSums;
use tunebox_compute::precision::bytes;

use super::linear::SavedLinear;
use super::norm::{InputNorm, Norm, saved_bytes};
use super::projection::{Projection, ResidualOutput, SavedOutput};
use crate::error::Result;

/// The attention half of one block, with the weights and the adapter of one view of the model.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    pub(crate) input_norm: InputNorm,
    pub(crate) projection: Projection,
    /// Norms of queries and keys, of each head (Qwen3, Gemma 3) or of all features together (OLMo 2).
    pub(crate) query_norm: Option<Norm>,
    pub(crate) key_norm: Option<Norm>,
    pub(crate) output: ResidualOutput,
    /// `None` in a layer without position encoding.
    pub(crate) rope: Option<Arc<RopeTable>>,
    pub(crate) shape: AttentionShape,
}

/// Queries and keys after norm and rotation, values as projected.
#[derive(Debug, Clone)]
pub(crate) struct Projected {
    /// 1/rms of each row of the half's input, `[tokens]`; `None` without a norm of it.
    input_inverse: Option<Tensor>,
    /// What each linear map saved for its backward pass.
    linears: Vec<SavedLinear>,
    pub(crate) query: Rotated,
    pub(crate) key: Rotated,
    /// `[tokens, kv_heads · head_dim]`.
    pub(crate) value: Tensor,
}

/// Queries or keys before their norm and after their rotation.
#[derive(Debug, Clone)]
pub(crate) struct Rotated {
    /// The rows before the norm of each head, and 1/rms of each head; `None` without such a norm.
    before: Option<(Tensor, Tensor)>,
    /// The rows normed and rotated, `[tokens, heads · head_dim]`.
    pub(crate) after: Tensor,
}

/// What the backward pass of the attention half needs beside its input.
#[derive(Debug)]
pub(crate) struct SavedAttention {
    projected: Projected,
    /// The attention's result before the output projection, `[tokens, heads · head_dim]`.
    attended: Tensor,
    /// log Σ exp of the scores, `[tokens, heads]`.
    log_sums: Tensor,
    output: SavedOutput,
}

impl SavedAttention {
    /// The bytes of all saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        let rotated = |side: &Rotated| bytes(&side.after) + saved_bytes(side.before.as_ref());
        let Projected { input_inverse, linears, query, key, value } = &self.projected;
        let rows: usize = [value, &self.attended, &self.log_sums].map(bytes).iter().sum();
        let rows = rows + input_inverse.as_ref().map_or(0, bytes);
        let linears: usize = linears.iter().map(SavedLinear::bytes).sum();
        rows + rotated(query) + rotated(key) + linears + self.output.bytes()
    }
}

impl Attention {
    /// Whether any weight of this half is trained.
    pub(crate) fn is_trained(&self) -> bool {
        self.trains_before_attention() || self.output.is_trained()
    }

    /// Whether the input norm, the query, key and value projections or the head norms have trained weights.
    fn trains_before_attention(&self) -> bool {
        self.projection.is_trained()
            || self.input_norm.is_trained()
            || [&self.query_norm, &self.key_norm].into_iter().flatten().any(Norm::is_trained)
    }

    /// Runs the attention half over packed rows `[tokens, hidden]`. `positions` holds each token's row in the rotation
    /// table; `segments` says which tokens each token attends to. Returns the residual stream `[tokens, hidden]` after
    /// the half, and what the backward pass needs.
    pub(crate) fn forward(
        &self,
        input: &Tensor,
        positions: &Indices,
        segments: &Segments,
    ) -> Result<(Tensor, SavedAttention)> {
        let projected = self.project(input, positions)?;
        let (attended, log_sums) =
            fused::attention(&projected.query.after, &projected.key.after, &projected.value, segments, &self.shape)?;
        let (stream, output) = self.output.forward(input, &attended)?;
        Ok((stream, SavedAttention { projected, attended, log_sums, output }))
    }

    /// Applies the input norm, if there is one, to `input` `[tokens, hidden]` and projects it to queries, keys and
    /// values. Then applies the head norms, if the model has them, and the rotation to queries and keys. `positions`
    /// holds each token's row in the rotation table. Runs no attention.
    pub(crate) fn project(&self, input: &Tensor, positions: &Indices) -> Result<Projected> {
        let (normed, input_inverse) = self.input_norm.forward(input)?;
        let ([query, key, value], linears) = self.projection.forward(&normed)?;
        let (heads, kv_heads) = (self.shape.heads, self.shape.kv_heads);
        let query = self.norm_and_rotate(query, self.query_norm.as_ref(), heads, positions)?;
        let key = self.norm_and_rotate(key, self.key_norm.as_ref(), kv_heads, positions)?;
        Ok(Projected { input_inverse, linears, query, key, value })
    }

    /// Normalizes each head of `rows` `[tokens, heads · head_dim]` if `norm` is given, then rotates each head by its
    /// token's row of the rotation table if the layer has one. With a norm, also returns the rows before the norm and
    /// 1/rms of each head.
    fn norm_and_rotate(&self, rows: Tensor, norm: Option<&Norm>, heads: usize, positions: &Indices) -> Result<Rotated> {
        let (rows, before) = match norm {
            Some(norm) => {
                let (normed, inverse) = norm.forward_heads(&rows)?;
                (normed, Some((rows, inverse)))
            }
            None => (rows, None),
        };
        let after = match &self.rope {
            Some(table) => fused::rope(&rows, heads, positions, table, false)?,
            None => rows,
        };
        Ok(Rotated { before, after })
    }

    /// Runs the backward pass of the attention half: `upstream` `[tokens, hidden]` is the gradient of the half's
    /// output, `input` and `saved` are those of the forward pass. Adds the gradients of trained weights to
    /// `context.gradients`. Returns the gradient of `input`, the residual connection included; `None` unless
    /// `context.want_input` is set or the input norm is trained. Computes nothing if `context.want_input` is not set
    /// and no weight of the half is trained.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        input: &Tensor,
        saved: &SavedAttention,
        context: &Context<'_>,
    ) -> Result<Option<Tensor>> {
        if !context.want_input && !self.is_trained() {
            return Ok(None);
        }
        let deeper = context.want_input || self.trains_before_attention();
        let rows = |_: Option<&Tensor>| Ok(saved.attended.clone());
        let attended = self.output.backward(upstream, rows, &saved.output, deeper, context.gradients)?;
        let Some(attended) = attended else { return Ok(None) };
        let projected = &saved.projected;
        let (query, key, value) = fused::attention_backward(
            &attended,
            &projected.query.after,
            &projected.key.after,
            &projected.value,
            &saved.attended,
            &saved.log_sums,
            context.segments,
            &self.shape,
        )?;
        let (heads, kv_heads) = (self.shape.heads, self.shape.kv_heads);
        let query = self.norm_and_rotate_backward(query, &projected.query, self.query_norm.as_ref(), heads, context)?;
        let key = self.norm_and_rotate_backward(key, &projected.key, self.key_norm.as_ref(), kv_heads, context)?;
        let (normed, _) = self.input_norm.forward(input)?;
        let want = context.want_input || self.input_norm.is_trained();
        let parts = [query, key, value];
        let found = self.projection.backward(&parts, &normed, &projected.linears, want, context.gradients)?;
        let Some(found) = found else { return Ok(None) };
        let inverse = projected.input_inverse.as_ref();
        Ok(Some(self.input_norm.backward(&found, input, inverse, upstream, context.gradients)?))
    }

    /// Returns the gradient of the projected queries or keys, from `upstream`, the gradient after norm and rotation.
    /// Rotates back if the layer has a rotation, then runs the head norm's backward pass if there is a norm. Adds a
    /// trained head norm's gradient to `context.gradients`.
    fn norm_and_rotate_backward(
        &self,
        upstream: Tensor,
        saved: &Rotated,
        norm: Option<&Norm>,
        heads: usize,
        context: &Context<'_>,
    ) -> Result<Tensor> {
        let upstream = match &self.rope {
            Some(table) => fused::rope(&upstream, heads, context.positions, table, true)?,
            None => upstream,
        };
        match (norm, &saved.before) {
            (Some(norm), Some((rows, inverse))) => norm.backward_heads(&upstream, rows, inverse, context.gradients),
            _ => Ok(upstream),
        }
    }
}

/// The arguments that all parts of a block's backward pass share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    /// For each token: its row in the rotation tables.
    pub(crate) positions: &'a Indices,
    /// Which tokens each token attends to.
    pub(crate) segments: &'a Segments,
    /// Where gradients are added.
    pub(crate) gradients: &'a GradientSums<'a>,
    /// Whether the caller needs the gradient of this part's input, because something before the part is trained.
    pub(crate) want_input: bool,
}
