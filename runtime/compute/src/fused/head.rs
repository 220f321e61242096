//! The language-model head without its logits: log-probabilities and their relatives per token.
//!
//! The vocabulary is cut into a fixed number of groups, a group into tiles; a tile of logits lives only until its
//! sums are taken (running log-sum-exp), and the gradients, in `head/backward.rs`, compute it again. A device does the
//! same in larger tiles, `head/device.rs`.

mod backward;
mod device;
mod slopes;
mod statistics;

use std::ops::Range;

use candle_core::Tensor;

use super::backend::accelerator_with;
use super::embedding::TOKEN;
use super::few_tokens::{LinearInput, few_tokens_tiles};
use super::host;
use super::indices::check_below;
use super::product::{Matrix, Tile, steps};
use super::scratch;
use super::simd::{tanh, vectorize};
use super::stored::{Stored, View};
use super::taps::{TapSet, Taps};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::weight::WeightRef;
use statistics::Statistics;

pub use backward::{TapGradients, head_taps_backward};
pub use device::TILE;
pub use slopes::{head_taps_with_gradient, scale_head_gradient};

/// Groups of the vocabulary, each a task.
pub const GROUPS: usize = 16;
/// Words of one tile.
const WORDS: usize = 256;
/// Rows of hidden states of one tile.
pub const ROWS: usize = 256;

/// What happens to the logits: `z = hidden·Wᵀ`, `z ← logit_scale·z`, `z ← cap·tanh(z / cap)`, `z ← z / temperature`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadOptions {
    /// One over the temperature; 1 changes nothing.
    pub inverse_temperature: f32,
    /// The final soft cap (Gemma 2).
    pub soft_cap: Option<f32>,
    /// A factor of the model; 1 changes nothing.
    pub logit_scale: f32,
    /// Which taps to take.
    pub taps: TapSet,
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self { inverse_temperature: 1.0, soft_cap: None, logit_scale: 1.0, taps: TapSet::default() }
    }
}

impl HeadOptions {
    /// The factor of the product; what a soft cap takes is already divided by the cap.
    fn factor(&self) -> f32 {
        self.soft_cap.map_or(self.logit_scale * self.inverse_temperature, |cap| self.logit_scale / cap)
    }

    /// What tanh is multiplied with; 0 without a soft cap.
    fn height(&self) -> f32 {
        self.soft_cap.map_or(0.0, |cap| cap * self.inverse_temperature)
    }

    /// The slope of a logit by the product that it is made of, where nothing is capped.
    fn logit_slope(&self) -> f32 {
        self.logit_scale * self.inverse_temperature
    }

    /// The logits of a tile, in place, after a product with [`Self::factor`].
    fn apply_soft_cap(&self, tile: &mut [f32]) {
        if let Some(cap) = self.soft_cap {
            let height = cap * self.inverse_temperature;
            vectorize!(tile.iter_mut().for_each(|z| *z = height * tanh(*z)));
        }
    }
}

/// Taps of every row, in the order of the rows.
#[derive(Clone, Debug, Default)]
pub struct HeadTaps {
    /// ln Σ exp of the logits.
    pub log_sum_exp: Vec<f32>,
    /// The taps that were asked for, the log-probability among them.
    pub values: Taps<Vec<f32>>,
}

/// What all operations of the head take.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    hidden: &'a Tensor,
    weight: WeightRef<'a>,
    targets: &'a [u32],
    options: &'a HeadOptions,
}

impl Inputs<'_> {
    /// Checks the inputs and returns the accelerator that they are on, if any. Refuses shapes that do not fit, an empty
    /// vocabulary, and targets past it.
    fn accelerator(&self) -> Result<Option<Accelerator>> {
        let &[words, width] = self.weight.sides().as_slice() else {
            return Err(Error::shape(format!("`weight` has shape {:?}, a matrix is needed", self.weight.sides())));
        };
        host::expect(self.hidden, "hidden", &[self.targets.len(), width])?;
        check_below(self.targets, words, TOKEN)?;
        if words == 0 || width == 0 {
            return Err(Error::shape("a head needs a vocabulary"));
        }
        accelerator_with([(self.hidden, "hidden")], self.weight)
    }
}

/// The taps of `hidden`, `[rows, hidden]`, f32, or bf16 on a device, only rows that count, under the head `weight`,
/// `[vocabulary, hidden]` in any stored format. `targets` has one word a row. A device is waited for once.
pub fn head_taps<'w>(
    hidden: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    targets: &[u32],
    options: &HeadOptions,
) -> Result<HeadTaps> {
    let inputs = Inputs { hidden, weight: weight.into(), targets, options };
    match inputs.accelerator()? {
        None => Ok(slopes::on_cpu(inputs, false)?.0),
        Some(device) => device::taps(&device, inputs),
    }
}

/// The logits themselves, `[rows, vocabulary]` f32: for generation, on the last tokens only.
pub fn logits<'w>(hidden: &Tensor, weight: impl Into<WeightRef<'w>>, options: &HeadOptions) -> Result<Tensor> {
    let weight = weight.into();
    if let Some(device) = accelerator_with([(hidden, "hidden")], weight)? {
        return device::logits(&device, hidden, weight, options);
    }
    let factor = options.factor();
    few_tokens_tiles(&LinearInput::of(hidden), weight, None, None, |tile| {
        for row in 0..tile.rows() {
            let row = tile.row(row);
            if factor != 1.0 {
                row.iter_mut().for_each(|z| *z *= factor);
            }
            options.apply_soft_cap(row);
        }
    })
}

/// The head as its tasks share it.
#[derive(Clone, Copy)]
struct Head<'a> {
    weight: View<'a>,
    options: &'a HeadOptions,
    /// The hidden size.
    width: usize,
}

impl<'a> Head<'a> {
    /// Over inputs that fit each other.
    fn new(stored: &'a Stored<'_>, options: &'a HeadOptions) -> Self {
        let weight = stored.view();
        Self { weight, options, width: weight.columns }
    }

    /// The words of each group: whole tiles, spread evenly.
    fn groups(&self) -> Vec<Range<usize>> {
        let tiles = self.weight.rows.div_ceil(WORDS);
        let size = tiles.div_ceil(GROUPS) * WORDS;
        steps(0..self.weight.rows, size).collect()
    }

    /// Calls `work` with the products of some rows of hidden states with some words, `[rows, words]`, before the soft cap,
    /// and with the words' rows of the weight.
    fn with_products(&self, hidden: &[f32], words: &Range<usize>, work: impl FnOnce(&mut [f32], Matrix<'_>)) {
        let rows = hidden.len() / self.width;
        scratch::with(rows * words.len(), |tile| {
            self.weight.with_block(words.clone(), 0..self.width, |weight| {
                let mut products = Tile::from_slice(tile, rows, words.len());
                let left = Matrix::packed(hidden, rows, self.width);
                products.multiply_batch_invariant(false, self.options.factor(), left, weight.transposed());
                work(tile, weight);
            });
        });
    }
}

impl HeadTaps {
    /// No rows yet; every tap of the set is there, the log-probability too.
    fn new(taps: TapSet) -> Self {
        Self { log_sum_exp: Vec::new(), values: taps.iter().map(|tap| (tap, Vec::new())).collect() }
    }

    /// Appends the taps of one more row from the sums over the whole vocabulary.
    fn push(&mut self, sums: &Statistics, vocabulary: usize) {
        self.log_sum_exp.push(sums.log_sum_exp() as f32);
        self.values.iter_mut().for_each(|(tap, values)| values.push(sums.tap(tap, vocabulary) as f32));
    }
}

#[cfg(test)]
mod tests;
