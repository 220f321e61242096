//! Several linear maps that read the same rows: query, key and value, or gate and up.
//! A checkpoint may store them apart or as one matrix; the block sees parts either way.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, LinearInput};
use tunebox_compute::parameters::Parameters;

use super::linear::{Linear, SavedLinear};
use crate::error::{Error, Result};

/// Linear maps over one input.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    /// One map for each part, or one for all parts.
    pub(crate) linears: Vec<Linear>,
    /// The widths of the parts into which the output of one map for all is cut; empty if each part has its own map.
    pub(crate) widths: Vec<usize>,
}

impl Projection {
    /// Whether any of the linear maps is trained.
    pub(crate) fn is_trained(&self) -> bool {
        self.linears.iter().any(Linear::is_trained)
    }

    /// Applies the maps to `[tokens, in]`. Returns the parts, each `[tokens, width]`, and what the backward pass of
    /// each map needs. Errors: another number of parts than `PARTS`.
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

    /// Adds the gradients of trained weights to `gradients`. Returns the gradient of the input, summed over the parts,
    /// if `want_input`, else `None`.
    pub(crate) fn backward(
        &self,
        upstream: &[Tensor],
        input: &Tensor,
        saved: &[SavedLinear],
        want_input: bool,
        gradients: &Parameters,
    ) -> Result<Option<Tensor>> {
        let joined = if self.widths.is_empty() { None } else { Some(fused::concat_columns(upstream)?) };
        let upstream = joined.as_ref().map_or(upstream, std::slice::from_ref);
        let mut total: Option<Tensor> = None;
        for ((linear, upstream), saved) in self.linears.iter().zip(upstream).zip(saved) {
            let found = linear.backward(upstream, input, saved, want_input, gradients)?;
            total = match (total, found) {
                (Some(total), Some(found)) => Some(fused::add(&total, &found)?),
                (total, found) => total.or(found),
            };
        }
        Ok(total)
    }
}
