//! The linear map of the decoder: a weight, an optional bias, and an optional adapter.
//! `fused` computes the products; `network` chooses which maps have an adapter.
//!
//! DoRA trains the length m of every row of an adapted weight apart from its direction: y = (m / n) ⊙
//! (x·(W + s·B·A)ᵀ) + b with n = ‖W + s·B·A‖ of each row, a constant in the backward pass (Liu et al. 2024, section
//! 4.3).

use tunebox_compute::fused::{self, Dropout, LinearInput, LowRank};
use tunebox_compute::parameters::GradientSums;
use tunebox_compute::precision::bytes;
use tunebox_compute::{DType, Tensor, Weight};

use crate::adapter::InitialFactors;
use crate::error::{Error, Result};

/// A linear map `[tokens, in] → [tokens, out]`, with the weights and the adapter of one view of the model.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    /// `[out, in]`, as stored.
    pub(crate) weight: Weight,
    /// `[out]`, `f32`.
    pub(crate) bias: Option<Tensor>,
    pub(crate) learned: Learned,
    /// Whether the map is used for decoding, a few tokens at a time and without a backward pass.
    pub(crate) decoding: bool,
}

/// What is trained on a linear map.
#[derive(Debug, Clone)]
pub(crate) enum Learned {
    /// Nothing: the weight is frozen.
    Nothing,
    /// Two low-rank matrices beside the frozen weight.
    LowRank(LowRankPart),
    /// The weight itself, and the bias, if any, each by the index of its slot in the parameters.
    Whole { weight: usize, bias: Option<usize> },
}

/// The low-rank matrices of LoRA, rsLoRA or DoRA on one linear map.
#[derive(Debug, Clone)]
pub(crate) struct LowRankPart {
    pub(crate) low: LowRank,
    /// The slots of A and of B in the parameters.
    pub(crate) slots: (usize, usize),
    /// The first values of A and B, whose product is subtracted; `None` if that is 0.
    pub(crate) initial: Option<InitialFactors>,
    /// The trained row lengths of DoRA; `None` for other kinds.
    pub(crate) magnitude: Option<Magnitude>,
    /// Dropout of the inputs of A.
    pub(crate) dropout: Option<Dropout>,
}

/// What the backward pass of one linear map needs beside its input.
#[derive(Debug, Clone, Default)]
pub(crate) struct SavedLinear {
    /// x·Aᵀ, `[tokens, rank]`.
    reduced: Option<Tensor>,
    /// DoRA: the product before it is scaled, and the row norms.
    scaled: Option<SavedMagnitude>,
}

impl SavedLinear {
    /// What a map without an adapter saves.
    pub(crate) const NOTHING: Self = Self { reduced: None, scaled: None };

    /// The bytes of all saved tensors; 0 if nothing is adapted.
    pub(crate) fn bytes(&self) -> usize {
        let scaled = self.scaled.as_ref().map_or(0, SavedMagnitude::bytes);
        self.reduced.as_ref().map_or(0, bytes) + scaled
    }
}

impl Linear {
    /// Whether an adapter or the weight itself is trained here, so that a backward pass writes gradients.
    pub(crate) fn is_trained(&self) -> bool {
        !matches!(self.learned, Learned::Nothing)
    }

