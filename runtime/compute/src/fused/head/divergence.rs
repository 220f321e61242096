//! The divergence of the next-token distributions of two heads, over the whole vocabulary.
//!
//! With β it is the generalized Jensen–Shannon divergence of Agarwal et al., *On-Policy Distillation of Language
//! Models*, 2024 (arXiv 2306.13649): p is the distribution of the other head, q that of the own one, and m = β·p + (1 −
//! β)·q; D = β·KL(p‖m) + (1 − β)·KL(q‖m). At 0 it is KL(p‖q) (forward), at 1 KL(q‖p) (reverse), where the formula would
//! be 0.
//!
//! A divergence other than the forward one needs both normalizers before its first term, so the logits of both heads
//! are in memory for a block of rows at a time.

use std::ops::Range;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::{HeadOptions, device};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::fused::backend::accelerator_with;
use crate::fused::host;
use crate::fused::linear::{linear_input_gradient_f32, linear_tiles, linear_weight_gradient};
use crate::fused::product::steps;
use crate::fused::rows::{concat_rows, to_host_f32};
use crate::fused::simd::{exp, exp_in_place, fold2, largest, vectorize};
use crate::weight::WeightRef;

/// The most rows whose logits are in memory at a time, for each of the two heads.
pub const DIVERGENCE_ROWS: usize = 64;

/// Words whose terms are summed in f32 before they are added to a sum in f64.
const PIECE: usize = 1024;

/// Rows of hidden states with the head that turns them into logits.
#[derive(Clone, Copy)]
pub struct HeadInput<'a> {
    /// `[rows, hidden]`, f32 or bf16.
    pub hidden: &'a Tensor,
    /// `[vocabulary, hidden]`, in any stored format.
    pub weight: WeightRef<'a>,
    /// What happens to the logits. The taps are ignored, and the deadline of the other head too.
    pub options: &'a HeadOptions,
}

/// The results of [`head_divergence`].
#[derive(Debug)]
pub struct Divergences {
    /// The divergence of each row, in nats.
    pub values: Vec<f32>,
    /// The gradient of Σ seed·divergence with respect to the own hidden states, `[rows, hidden]` f32; `None` without
    /// seeds or rows.
    pub hidden: Option<Tensor>,
    /// The gradient of Σ seed·divergence with respect to the own head's weight, `[vocabulary, hidden]` f32; `None`
    /// without seeds or rows, and if it is not wanted.
    pub weight: Option<Tensor>,
}

/// Computes the generalized Jensen–Shannon divergence of each row, with β in [0, 1]: q is the distribution of the
/// trained head `own`, p that of the same row of `other`. At β = 0 it is KL(p‖q), at 1 KL(q‖p), between them the sum of
/// β·KL(p‖m) and (1 − β)·KL(q‖m) with m = β·p + (1 − β)·q. Both heads have as many rows; hidden sizes and number
/// formats may differ. If the vocabularies have different sizes, only the words of the smaller one count. With `seeds`,
/// a number for each row, also returns the gradient of Σ seed·divergence with respect to the own hidden states, and
/// with `want_weight` that with respect to the own weight. On a device, products run there and the terms of the
/// divergence on the CPU.
///
/// # Errors
/// [`Error::Argument`] for a β outside [0, 1]; shapes, devices or numbers of rows that do not fit each other; and
/// [`Error::PastDeadline`] if the deadline of `own` passes before the last block of [`DIVERGENCE_ROWS`] rows.
pub fn head_divergence(
    own: HeadInput<'_>,
    other: HeadInput<'_>,
    beta: f32,
    seeds: Option<&[f32]>,
    want_weight: bool,
) -> Result<Divergences> {
    let rows = own.check()?;
    if other.check()? != rows || seeds.is_some_and(|seeds| seeds.len() != rows) {
        return Err(Error::shape(format!("both heads and the seeds of a divergence need {rows} rows")));
    }
    if !(0.0..=1.0).contains(&beta) {
        return Err(Error::argument(format!("β is {beta}, a number from 0 to 1 is needed")));
    }
    let (mut values, mut gradients, mut weight) = (Vec::with_capacity(rows), Vec::new(), None);
    for block in steps(0..rows, DIVERGENCE_ROWS) {
        own.options.check_deadline()?;
        let (mut logits, others) = (own.logits(&block)?, other.logits(&block)?);
        let words = [own.words(), other.words()];
        let seeds = seeds.map(|seeds| &seeds[block.clone()]);
        values.extend(diverge_rows(&mut logits, &others, words, beta, seeds, own.options));
        if seeds.is_some() {
            let upstream = own.upload(logits, block.len())?;
            gradients.push(linear_input_gradient_f32(&upstream, own.weight)?);
            if want_weight {
                let part = linear_weight_gradient(1.0, &upstream, &own.rows(&block)?)?;
                weight = Some(weight.map_or(Ok(part.clone()), |sum| crate::fused::residual::add(&sum, &part))?);
            }
        }
    }
    let hidden = (!gradients.is_empty()).then(|| concat_rows(&gradients)).transpose()?;
    Ok(Divergences { values, hidden, weight })
}

