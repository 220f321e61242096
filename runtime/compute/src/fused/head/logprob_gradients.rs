//! Log-probabilities together with their gradient with respect to the hidden states, in one pass over the vocabulary.
//!
//! The gradient of a row's ln p(target) with respect to its hidden state, `W[target] − Σ p·W`, does not depend on the
//! loss: that of a loss of log-probabilities alone is this gradient times the row's seed, the derivative of the loss by
//! the log-probability. Σ p·W is summed as attention sums its values, relative to the largest logit so far. That saves
//! the product with which `head/backward.rs` computes the logits a second time.

use std::ops::Range;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::statistics::Statistics;
use super::{Head, HeadOptions, HeadTaps, Inputs, ROWS, WORDS, device};
use crate::error::{Error, Result};
use crate::fused::backend::accelerator_of;
use crate::fused::host::{self, Floats, Locked};
use crate::fused::product::{Matrix, Tile, steps};
use crate::fused::simd::{exp, tanh, vectorize};
use crate::fused::stored::Stored;
use crate::weight::WeightRef;

/// Computes the taps of each row, and the gradient of each row's log-probability with respect to its hidden state,
/// `[rows, hidden]` f32. Inputs, taps and errors are those of [`head_taps`](super::head_taps). For losses that depend
/// on log-probabilities alone, over a frozen head: [`scale_head_gradient`] turns the gradient into that of the loss.
pub fn head_taps_with_gradient<'w>(
    hidden: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    targets: &[u32],
    options: &HeadOptions,
) -> Result<(HeadTaps, Tensor)> {
    let inputs = Inputs { hidden, weight: weight.into(), targets, options };
    if let Some(device) = inputs.accelerator()? {
        return device::taps_and_logprob_gradients(&device, inputs);
    }
    let (taps, logprob_gradients) = on_cpu(inputs, true)?;
    Ok((taps, host::tensor(logprob_gradients, hidden.dims())?))
}

/// Computes the taps on the CPU, block by block of [`ROWS`] rows, with a task for each group of the vocabulary. With
/// `want_gradients` also returns the gradient of each row's log-probability with respect to its hidden state, `[rows,
/// hidden]`; else an empty list. [`Error::PastDeadline`] if the deadline has passed before a block.
pub(super) fn on_cpu(inputs: Inputs<'_>, want_gradients: bool) -> Result<(HeadTaps, Vec<f32>)> {
    let Inputs { hidden, targets, options, .. } = inputs;
    let stored = Stored::of(inputs.weight, "weight")?;
    let head = Head::new(&stored, options);
    let locked = Locked::of(hidden, "hidden")?;
    let hidden = locked.data("hidden")?;
    let mut taps = HeadTaps::new(options.taps);
    let mut logprob_gradients = vec![0.0; if want_gradients { targets.len() * head.width } else { 0 }];
    for rows in steps(0..targets.len(), ROWS) {
        options.check_deadline()?;
        let numbers = rows.start * head.width..rows.end * head.width;
        let block = Matrix::new(hidden.part(numbers.clone()), rows.len(), head.width, head.width);
        let targets = &targets[rows];
        let groups = head.groups().into_par_iter().with_max_len(1);
        let groups: Vec<GroupSums> =
            groups.map(|words| head.accumulate_group(block, targets, words, want_gradients)).collect();
        let sums =
            |row: usize| groups.iter().map(|group| group.sums[row]).reduce(Statistics::merge).unwrap_or_default();
        let all: Vec<Statistics> = (0..targets.len()).map(sums).collect();
        if want_gradients {
            logprob_gradients[numbers].par_chunks_mut(head.width).enumerate().for_each(|(row, gradient)| {
                head.write_logprob_gradient(&groups, row, &all[row], targets[row] as usize, gradient);
            });
        }
        all.iter().for_each(|sums| taps.push(sums, head.weight.rows));
    }
    Ok((taps, logprob_gradients))
}

/// Multiplies row i of `logprob_gradients`, `[rows, hidden]` f32, by `seeds[i]`. If `logprob_gradients` are the
/// gradients of log-probabilities with respect to hidden states, and `seeds` those of a loss with respect to the
/// log-probabilities, the result is the gradient of the loss with respect to the hidden states. The result has type
/// `dtype`. Returns [`Error::Shape`] if there is not one seed for each row.
pub fn scale_head_gradient(logprob_gradients: &Tensor, seeds: &[f32], dtype: DType) -> Result<Tensor> {
    let (rows, width) = host::matrix_dims(logprob_gradients, "logprob_gradients")?;
    if rows != seeds.len() {
        return Err(Error::shape(format!("{} seeds for {rows} rows", seeds.len())));
    }
    if let Some(device) = accelerator_of([(logprob_gradients, "logprob_gradients")])? {
        return device::scaled(&device, logprob_gradients, seeds, dtype);
    }
    let mut result = Floats::of(logprob_gradients, "logprob_gradients")?.to_vec();
    result.par_chunks_mut(width.max(1)).with_min_len(16).zip(seeds).for_each(|(row, seed)| scale(row, *seed));
    host::tensor_in(dtype, result, &[rows, width])
}