    /// Computes y = x·Wᵀ + b with the adapter, `[tokens, in]` to `[tokens, out]`, and with dropout if it is set.
    /// Returns y and what the backward pass needs: x·Aᵀ with low-rank matrices, with DoRA also the product before it is
    /// scaled and the row norms, else nothing. If the map is for decoding, runs without dropout and saves nothing.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<(Tensor, SavedLinear)> {
        if self.decoding {
            return Ok((self.forward_few(&LinearInput::of(input))?, SavedLinear::default()));
        }
        let Learned::LowRank(part) = &self.learned else {
            let output = fused::linear(input, &self.weight, self.bias.as_ref())?;
            return Ok((output, SavedLinear::default()));
        };
        let (bias, dropout) = (self.bias.as_ref(), part.dropout.as_ref());
        let Some(magnitude) = &part.magnitude else {
            let (output, reduced) = fused::adapted_linear(input, &self.weight, bias, &part.low, dropout)?;
            let output = match &part.initial {
                Some(initial) => subtract_initial(output, &fused::linear(input, &initial.reduce, None)?, initial)?,
                None => output,
            };
            return Ok((output, SavedLinear { reduced: Some(reduced), scaled: None }));
        };
        let (product, reduced) = fused::adapted_linear(input, &self.weight, None, &part.low, dropout)?;
        let (output, scaled) = magnitude.forward(product, &self.weight, &part.low, bias)?;
        Ok((output, SavedLinear { reduced: Some(reduced), scaled: Some(scaled) }))
    }

    /// Computes y = x·Wᵀ + b with the adapter, DoRA's scaling included, `[tokens, in]` to `[tokens, out]`, for the few
    /// tokens of a decoding step. Applies no dropout and saves nothing.
    pub(super) fn forward_few(&self, input: &LinearInput<'_>) -> Result<Tensor> {
        let bias = self.bias.as_ref();
        match &self.learned {
            Learned::LowRank(LowRankPart { low, magnitude: Some(magnitude), .. }) => {
                let product = input.linear(&self.weight, None, Some(low))?;
                Ok(magnitude.forward(product, &self.weight, low, bias)?.0)
            }
            Learned::LowRank(part) => {
                let output = input.linear(&self.weight, bias, Some(&part.low))?;
                match &part.initial {
                    Some(initial) => subtract_initial(output, &input.linear(&initial.reduce, None, None)?, initial),
                    None => Ok(output),
                }
            }
            _ => Ok(input.linear(&self.weight, bias, None)?),
        }
    }

    /// Runs the backward pass: `upstream` `[tokens, out]` is the gradient of the output. Adds the gradients of what is
    /// trained, of the weight and bias or of the adapter, to `gradients`; a frozen map adds none. If `want_input`,
    /// returns the gradient `[tokens, in]` of the input plus `total`, the gradient through maps that read the same
    /// input, if any; else returns `total`.
    ///
    /// `input` returns the map's input. It is called only if something is trained, after the result is computed, and
    /// gets that result if `want_input`, else `None`. Errors: an adapter, but the forward pass saved nothing.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        input: impl FnOnce(Option<&Tensor>) -> Result<Tensor>,
        saved: &SavedLinear,
        want_input: bool,
        total: Option<Tensor>,
        gradients: &GradientSums<'_>,
    ) -> Result<Option<Tensor>> {
        if let Learned::LowRank(part) = &self.learned {
            let upstream = match (&part.magnitude, &saved.scaled) {
                (Some(magnitude), Some(scaled)) => magnitude.backward(upstream, scaled, gradients)?,
                _ => upstream.clone(),
            };
            return self.low_rank_backward(part, &upstream, input, saved, want_input, total, gradients);
        }
        let total = match want_input {
            true => Some(fused::add_linear_input_gradient(total, upstream, &self.weight)?),
            false => total,
        };
        if let Learned::Whole { weight, bias } = &self.learned {
            gradients.accumulate_product(*weight, 1.0, upstream, &input(total.as_ref().filter(|_| want_input))?)?;
            if let Some(bias) = bias {
                gradients.accumulate(*bias, &fused::bias_gradient(upstream)?)?;
            }
        }
        Ok(total)
    }

    /// Adds the gradients of A and B to `gradients`. Returns the gradient of the input, through weight and adapter,
    /// plus `total`, if `want_input`, else `total`. Errors: the forward pass was one for decoding, which saves nothing.
    #[expect(clippy::too_many_arguments, reason = "those of `backward`, and the adapter")]
    fn low_rank_backward(
        &self,
        part: &LowRankPart,
        upstream: &Tensor,
        input: impl FnOnce(Option<&Tensor>) -> Result<Tensor>,
        saved: &SavedLinear,
        want_input: bool,
        total: Option<Tensor>,
        gradients: &GradientSums<'_>,
    ) -> Result<Option<Tensor>> {
        let Some(reduced) = &saved.reduced else {
            return Err(Error::Argument("an adapter's backward pass needs what its forward pass saved".into()));
        };
        let (weight, low, dropout) = (&self.weight, &part.low, part.dropout.as_ref());
        let gradient = fused::reduced_gradient(upstream, low)?;
        gradients.accumulate_product(part.slots.1, low.scale, upstream, reduced)?;
        let mut total = total;
        if want_input {
            let mut found = fused::adapted_input_gradient(upstream, &gradient, weight, low, dropout, total)?;
            if let Some(initial) = &part.initial {
                let reduced = fused::add_linear_input_gradient(None, upstream, &initial.expand)?;
                found = fused::add_linear_input_gradient(Some(found), &reduced, &initial.reduce)?;
            }
            total = Some(found);
        }
        let input = input(total.as_ref().filter(|_| want_input))?;
        match dropout {
            Some(dropout) => gradients.accumulate_product(part.slots.0, 1.0, &gradient, &dropout.apply(&input)?)?,
            None => gradients.accumulate_product(part.slots.0, 1.0, &gradient, &input)?,
        }
        Ok(total)
    }
}

/// Subtracts s·x·(B₀·A₀)ᵀ, the part of a module that its first values contribute, from its output `[tokens, out]`.
/// `reduced` is x·A₀ᵀ, `[tokens, rank]`. Adds the product, because [`InitialFactors::expand`] is −s·B₀.
fn subtract_initial(output: Tensor, reduced: &Tensor, initial: &InitialFactors) -> Result<Tensor> {
    Ok(fused::add(&output, &fused::linear(reduced, &initial.expand, None)?)?)
}

/// DoRA's trained row lengths of one adapted weight.
#[derive(Debug, Clone)]
pub(crate) struct Magnitude {
    /// m, `[out]`, `f32`.
    pub(crate) value: Tensor,
    /// The index of m's slot in the parameters.
    pub(crate) slot: usize,
    /// ‖W‖² of every row, `[out]`, `f32`; computed once, because the base is frozen.
    pub(crate) base_squares: Tensor,
    /// ‖W + s·B·A‖ of every row, `[out]`, computed once while decoding, where nothing is trained; else `None`.
    pub(crate) norm: Option<Tensor>,
}

/// What the backward pass of [`Magnitude`] needs.
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
        bytes(&self.product) + bytes(&self.norm)
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

    /// Returns the gradient `[tokens, out]` of the product before scaling, upstream · m/n, from `upstream`, the
    /// gradient of the output. Adds the gradient of m, Σ upstream ⊙ product / n over the tokens, to `gradients`.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        saved: &SavedMagnitude,
        gradients: &GradientSums<'_>,
    ) -> Result<Tensor> {
        gradients.accumulate_parts(self.slot, |tokens| {
            let rows = |tensor: &Tensor| tensor.narrow(0, tokens.start, tokens.len());
            fused::divide(&fused::scale_columns_gradient(&rows(upstream)?, &rows(&saved.product)?)?, &saved.norm)
        })?;
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