impl HeadInput<'_> {
    /// Returns the number of rows. Fails with [`Error::Shape`] unless `hidden` is a matrix and `weight` is
    /// `[vocabulary, hidden]` with at least one word.
    fn check(&self) -> Result<usize> {
        let (rows, width) = host::matrix_dims(self.hidden, "hidden")?;
        match *self.weight.sides() {
            [words, columns] if words > 0 && columns == width => Ok(rows),
            _ => Err(Error::shape(format!("a head of shape {:?} for hidden states of {width}", self.weight.sides()))),
        }
    }

    /// The size of the vocabulary.
    fn words(&self) -> usize {
        self.weight.sides()[0]
    }

    /// The hidden states of a block of rows, `[rows, hidden]`.
    fn rows(&self, block: &Range<usize>) -> Result<Tensor> {
        Ok(self.hidden.narrow(0, block.start, block.len())?)
    }

    /// Computes the logits of a block of rows, after scale, soft cap and temperature, in f32: `[rows, vocabulary]` in
    /// row-major order. Waits for a device.
    fn logits(&self, block: &Range<usize>) -> Result<Vec<f32>> {
        let (hidden, options) = (self.rows(block)?, self.options);
        if let Some(accelerator) = self.accelerator()? {
            return to_host_f32(&device::logits(&accelerator, &hidden, self.weight, options)?);
        }
        let factor = options.factor();
        let logits = linear_tiles(DType::F32, &hidden, self.weight, None, |_, _, tile| {
            for row in 0..tile.rows() {
                let row = tile.row(row);
                vectorize!(row.iter_mut().for_each(|z| *z *= factor));
                options.apply_soft_cap(row);
            }
        })?;
        to_host_f32(&logits)
    }

    /// The accelerator of the operands; `None` for the CPU. Fails if they are on different devices.
    fn accelerator(&self) -> Result<Option<Accelerator>> {
        accelerator_with([(self.hidden, "hidden")], self.weight)
    }

    /// Makes a tensor `[rows, vocabulary]` of gradients with respect to logits, in the type of the hidden states and on
    /// their device.
    fn upload(&self, gradients: Vec<f32>, rows: usize) -> Result<Tensor> {
        let shape = [rows, self.words()];
        match self.accelerator()? {
            None => host::tensor_in(self.hidden.dtype(), gradients, &shape),
            Some(accelerator) => accelerator.cast(&accelerator.upload(&gradients, &shape)?, self.hidden.dtype()),
        }
    }
}

/// Returns the divergence of each row, computed from its logits in `own` and `others`, whose rows have `words[0]` and
/// `words[1]` numbers. Compares only the words that both have. With `seeds` (one a row) replaces the own logits by the
/// gradients of Σ seed·divergence with respect to the products hidden·Wᵀ, 0 for words that the other head lacks; else
/// leaves them. `options` are those of the own head.
fn diverge_rows(
    own: &mut [f32],
    others: &[f32],
    words: [usize; 2],
    beta: f32,
    seeds: Option<&[f32]>,
    options: &HeadOptions,
) -> Vec<f32> {
    let common = words[0].min(words[1]);
    let rows = own.par_chunks_exact_mut(words[0]).zip(others.par_chunks_exact(words[1])).with_max_len(1).enumerate();
    let one = |(row, (own, other)): (usize, (&mut [f32], &[f32]))| {
        let (own, past) = own.split_at_mut(common);
        let divergence = RowDivergence::of(own, &other[..common], beta);
        if let Some(seeds) = seeds {
            past.fill(0.0);
            divergence.write_gradient(own, &other[..common], seeds[row] * options.logit_slope(), options.height());
        }
        divergence.value as f32
    };
    rows.map(one).collect()
}

/// The sums of one row over both distributions.
#[derive(Clone, Copy)]
struct RowDivergence {
    beta: f32,
    /// ln Σ exp of the own logits and of the other's.
    logs: [f32; 2],
    /// The divergence.
    value: f64,
    /// Σ q·(1 − β)·(ln q − ln m), which the gradient of every word has; for the reverse divergence the divergence
    /// itself.
    mean: f64,
}

