//! The output head without the matrix of its logits: log-probabilities and other values per token (taps).
//!
//! A *word* here is an entry of the vocabulary. The vocabulary is cut into a fixed number of groups, a group into
//! tiles; a tile of logits lives only until it is added to the running sums of its rows (online logsumexp). The
//! backward pass, in `head/backward.rs`, computes the logits again. `head/device.rs` has the version for devices, with
//! larger tiles.

mod backward;
mod device;
mod divergence;
mod logprob_gradients;
mod statistics;

use std::ops::Range;
use std::time::Instant;

use candle_core::{DType, Tensor};

use super::backend::accelerator_with;
use super::embedding::TOKEN;
use super::few_tokens::{LinearInput, few_tokens_tiles};
use super::host;
use super::indices::check_below;
use super::product::{Matrix, Tile, steps};
use super::scratch;
use super::simd::{tanh, vectorize};
use super::stored::{Stored, View, sides};
use super::taps::{Tap, TapSet, Taps};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::weight::WeightRef;
use statistics::Statistics;

pub use backward::{TapGradients, head_taps_backward};
pub use device::TILE;
pub use divergence::{DIVERGENCE_ROWS, Divergences, HeadInput, head_divergence};
pub use logprob_gradients::{head_taps_with_gradient, scale_head_gradient};

/// The most groups that the vocabulary is cut into. Each group is a task.
pub const GROUPS: usize = 16;
/// Vocabulary entries of one tile.
const WORDS: usize = 256;
/// Rows of hidden states of one tile.
pub const ROWS: usize = 512;

/// What happens to the logits: `z = hidden·Wᵀ`, `z ← logit_scale·z`, `z ← cap·tanh(z / cap)`, `z ← z / temperature`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadOptions {
    /// One over the temperature; 1 changes nothing.
    pub inverse_temperature: f32,
    /// The final soft cap (Gemma 2).
    pub soft_cap: Option<f32>,
    /// The model's factor for logits; 1 changes nothing.
    pub logit_scale: f32,
    /// Which taps to take.
    pub taps: TapSet,
    /// The time after which the CPU stops, before its next block of rows, with [`Error::PastDeadline`]. `None`: it
    /// works to the end. A device ignores it.
    pub deadline: Option<Instant>,
}

impl Default for HeadOptions {
    /// Options that leave the logits as they are and take the log-probability alone.
    fn default() -> Self {
        Self { inverse_temperature: 1.0, soft_cap: None, logit_scale: 1.0, taps: TapSet::default(), deadline: None }
    }
}

impl HeadOptions {
    /// Returns [`Error::PastDeadline`] if there is a deadline and it has passed. Called before each block of rows.
    fn check_deadline(&self) -> Result<()> {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) { Err(Error::PastDeadline) } else { Ok(()) }
    }

    /// The factor of the product hidden·Wᵀ: `logit_scale / temperature`, or `logit_scale / cap` with a soft cap, whose
    /// tanh takes logits divided by the cap.
    fn factor(&self) -> f32 {
        self.soft_cap.map_or(self.logit_scale * self.inverse_temperature, |cap| self.logit_scale / cap)
    }

    /// The factor of tanh in a capped logit, `cap / temperature`; 0 without a soft cap.
    fn height(&self) -> f32 {
        self.soft_cap.map_or(0.0, |cap| cap * self.inverse_temperature)
    }

    /// The derivative of a logit with respect to the product hidden·Wᵀ, without that of a soft cap:
    /// `logit_scale / temperature`.
    fn logit_slope(&self) -> f32 {
        self.logit_scale * self.inverse_temperature
    }

    /// Turns products, already multiplied by [`Self::factor`], into logits in place:
    /// `cap / temperature · tanh(product)`. Does nothing without a soft cap.
    fn apply_soft_cap(&self, tile: &mut [f32]) {
        if let Some(cap) = self.soft_cap {
            let height = cap * self.inverse_temperature;
            vectorize!(tile.iter_mut().for_each(|z| *z = height * tanh(*z)));
        }
    }
}

/// The taps (values per row) of all rows; each list has one number for each row, in order.
#[derive(Clone, Debug, Default)]
pub struct HeadTaps {
    /// ln Σ exp of the logits.
    pub logsumexp: Vec<f32>,
    /// The taps that were asked for, the log-probability among them.
    pub values: Taps<Vec<f32>>,
}

/// The operands that all operations of the head have: `hidden` `[rows, hidden]`, `weight` `[vocabulary, hidden]`, and a
/// target token id for each row.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    hidden: &'a Tensor,
    weight: WeightRef<'a>,
    targets: &'a [u32],
    options: &'a HeadOptions,
}

