//! Log-probabilities together with their own gradient by the hidden states, in one walk over the vocabulary.
//!
//! The gradient of a row's ln p(target) by its hidden state, `W[target] − Σ p·W`, does not depend on the loss: a loss
//! of log-probabilities alone scales each row by its seed. Σ p·W is summed as attention sums its values, relative to
//! the largest logit so far. That saves the product that `head/backward.rs` spends on the logits a second time.

use std::ops::Range;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::statistics::Statistics;
use super::{Head, HeadOptions, HeadTaps, Inputs, ROWS, WORDS, device};
use crate::error::{Error, Result};
use crate::fused::backend::Backend;
use crate::fused::host::{self, Floats};
use crate::fused::product::{Matrix, Tile, steps};
use crate::fused::scratch;
use crate::fused::simd::{exp, vectorize};
use crate::fused::stored::Stored;
use crate::weight::WeightRef;

/// What [`head_taps`](super::head_taps) returns, and the gradient of each row's log-probability by its hidden state,
/// `[rows, hidden]` f32. For losses of log-probabilities over a frozen head; [`scale_head_gradient`] is the rest.
pub fn head_taps_with_gradient<'w>(
    hidden: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    targets: &[u32],
    options: &HeadOptions,
) -> Result<(HeadTaps, Tensor)> {
    let inputs = Inputs { hidden, weight: weight.into(), targets, options };
    match inputs.backend()? {
        Backend::Cpu => on_cpu(inputs),
        Backend::Device(device) => device::taps_and_slopes(&device, inputs),
    }
}

/// [`head_taps_with_gradient`] on the CPU.
fn on_cpu(inputs: Inputs<'_>) -> Result<(HeadTaps, Tensor)> {
    let Inputs { hidden, targets, options, .. } = inputs;
    let stored = Stored::of(inputs.weight, "weight")?;
    let head = Head::new(&stored, options);
    let floats = Floats::of(hidden, "hidden")?;
    let mut taps = HeadTaps::new(options.taps);
    let mut slopes = vec![0.0; targets.len() * head.width];
    for rows in steps(0..targets.len(), ROWS) {
        let numbers = rows.start * head.width..rows.end * head.width;
        let block = &floats.slice()[numbers.clone()];
        let targets = &targets[rows];
        let groups: Vec<Group> = head
            .groups()
            .into_par_iter()
            .with_max_len(1)
            .map(|words| head.accumulate_group(block, targets, words))
            .collect();
        let into = slopes[numbers].par_chunks_mut(head.width).zip(targets).enumerate();
        let all: Vec<Statistics> =
            into.map(|(row, (slope, target))| head.slope(&groups, row, *target as usize, slope)).collect();
        all.iter().for_each(|sums| taps.push(sums, head.weight.rows));
    }
    Ok((taps, host::tensor(slopes, hidden.dims())?))
}

/// The gradient by the hidden states of a loss whose gradient by the log-probabilities is `seeds`: each row of
/// `slopes` times its seed, in the type of the hidden states, which is f32 on the CPU.
pub fn scale_head_gradient(slopes: &Tensor, seeds: &[f32], dtype: DType) -> Result<Tensor> {
    let (rows, _) = host::matrix(slopes, "slopes")?;
    if rows != seeds.len() {
        return Err(Error::shape(format!("{} seeds for {rows} rows", seeds.len())));
    }
    match Backend::of([(slopes, "slopes")])? {
        Backend::Cpu if dtype == DType::F32 => scaled_on_cpu(slopes, seeds),
        Backend::Cpu => Err(Error::dtype(format!("activations of the CPU are f32, {} was asked for", dtype.as_str()))),
        Backend::Device(device) => device::scaled(&device, slopes, seeds, dtype),
    }
}

/// Multiplies each row of `slopes` with its seed.
fn scaled_on_cpu(slopes: &Tensor, seeds: &[f32]) -> Result<Tensor> {
    let (rows, width) = host::matrix(slopes, "slopes")?;
    let mut result = Floats::of(slopes, "slopes")?.slice().to_vec();
    result.par_chunks_mut(width.max(1)).with_min_len(16).zip(seeds).for_each(|(row, seed)| scale(row, *seed));
    host::tensor(result, &[rows, width])
}

