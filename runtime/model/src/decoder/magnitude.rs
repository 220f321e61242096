//! DoRA: the length of every row of an adapted weight, learned apart from its direction.
//! y = (m / n) ⊙ (x·(W + s·B·A)ᵀ) + b with n = ‖W + s·B·A‖ by row, taken as a constant in the
//! backward pass (Liu et al. 2024, section 4.3). Leaves the product itself to `linear`.

use tunebox_compute::fused::{self, LowRank};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::weight::{Weight, WeightRef};
use tunebox_compute::{DType, Tensor};

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
pub(crate) struct Kept {
    /// x·(W + s·B·A)ᵀ, `[tokens, out]`.
    product: Tensor,
    /// n, `[out]`.
    norm: Tensor,
}

impl Kept {
    /// Elements held.
    pub(crate) fn elements(&self) -> usize {
        self.product.elem_count() + self.norm.elem_count()
    }
}

impl Magnitude {
    /// Scales a product by m/n and adds the bias.
    pub(crate) fn forward(
        &self,
        product: Tensor,
        weight: &Weight,
        low: &LowRank,
        bias: Option<&Tensor>,
    ) -> Result<(Tensor, Kept)> {
        let norm = match &self.norm {
            Some(norm) => norm.clone(),
            None => adapted_norm(&self.base_squares, weight, low)?,
        };
        let mut output = product.broadcast_mul(&(&self.value / &norm)?)?;
        if let Some(bias) = bias {
            output = output.broadcast_add(bias)?;
        }
        Ok((output, Kept { product, norm }))
    }

    /// The gradient of the unscaled product; m's own goes into `gradients`.
    pub(crate) fn backward(&self, upstream: &Tensor, kept: &Kept, gradients: &Parameters) -> Result<Tensor> {
        let along = fused::bias_gradient(&(upstream * &kept.product)?)?;
        gradients.accumulate(self.slot, &(along / &kept.norm)?)?;
        Ok(upstream.broadcast_mul(&(&self.value / &kept.norm)?)?)
    }
}

/// ‖W‖² of every row in `f32`, a few rows at a time.
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

/// ‖W + s·B·A‖ by row without the sum itself:
/// ‖W‖² + 2s·Σ B ⊙ (W·Aᵀ) + s²·Σ B ⊙ (B·(A·Aᵀ)).
pub(crate) fn adapted_norm<'w>(
    base_squares: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    low: &LowRank,
) -> Result<Tensor> {
    let scale = f64::from(low.scale);
    let crossed = fused::linear(&low.a, weight, None)?.t()?;
    let crossed = ((&low.b * crossed)?.sum(1)? * (2.0 * scale))?;
    let gram = low.a.matmul(&low.a.t()?)?;
    let own = ((&low.b * low.b.matmul(&gram)?)?.sum(1)? * (scale * scale))?;
    // Rounding can leave a row of zeros a little below zero.
    Ok(((base_squares + crossed)? + own)?.maximum(0.0)?.sqrt()?)
}
