//! DoRA: the length of every row of an adapted weight, learned apart from its direction.
//! y = (m / n) ⊙ (x·(W + s·B·A)ᵀ) + b with n = ‖W + s·B·A‖ by row, taken as a constant in the
//! backward pass (Liu et al. 2024, section 4.3). Leaves the product itself to `linear`.

use tunebox_compute::fused::{self, LowRank};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::weight::Weight;
use tunebox_compute::{DType, Tensor, precision};

use crate::error::Result;

/// The learned lengths of one adapted weight.
#[derive(Debug, Clone)]
pub(crate) struct Magnitude {
    /// m, `[out]`, `f32`.
    pub(crate) value: Tensor,
    pub(crate) slot: usize,
    /// ‖W‖² of every row, `[out]`, `f32`; the base is frozen, so it is made once.
    pub(crate) base_squares: Tensor,
    /// ‖W + s·B·A‖ of every row where nothing will be learned before the last use: made once for all tokens written.
    pub(crate) norm: Option<Tensor>,
}

/// What the backward pass needs.
#[derive(Debug, Clone)]
pub(crate) struct SavedMagnitude {
    /// x·(W + s·B·A)ᵀ, `[tokens, out]`.
    product: Tensor,
    /// n, `[out]`.
    norm: Tensor,
}

impl SavedMagnitude {
    /// The bytes of both saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        precision::bytes(&self.product) + precision::bytes(&self.norm)
    }
}

impl Magnitude {
    /// Scales the columns of a product `[tokens, out]` by m/n and adds the bias. Computes n, the row norms of the
    /// adapted weight, unless they are cached.
    pub(crate) fn forward(
        &self,
        product: Tensor,
        weight: &Weight,
        low: &LowRank,
        bias: Option<&Tensor>,
    ) -> Result<(Tensor, SavedMagnitude)> {
        let norm = match &self.norm {
            Some(norm) => norm.clone(),
            None => fused::adapted_row_norms(&self.base_squares, weight, low, product.dtype())?,
        };
        let output = fused::scale_columns(&product, &fused::divide(&self.value, &norm)?, bias)?;
        Ok((output, SavedMagnitude { product, norm }))
    }

    /// The gradient of the unscaled product; adds the gradient of m to `gradients`.
    pub(crate) fn backward(&self, upstream: &Tensor, saved: &SavedMagnitude, gradients: &Parameters) -> Result<Tensor> {
        let along = fused::product_sums(upstream, &saved.product)?;
        gradients.accumulate(self.slot, &fused::divide(&along, &saved.norm)?)?;
        Ok(fused::scale_columns(upstream, &fused::divide(&self.value, &saved.norm)?, None)?)
    }
}

/// ‖W‖² of every row of a CPU weight: `[rows]`, `f32`, summed in `f64`, 512 rows at a time.
pub(crate) fn squared_norms(weight: &Tensor) -> Result<Tensor> {
    let (rows, _) = weight.dims2()?;
    let mut parts = Vec::new();
    for start in (0..rows).step_by(512) {
        let part = weight.narrow(0, start, 512.min(rows - start))?;
        // f64: a row has thousands of squares, and m starts as their sum's root.
        parts.push(part.to_dtype(DType::F64)?.sqr()?.sum(1)?);
    }
    Ok(Tensor::cat(&parts, 0)?.to_dtype(DType::F32)?)
}