impl Inputs<'_> {
    /// Checks the inputs and returns the accelerator that `hidden` and `weight` are on; `None` for the CPU. Does not
    /// check element types.
    ///
    /// # Errors
    /// [`Error::Shape`] if `weight` is no matrix, `hidden` is not `[targets, hidden]`, or a side of `weight` is 0.
    /// [`Error::Argument`] for a target outside the vocabulary, for inputs on different devices, and if `options` asks
    /// for the divergence, which needs a second head.
    fn accelerator(&self) -> Result<Option<Accelerator>> {
        let [words, width] = sides(self.weight, "weight")?;
        host::expect_shape(self.hidden, "hidden", &[self.targets.len(), width])?;
        check_below(self.targets, words, TOKEN)?;
        if self.options.taps.contains(Tap::Divergence) {
            return Err(Error::argument("a divergence needs the head of another model: `head_divergence` computes it"));
        }
        if words == 0 || width == 0 {
            return Err(Error::shape("a head needs a vocabulary"));
        }
        accelerator_with([(self.hidden, "hidden")], self.weight)
    }
}

/// Computes the taps of each row without keeping its logits. `hidden` is `[rows, hidden]`, f32 or bf16, with only the
/// rows that have a target; `weight` is the head, `[vocabulary, hidden]` in any stored format; `targets` has a token id
/// for each row. The log-probability is always among the taps. Waits for a device once.
///
/// # Errors
/// If the shapes do not fit each other, the vocabulary is empty, a target is outside it, or the inputs are on different
/// devices. On the CPU, [`Error::PastDeadline`] if the deadline of `options` passes before the last block of [`ROWS`]
/// rows.
pub fn head_taps<'w>(
    hidden: &Tensor,
    weight: impl Into<WeightRef<'w>>,
    targets: &[u32],
    options: &HeadOptions,
) -> Result<HeadTaps> {
    let inputs = Inputs { hidden, weight: weight.into(), targets, options };
    match inputs.accelerator()? {
        None => Ok(logprob_gradients::on_cpu(inputs, false)?.0),
        Some(device) => device::taps(&device, inputs),
    }
}

/// Computes all logits of some rows, after scale, soft cap and temperature: `hidden` is `[rows, hidden]`, `weight` is
/// `[vocabulary, hidden]` in any stored format, the result `[rows, vocabulary]` f32 on their device. Ignores the taps
/// and the deadline of `options`. For generation, on the last tokens only. Returns an error if the hidden sizes or the
/// devices of both differ.
pub fn logits<'w>(hidden: &Tensor, weight: impl Into<WeightRef<'w>>, options: &HeadOptions) -> Result<Tensor> {
    let weight = weight.into();
    if let Some(device) = accelerator_with([(hidden, "hidden")], weight)? {
        return device::logits(&device, hidden, weight, options);
    }
    let factor = options.factor();
    few_tokens_tiles(&LinearInput::of(hidden), weight, None, None, DType::F32, |tile| {
        for row in 0..tile.rows() {
            let row = tile.row(row);
            if factor != 1.0 {
                row.iter_mut().for_each(|z| *z *= factor);
            }
            options.apply_soft_cap(row);
        }
    })
}

/// The weight and the options of the head, shared by all tasks.
#[derive(Clone, Copy)]
struct Head<'a> {
    weight: View<'a>,
    options: &'a HeadOptions,
    /// The hidden size.
    width: usize,
}

impl<'a> Head<'a> {
    /// Borrows a weight and its options. The caller has checked that all inputs fit each other.
    fn new(stored: &'a Stored<'_>, options: &'a HeadOptions) -> Self {
        let weight = stored.view();
        Self { weight, options, width: weight.columns }
    }

    /// Splits the vocabulary into at most [`GROUPS`] ranges of token ids. All but the last have the same size, a
    /// multiple of [`WORDS`].
    fn groups(&self) -> Vec<Range<usize>> {
        let tiles = self.weight.rows.div_ceil(WORDS);
        let size = tiles.div_ceil(GROUPS) * WORDS;
        steps(0..self.weight.rows, size).collect()
    }

    /// Multiplies rows of hidden states, `[rows, hidden]`, with the weight's rows for the vocabulary entries `words`.
    /// Calls `work` with the products, `[rows, words]`, times [`HeadOptions::factor`] and before the soft cap, and with
    /// these rows of the weight, `[words, hidden]`.
    fn with_products(&self, hidden: Matrix<'_>, words: &Range<usize>, work: impl FnOnce(&mut [f32], Matrix<'_>)) {
        let rows = hidden.rows();
        scratch::with(rows * words.len(), |tile| {
            self.weight.with_block(words.clone(), 0..self.width, hidden.data(), |weight| {
                let mut products = Tile::from_slice(tile, rows, words.len());
                products.multiply_batch_invariant(false, self.options.factor(), hidden, weight.transposed());
                work(tile, weight);
            });
        });
    }
}

impl HeadTaps {
    /// Creates taps of no rows, with an empty list for each tap of the set.
    fn new(taps: TapSet) -> Self {
        Self { logsumexp: Vec::new(), values: taps.iter().map(|tap| (tap, Vec::new())).collect() }
    }

    /// Appends the taps of one row, computed from its sums over the whole vocabulary of `vocabulary` words.
    fn push(&mut self, sums: &Statistics, vocabulary: usize) {
        self.logsumexp.push(sums.logsumexp() as f32);
        self.values.iter_mut().for_each(|(tap, values)| values.push(sums.tap(tap, vocabulary) as f32));
    }
}

#[cfg(test)]
mod tests;