impl RowDivergence {
    /// Computes the sums of a row from its logits, as many in `own` as in `other`. For β of 0 and 1 uses the limits of
    /// the divergence, since the formula itself would be 0.
    fn of(own: &[f32], other: &[f32], beta: f32) -> Self {
        let logs = [logsumexp(own), logsumexp(other)];
        let mut pair = Self { beta, logs, value: 0.0, mean: 0.0 };
        for (own, other) in own.chunks(PIECE).zip(other.chunks(PIECE)) {
            let sum = |term: fn(&Self, f32, f32) -> f32| {
                f64::from(vectorize!(fold2(own, other, |sum, z, other| sum + term(&pair, z, other))))
            };
            let (value, mean) = match beta {
                0.0 => (sum(Self::forward_term), 0.0),
                1.0 => (sum(Self::reverse_term), 0.0),
                _ => (sum(Self::mixture_term), sum(Self::own_term)),
            };
            pair.value += value;
            pair.mean += mean;
        }
        if beta == 1.0 {
            pair.mean = pair.value;
        }
        pair
    }

    /// Returns (ln q, ln p) of a word, from its logits in the own and in the other head.
    #[inline(always)]
    fn log_probabilities(&self, own_logit: f32, other_logit: f32) -> (f32, f32) {
        (own_logit - self.logs[0], other_logit - self.logs[1])
    }

    /// The term of a word in the forward divergence, p·(ln p − ln q), from its two logits.
    #[inline(always)]
    fn forward_term(&self, own_logit: f32, other_logit: f32) -> f32 {
        let (own, other) = self.log_probabilities(own_logit, other_logit);
        exp(other) * (other - own)
    }

    /// The term of a word in the reverse divergence, q·(ln q − ln p), from its two logits.
    #[inline(always)]
    fn reverse_term(&self, own_logit: f32, other_logit: f32) -> f32 {
        let (own, other) = self.log_probabilities(own_logit, other_logit);
        exp(own) * (own - other)
    }

    /// The term of a word for β between 0 and 1, β·p·(ln p − ln m) + (1 − β)·q·(ln q − ln m), from its two logits.
    #[inline(always)]
    fn mixture_term(&self, own_logit: f32, other_logit: f32) -> f32 {
        let (own, other) = self.log_probabilities(own_logit, other_logit);
        let (q, p) = (exp(own), exp(other));
        let log = self.log_mixture(q, p);
        self.beta * p * (other - log) + (1.0 - self.beta) * q * (own - log)
    }

    /// The second summand of [`mixture_term`](Self::mixture_term), that of the own head: (1 − β)·q·(ln q − ln m).
    #[inline(always)]
    fn own_term(&self, own_logit: f32, other_logit: f32) -> f32 {
        let (own, other) = self.log_probabilities(own_logit, other_logit);
        let (q, p) = (exp(own), exp(other));
        (1.0 - self.beta) * q * (own - self.log_mixture(q, p))
    }

    /// ln m = ln (β·p + (1 − β)·q), where m below the least normal f32 counts as that number, so that the result is
    /// finite.
    #[inline(always)]
    fn log_mixture(&self, q: f32, p: f32) -> f32 {
        self.beta.mul_add(p, (1.0 - self.beta) * q).max(f32::MIN_POSITIVE).ln()
    }

    /// Overwrites `own`, one row of the trained head's logits, with `factor` · d(divergence)/d(logit). `other` is the
    /// other head's logits of the same words. `self` must be the result of [`RowDivergence::of`] for the same logits.
    /// If `height` is not 0, the logits have a soft cap, `height · tanh(product)`, and the result is also multiplied by
    /// the derivative of the tanh.
    fn write_gradient(&self, own: &mut [f32], other: &[f32], factor: f32, height: f32) {
        let mean = self.mean as f32;
        vectorize!(for (number, other) in own.iter_mut().zip(other) {
            let (log, other) = self.log_probabilities(*number, *other);
            let q = exp(log);
            let slope = match self.beta {
                0.0 => q - exp(other),
                1.0 => q * (log - other - mean),
                _ => q * ((1.0 - self.beta) * (log - self.log_mixture(q, exp(other))) - mean),
            };
            let tanh_value = if height == 0.0 { 0.0 } else { *number / height };
            *number = factor * (1.0 - tanh_value * tanh_value) * slope;
        });
    }
}

/// Returns ln Σ exp of some logits, without overflow. Sums in f64.
fn logsumexp(logits: &[f32]) -> f32 {
    let highest = vectorize!(largest(logits));
    let mut powers = [0f32; PIECE];
    let sum = |piece: &[f32]| {
        let powers = &mut powers[..piece.len()];
        powers.copy_from_slice(piece);
        f64::from(vectorize!(exp_in_place(powers, highest)))
    };
    (f64::from(highest) + logits.chunks(PIECE).map(sum).sum::<f64>().ln()) as f32
}

#[cfg(test)]
mod tests;
