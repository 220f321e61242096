//! The backward pass of the output head: from gradients with respect to the taps (seeds) to gradients with respect to
//! the hidden states and the head's weight.
//!
//! With seeds g of the log-probability, e of the entropy H and m of the mean log-probability, a vocabulary of V words
//! and a word's probability p, the gradient with respect to a logit is `g·[word = target] + m/V − p·(g + m + e·H) −
//! e·p·ln p`; times the derivatives of temperature, soft cap and scale.

use std::ops::Range;

use candle_core::Tensor;
use rayon::prelude::*;

use super::{Head, HeadOptions, HeadTaps, Inputs, ROWS, WORDS, device};
use crate::error::{Error, Result};
use crate::fused::host::{self, Locked};
use crate::fused::linear::add_assign;
use crate::fused::product::{Matrix, Tile, steps};
use crate::fused::simd::{exp, tanh, vectorize};
use crate::fused::stored::Stored;
use crate::fused::taps::{Tap, Taps};
use crate::weight::WeightRef;

/// The gradients of a loss with respect to the differentiable taps of [`head_taps`](super::head_taps), also called
/// seeds: for each tap a number for each row. A seed of the entropy requires that the forward pass returned the
/// entropy.
pub type TapGradients<'a> = Taps<&'a [f32]>;

/// Computes the backward pass of [`head_taps`](super::head_taps): returns the gradient of a loss with respect to
/// `hidden`, `[rows, hidden]` in its type, and, if `want_weight`, with respect to `weight`, `[vocabulary, hidden]` f32.
/// `seeds` are the gradients of the loss with respect to the taps, 0 for a tap without seeds; `taps` is what the
/// forward pass returned for the same operands.
///
/// # Errors
/// For inputs that [`head_taps`](super::head_taps) rejects, seeds or taps of another number of rows, a seed of a tap
/// that has no gradient, and a seed of the entropy without the entropy in `taps`. On the CPU, [`Error::PastDeadline`]
/// if the deadline of `options` passes before the last block of [`ROWS`] rows.
pub fn head_taps_backward<'w>(
    hidden: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    targets: &[u32],
    options: &HeadOptions,
    taps: &HeadTaps,
    seeds: TapGradients<'_>,
    want_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let inputs = Inputs { hidden, weight: weight.into(), targets, options };
    let accelerator = inputs.accelerator()?;
    check_seeds(targets.len(), taps, seeds)?;
    if let Some(device) = accelerator {
        return device::taps_backward(&device, inputs, taps, seeds, want_weight);
    }
    let stored = Stored::of(inputs.weight, "weight")?;
    let head = Head::new(&stored, options);
    let rows = row_coefficients(targets, taps, seeds, head.weight.rows);
    let locked = Locked::of(hidden, "hidden")?;
    let data = locked.data("hidden")?;
    let mut dhidden = vec![0.0; targets.len() * head.width];
    let mut dweight = vec![0.0; if want_weight { head.weight.rows * head.width } else { 0 }];
    // A task for each group of the vocabulary.
    let groups = head.groups();
    let whole = want_weight.then(|| Tile::from_slice(&mut dweight, head.weight.rows, head.width));
    let bands = whole.map(|whole| whole.split_into_bands(groups.iter().map(Range::len), head.width));
    let bands = bands.into_iter().flatten().map(Some).chain(std::iter::repeat_with(|| None));
    let mut bands: Vec<Option<Tile<'_>>> = bands.take(groups.len()).collect();
    for block in steps(0..targets.len(), ROWS) {
        options.check_deadline()?;
        let numbers = block.start * head.width..block.end * head.width;
        let part = Matrix::new(data.part(numbers.clone()), block.len(), head.width, head.width);
        let task = Block { head, rows: &rows[block], hidden: part };
        let parts: Vec<Vec<f32>> = groups
            .par_iter()
            .zip(&mut bands)
            .with_max_len(1)
            .map(|(words, band)| task.gradients(words, band.as_mut()))
            .collect();
        add_parts(&mut dhidden[numbers], &parts);
    }
    drop(bands);
    let dweight = want_weight.then(|| host::tensor(dweight, &[head.weight.rows, head.width])).transpose()?;
    Ok((host::tensor_in(hidden.dtype(), dhidden, hidden.dims())?, dweight))
}

/// Adds all parts to `sum`, in their order. Each is as long as `sum`.
fn add_parts(sum: &mut [f32], parts: &[Vec<f32>]) {
    /// Numbers of one task.
    const NUMBERS: usize = 1 << 14;
    sum.par_chunks_mut(NUMBERS).enumerate().for_each(|(chunk, sum)| {
        for part in parts {
            let start = chunk * NUMBERS;
            add_assign(sum, &part[start..start + sum.len()]);
        }
    });
}

/// The coefficients of the logit gradients of one row. A logit with probability p has the gradient
/// `linear·p + curved·p·ln p + even`, the target's plus `hit`.
#[derive(Clone, Copy)]
struct RowCoefficients {
    target: usize,
    /// ln Σ exp.
    log: f32,
    /// Added at the target.
    hit: f32,
    /// Times p.
    linear: f32,
    /// Times p·ln p.
    curved: f32,
    /// Added everywhere.
    even: f32,
}