/// The sums of one group of words for a block of rows.
struct GroupSums {
    sums: Vec<Statistics>,
    /// Σ e·W for every row, relative to its largest logit in this group; no numbers where no gradient is wanted.
    weighted_sums: Vec<f32>,
}

impl Head<'_> {
    /// Computes the sums over one group of words (`words`, token ids) for each row of a block, and Σ e·W if
    /// `want_gradients`. `targets` are the token ids of the block's rows.
    fn accumulate_group(
        &self,
        hidden: Matrix<'_>,
        targets: &[u32],
        words: Range<usize>,
        want_gradients: bool,
    ) -> GroupSums {
        let (rows, width) = (targets.len(), self.width);
        let mut sums = vec![Statistics::default(); rows];
        let mut weighted_sums = vec![0.0; if want_gradients { rows * width } else { 0 }];
        for words in steps(words, WORDS) {
            self.with_products(hidden, &words, |tile, weight| {
                let mut weighted = weighted_sums.chunks_exact_mut(width);
                for ((sums, target), row) in sums.iter_mut().zip(targets).zip(tile.chunks_exact_mut(words.len())) {
                    self.accumulate_row(row, &words, *target as usize, sums, weighted.next());
                }
                if want_gradients {
                    let weights = Matrix::packed(tile, rows, words.len());
                    Tile::from_slice(&mut weighted_sums, rows, width).multiply(true, 1.0, weights, weight);
                }
            });
        }
        GroupSums { sums, weighted_sums }
    }

    /// Adds the words `words` of one row of hidden states to the row's `sums`. `row` holds their products, before the
    /// soft cap; `target` is the token id of the row's target, which may be outside `words`. With a `weighted_sum`, Σ
    /// e·W of the row so far, rescales it to the new largest logit, and replaces `row` by the factors with which the
    /// words' rows of the weight have to be added to `weighted_sum`. Otherwise leaves unspecified numbers in `row`.
    fn accumulate_row(
        &self,
        row: &mut [f32],
        words: &Range<usize>,
        target: usize,
        sums: &mut Statistics,
        weighted_sum: Option<&mut [f32]>,
    ) {
        let before = sums.largest;
        let products = self.options.soft_cap.filter(|_| weighted_sum.is_some()).map(|_| row.to_vec());
        self.options.apply_soft_cap(row);
        let target = target.checked_sub(words.start).and_then(|target| row.get(target).copied());
        let here = vectorize!(Statistics::of(row, self.options.taps));
        *sums = sums.merge(Statistics { target, ..here });
        let Some(weighted_sum) = weighted_sum else { return };
        if sums.largest > before {
            scale(weighted_sum, exp(before - sums.largest));
        }
        if here.largest < sums.largest {
            scale(row, exp(here.largest - sums.largest));
        }
        for (weight, product) in row.iter_mut().zip(products.into_iter().flatten()) {
            let tanh_value = tanh(product);
            *weight *= 1.0 - tanh_value * tanh_value;
        }
    }

    /// Writes the gradient of one row's log-probability with respect to its hidden state to `gradient`, `[width]`.
    /// `groups` are the sums over groups of words, computed with gradients, of the block of rows whose row `row` this
    /// is; `totals` is their merge for this row. With a soft cap, the result is NaN unless `totals` has the target's
    /// logit.
    fn write_logprob_gradient(
        &self,
        groups: &[GroupSums],
        row: usize,
        totals: &Statistics,
        target: usize,
        gradient: &mut [f32],
    ) {
        let factor = self.options.logit_slope();
        let height = self.options.soft_cap.map(|cap| cap * self.options.inverse_temperature);
        let tanh_value = height.map_or(0.0, |height| totals.target.unwrap_or(f32::NAN) / height);
        self.weight.copy_row(target, gradient);
        scale(gradient, factor * (1.0 - tanh_value * tanh_value));
        for group in groups {
            let share = f64::from(group.sums[row].largest) - f64::from(totals.largest);
            let share = factor * (share.exp() / totals.sum) as f32;
            let weighted = &group.weighted_sums[row * self.width..][..self.width];
            vectorize!(gradient.iter_mut().zip(weighted).for_each(|(to, sum)| *to = sum.mul_add(-share, *to)));
        }
    }
}

/// Multiplies every number by a factor, in place.
fn scale(numbers: &mut [f32], factor: f32) {
    vectorize!(numbers.iter_mut().for_each(|number| *number *= factor));
}
