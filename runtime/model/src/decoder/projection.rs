//! Several linear maps that read the same rows: query, key and value, or gate and up.
//! A checkpoint may store them apart or as one matrix; the block sees parts either way.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, LinearInput};
use tunebox_compute::parameters::Parameters;

use super::linear::{Linear, SavedLinear};
use crate::error::{Error, Result};

/// Linear maps over one input.
#[derive(Debug, Clone)]
pub(crate) enum Projection {
    /// One matrix for each part.
    Apart(Vec<Linear>),
    /// One matrix whose output is cut into parts of these widths.
    Joined { linear: Linear, widths: Vec<usize> },
}

impl Projection {
    /// Whether any of the linear maps is trained.
    pub(crate) fn is_trained(&self) -> bool {
        match self {
            Self::Apart(linears) => linears.iter().any(Linear::is_trained),
            Self::Joined { linear, .. } => linear.is_trained(),
        }
    }

    /// Applies the maps to `[tokens, in]`. Returns the parts, each `[tokens, width]`, and what the backward pass of
    /// each map needs. Errors: another number of parts than `PARTS`.
    pub(crate) fn forward<const PARTS: usize>(&self, input: &Tensor) -> Result<([Tensor; PARTS], Vec<SavedLinear>)> {
        let (parts, saved) = match self {
            Self::Apart(linears) => {
                let mut parts = Vec::with_capacity(linears.len());
                let mut saved = Vec::with_capacity(linears.len());
                let few = LinearInput::of(input);
                for linear in linears {
                    let (part, own) = if linear.decoding {
                        (linear.forward_few(&few)?, SavedLinear::default())
                    } else {
                        linear.forward(input)?
                    };
                    parts.push(part);
                    saved.push(own);
                }
                (parts, saved)
            }
            Self::Joined { linear, widths } => {
                let (joined, saved) = linear.forward(input)?;
                (fused::split_columns(&joined, widths)?, vec![saved])
            }
        };
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
        match self {
            Self::Apart(linears) => {
                let mut total: Option<Tensor> = None;
                for ((linear, upstream), saved) in linears.iter().zip(upstream).zip(saved) {
                    let found = linear.backward(upstream, input, saved, want_input, gradients)?;
                    total = match (total, found) {
                        (Some(total), Some(found)) => Some(fused::add(&total, &found)?),
                        (total, found) => total.or(found),
                    };
                }
                Ok(total)
            }
            Self::Joined { linear, .. } => {
                let joined = fused::concat_columns(upstream)?;
                let saved = saved.first().cloned().unwrap_or_default();
                linear.backward(&joined, input, &saved, want_input, gradients)
            }
        }
    }
}