/// Returns an error if seeds or taps do not have `count` rows, a seed belongs to a tap without a gradient, or there is
/// a seed of the entropy but no entropy among the taps.
fn check_seeds(count: usize, taps: &HeadTaps, seeds: TapGradients<'_>) -> Result<()> {
    let entropy = taps.values.get(Tap::Entropy);
    let others = [entropy, Some(&taps.logsumexp)].into_iter().flatten().map(Vec::len);
    if seeds.iter().map(|(_, seeds)| seeds.len()).chain(others).any(|length| length != count) {
        return Err(Error::shape(format!("seeds and taps of {count} rows are needed")));
    }
    if let Some((tap, _)) = seeds.iter().find(|(tap, _)| !tap.is_differentiable()) {
        return Err(Error::argument(format!("the tap `{}` has no gradient", tap.name())));
    }
    if seeds.get(Tap::Entropy).is_some() && entropy.is_none() {
        return Err(Error::argument("a gradient by the entropy needs the entropy among the taps"));
    }
    Ok(())
}

/// Computes the coefficients of the logit gradients of each row from its target, taps and seeds. A tap without seeds
/// counts as seeds of 0.
fn row_coefficients(
    targets: &[u32],
    taps: &HeadTaps,
    seeds: TapGradients<'_>,
    vocabulary: usize,
) -> Vec<RowCoefficients> {
    let seed = |tap: Tap, row: usize| seeds.get(tap).map_or(0.0, |seeds| seeds[row]);
    let entropies = taps.values.get(Tap::Entropy);
    let make = |row: usize| {
        let (hit, curved, even) = (seed(Tap::Logprob, row), seed(Tap::Entropy, row), seed(Tap::MeanLogprob, row));
        RowCoefficients {
            target: targets[row] as usize,
            log: taps.logsumexp[row],
            hit,
            linear: -(hit + even + curved * entropies.map_or(0.0, |entropies| entropies[row])),
            curved: -curved,
            even: even / vocabulary as f32,
        }
    };
    (0..targets.len()).map(make).collect()
}

/// A block of rows of hidden states, with the whole head.
#[derive(Clone, Copy)]
struct Block<'a> {
    head: Head<'a>,
    rows: &'a [RowCoefficients],
    /// `[rows, width]`.
    hidden: Matrix<'a>,
}

impl Block<'_> {
    /// Returns the part of the gradient with respect to the hidden states, `[rows, width]`, that comes from one group
    /// of vocabulary entries. Adds the gradients of these entries' rows of the weight to `dweight`, `[group, width]`,
    /// if given.
    fn gradients(&self, group: &Range<usize>, mut dweight: Option<&mut Tile<'_>>) -> Vec<f32> {
        let (rows, width) = (self.rows.len(), self.head.width);
        let mut part = vec![0.0; rows * width];
        for words in steps(group.clone(), WORDS) {
            self.head.with_products(self.hidden, &words, |tile, weight| {
                self.logit_gradients(tile, &words);
                let gradients = Matrix::packed(tile, rows, words.len());
                Tile::from_slice(&mut part, rows, width).multiply(true, 1.0, gradients, weight);
                if let Some(band) = &mut dweight {
                    let inside = words.start - group.start..words.end - group.start;
                    band.part(inside, 0..width).multiply(true, 1.0, gradients.transposed(), self.hidden);
                }
            });
        }
        part
    }

    /// Converts a tile in place, `[rows, words]`: from products hidden·Wᵀ times [`HeadOptions::factor`] to the
    /// gradients of the loss with respect to the products without that factor.
    fn logit_gradients(&self, tile: &mut [f32], words: &Range<usize>) {
        let options = self.head.options;
        for (row, numbers) in self.rows.iter().zip(tile.chunks_exact_mut(words.len())) {
            let hit = row.target.checked_sub(words.start).filter(|target| *target < words.len());
            let factor = options.logit_slope();
            vectorize!(match options.soft_cap {
                None => logits_to_gradients(numbers, row, hit, factor),
                Some(cap) => capped_logits_to_gradients(numbers, row, hit, factor, cap * options.inverse_temperature),
            });
        }
    }
}

/// Returns the gradient of the loss with respect to a logit z of a row, `linear·p + curved·p·ln p + even`, without the
/// `hit` that only the target's logit has.
#[inline(always)]
fn slope(z: f32, row: &RowCoefficients) -> f32 {
    let log = z - row.log;
    exp(log).mul_add(row.curved.mul_add(log, row.linear), row.even)
}

/// Converts one row in place, without a soft cap: from logits to the gradients with respect to the products hidden·Wᵀ.
/// `hit` is the target's index in `numbers`, `None` if the target is not among these words; `factor` is the derivative
/// of a logit by its product.
#[inline(always)]
fn logits_to_gradients(numbers: &mut [f32], row: &RowCoefficients, hit: Option<usize>, factor: f32) {
    for number in numbers.iter_mut() {
        *number = factor * slope(*number, row);
    }
    if let Some(hit) = hit {
        numbers[hit] += factor * row.hit;
    }
}

/// Converts one row in place, with a soft cap: from products hidden·Wᵀ times [`HeadOptions::factor`] to the gradients
/// with respect to the products without that factor. A logit is `height · tanh(number of the row)`. `hit` is the
/// target's index in `numbers`, `None` if the target is not among these words; `factor` is the derivative of a logit by
/// its product, without the derivative of tanh.
#[inline(always)]
fn capped_logits_to_gradients(
    numbers: &mut [f32],
    row: &RowCoefficients,
    hit: Option<usize>,
    factor: f32,
    height: f32,
) {
    let hit = hit.map(|hit| (hit, tanh(numbers[hit])));
    for number in numbers.iter_mut() {
        let tanh_value = tanh(*number);
        *number = factor * (1.0 - tanh_value * tanh_value) * slope(height * tanh_value, row);
    }
    if let Some((hit, tanh_value)) = hit {
        numbers[hit] += factor * (1.0 - tanh_value * tanh_value) * row.hit;
    }
}