/// The sums of one group of words for a block of rows.
struct Group {
    sums: Vec<Statistics>,
    /// Σ e·W for every row, relative to its largest logit in this group.
    weighted_sums: Vec<f32>,
}

impl Head<'_> {
    /// Walks over one group of words.
    fn accumulate_group(&self, hidden: &[f32], targets: &[u32], group: Range<usize>) -> Group {
        let (rows, width) = (targets.len(), self.width);
        let (mut sums, mut weighted_sums) = (vec![Statistics::default(); rows], vec![0.0; rows * width]);
        for words in steps(group, WORDS) {
            let count = words.len();
            scratch::with(rows * count, |tile| {
                self.weight.with_rows(words.clone(), |matrix| {
                    self.tile(hidden, matrix, rows, count, tile);
                    let all = sums.iter_mut().zip(targets).zip(weighted_sums.chunks_exact_mut(width));
                    for (((sums, target), weighted_sum), row) in all.zip(tile.chunks_exact_mut(count)) {
                        self.accumulate_row(row, &words, *target as usize, sums, weighted_sum);
                    }
                    Tile::from_slice(&mut weighted_sums, rows, width).multiply(
                        true,
                        1.0,
                        Matrix::packed(tile, rows, count),
                        matrix,
                    );
                });
            });
        }
        Group { sums, weighted_sums }
    }

    /// Takes one row of a tile into the sums, brings what was pulled so far to the new measure, and leaves in the row
    /// the weights of its words.
    fn accumulate_row(
        &self,
        row: &mut [f32],
        words: &Range<usize>,
        target: usize,
        sums: &mut Statistics,
        weighted_sum: &mut [f32],
    ) {
        let before = sums.largest;
        let bends = self.options.soft_cap.map(|_| row.to_vec());
        self.options.apply_soft_cap(row);
        let target = target.checked_sub(words.start).and_then(|target| row.get(target).copied());
        let here = vectorize!(Statistics::of(row, self.options.taps));
        *sums = sums.merged(Statistics { target, ..here });
        if sums.largest > before {
            scale(weighted_sum, exp(before - sums.largest));
        }
        if here.largest < sums.largest {
            scale(row, exp(here.largest - sums.largest));
        }
        if let Some(bends) = bends {
            row.iter_mut().zip(bends).for_each(|(weight, bend)| *weight *= self.soft_cap_slope(bend));
        }
    }

    /// The slope of the soft cap where the product was `bend`.
    fn soft_cap_slope(&self, bend: f32) -> f32 {
        let bent = super::tanh(bend);
        self.options.soft_cap.map_or(1.0, |_| 1.0 - bent * bent)
    }

    /// Adds up the groups for one row: fills its slope, returns its sums over the whole vocabulary.
    fn slope(&self, groups: &[Group], row: usize, target: usize, slope: &mut [f32]) -> Statistics {
        let all = groups.iter().map(|group| group.sums[row]).reduce(Statistics::merged).unwrap_or_default();
        let factor = self.options.logit_slope();
        let height = self.options.soft_cap.map(|cap| cap * self.options.inverse_temperature);
        let bent = height.map_or(0.0, |height| all.target.unwrap_or(f32::NAN) / height);
        self.weight.copy_row(target, slope);
        scale(slope, factor * (1.0 - bent * bent));
        for group in groups {
            let share = f64::from(group.sums[row].largest) - f64::from(all.largest);
            let share = factor * (share.exp() / all.sum) as f32;
            let weighted_sum = &group.weighted_sums[row * self.width..][..self.width];
            vectorize!(
                slope
                    .iter_mut()
                    .zip(weighted_sum)
                    .for_each(|(slope, weighted_sum)| *slope = weighted_sum.mul_add(-share, *slope))
            );
        }
        all
    }
}

/// Multiplies every number with a factor.
fn scale(numbers: &mut [f32], factor: f32) {
    vectorize!(numbers.iter_mut().for_each(|number| *number *= factor));
}
