//! Rotary position embedding (Su et al. 2021) and its gradient.
//!
//! In each head, two features are rotated together by the angle position · frequency(i): i and i + half, the
//! half-rotation form of most Hugging Face models, or the adjacent ones 2i and 2i + 1. The gradient is the rotation by
//! the negative angle. The model computes the frequencies.

use std::sync::OnceLock;

use candle_core::{Device, Tensor};

use super::backend::accelerator_of;
use super::chunks::map_chunks;
use super::device::expect_type;
use super::host;
use super::indices::{Indices, check_below, copied_once};
use super::simd::vectorize;
use crate::accelerator::{Accelerator, Argument, Grid, arguments, extent, is_aligned, kernel};
use crate::error::{Error, Result};

/// The rows of one task hold about this many numbers.
const TASK_NUMBERS: usize = 1 << 15;
/// Threads of a device's block.
const THREADS: u32 = 256;
/// Feature pairs that one thread of a device rotates, where operands are aligned for vector loads.
const EIGHT: usize = 8;

/// The cosines and sines of all angles, `[positions, half]` each.
#[derive(Clone, Debug)]
pub struct RopeTable {
    /// Cosines, times the attention factor.
    cos: Vec<f32>,
    /// Sines, times the attention factor.
    sin: Vec<f32>,
    /// The number of frequencies: half of the number of features of a head that are rotated.
    half: usize,
    /// Whether the features 2i and 2i + 1 of a head are rotated together, not i and i + half.
    adjacent: bool,
    /// Copies of cosines and sines on the first device that asked.
    copies: OnceLock<[Tensor; 2]>,
}

impl RopeTable {
    /// Computes cosines and sines, `[positions, inv_freq.len()]` each, for positions 0 … `positions` − 1: of position ·
    /// inverse frequency, times `attention_factor`. Computes in f64 and rounds to f32. `attention_factor` is 1 except
    /// for scalings that sharpen attention (YaRN and its relatives).
    #[must_use]
    pub fn from_frequencies(inv_freq: &[f64], positions: usize, attention_factor: f64) -> Self {
        let angles =
            || (0..positions).flat_map(|position| inv_freq.iter().map(move |frequency| position as f64 * frequency));
        Self {
            cos: angles().map(|angle| (angle.cos() * attention_factor) as f32).collect(),
            sin: angles().map(|angle| (angle.sin() * attention_factor) as f32).collect(),
            half: inv_freq.len(),
            adjacent: false,
            copies: OnceLock::new(),
        }
    }

    /// Sets whether the features 2i and 2i + 1 of a head are rotated together; else i and i + half are.
    #[must_use]
    pub fn with_adjacent_pairs(self, adjacent: bool) -> Self {
        Self { adjacent, ..self }
    }

    /// Appends the rows of `other` to the table: position 0 of `other` becomes the first position after the table's
    /// last one. Drops the copies on a device.
    ///
    /// # Errors
    /// [`Error::Shape`] if `other` rotates another number of features.
    pub fn followed_by(mut self, other: Self) -> Result<Self> {
        if self.half != other.half {
            return Err(Error::shape(format!("a table of {} angles does not go on with {}", self.half, other.half)));
        }
        self.cos.extend(other.cos);
        self.sin.extend(other.sin);
        self.copies = OnceLock::new();
        Ok(self)
    }

    /// The number of positions in the table; 0 for a table without frequencies.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.cos.len() / self.half.max(1)
    }

    /// Returns cosines and sines on a device, `[positions, half]` each. Keeps the copies for the first device that
    /// asks; another device gets new copies on each call.
    fn copies_on(&self, device: &Device) -> Result<(Tensor, Tensor)> {
        let copy = |numbers: &[f32]| Tensor::from_slice(numbers, (self.positions(), self.half), device);
        let [cos, sin] = copied_once(&self.copies, device, || Ok([copy(&self.cos)?, copy(&self.sin)?]))?;
        Ok((cos, sin))
    }
}

/// Rotates each head of `x`, `[tokens, heads · head_dim]`, by the position of its token; `inverse` rotates by the
/// negative angle, as the backward pass needs. `positions` has a row of `table` for each token. The table says which
/// features of a head are rotated together, for i below its `half`; features from `2 · half` on stay as they are. The
/// result has the type of `x`.
///
/// # Errors
/// [`Error::Shape`] if `x` is not `heads` heads of at least `2 · half` features, or there is not one position for each
/// token; [`Error::Argument`] for a position past the table.
pub fn rope(x: &Tensor, heads: usize, positions: &Indices, table: &RopeTable, inverse: bool) -> Result<Tensor> {
    let (tokens, features) = host::matrix_dims(x, "x")?;
    check_operands(tokens, features, heads, positions, table)?;
    let sign = if inverse { -1.0 } else { 1.0 };
    if let Some(device) = accelerator_of([(x, "x")])? {
        return rope_on_device(&device, x, heads, positions, table, sign);
    }
    let (half, head) = (table.half, features / heads);
    let task = (TASK_NUMBERS / features.max(1)).max(1);
    let [y] = map_chunks([(x, "x")], (task * features).max(1), |index, [x], [y]| {
        let positions = &positions[index * task..];
        for ((y, x), position) in y.chunks_exact_mut(features).zip(x.chunks_exact(features)).zip(positions) {
            let row = *position as usize * half..(*position as usize + 1) * half;
            let (cos, sin) = (&table.cos[row.clone()], &table.sin[row]);
            let heads = y.chunks_exact_mut(head).zip(x.chunks_exact(head));
            match table.adjacent {
                true => vectorize!(heads.for_each(|(y, x)| rotate_adjacent(y, x, cos, sin, sign))),
                false => vectorize!(heads.for_each(|(y, x)| rotate_head(y, x, cos, sin, sign))),
            }
        }
    })?;
    y
}

/// Queues rotating each head of `x` by the position of its token on a device; a `sign` of −1 rotates back. Returns a
/// new tensor, or one that shares the memory of `x` if there are no tokens or the table has no frequencies. The caller
/// has checked shapes and positions.
fn rope_on_device(
    device: &Accelerator,
    x: &Tensor,
    heads: usize,
    positions: &Indices,
    table: &RopeTable,
    sign: f32,
) -> Result<Tensor> {
    let (act, (tokens, features)) = (expect_type(x, "x")?, host::matrix_dims(x, "x")?);
    if table.half == 0 || tokens == 0 {
        return Ok(x.clone());
    }
    let (half, head, known) = (table.half, features / heads, table.positions());
    let (places, (cos, sin)) = (positions.on(x.device())?, table.copies_on(x.device())?);
    let eights = !table.adjacent && [half, head].iter().all(|side| side.is_multiple_of(EIGHT)) && is_aligned(x);
    let (kernel, pieces) = if eights { (&kernel::ROPE_EIGHTS, half / EIGHT) } else { (&kernel::ROPE, half) };
    let blocks = extent(tokens * heads * pieces)?.div_ceil(THREADS);
    let (stride, fault) = (features as u64, Argument::FaultWord);
    // From one pair to the next, and from the first feature of a pair to the second.
    let (step, apart) = if table.adjacent { (2_usize, 1_usize) } else { (1, half) };
    let arguments =
        arguments![x, &places, &cos, &sin, tokens, heads, head, half, step, apart, stride, stride, known, sign, fault];
    device.compute(kernel, act, Grid::of(blocks, THREADS), x.dims(), &arguments)
}

/// Writes one head of one token, `x`, rotated, to `y`. `cos` and `sin` are those of the token's position, `[half]`;
/// features from 2 · half on are copied. A `sign` of −1 rotates back.
#[inline(always)]
fn rotate_head(y: &mut [f32], x: &[f32], cos: &[f32], sin: &[f32], sign: f32) {
    let half = cos.len();
    let (first, rest) = y.split_at_mut(half);
    let (second, tail) = rest.split_at_mut(half);
    tail.copy_from_slice(&x[2 * half..]);
    let (low, high) = (&x[..half], &x[half..2 * half]);
    for i in 0..half {
        first[i] = low[i] * cos[i] - high[i] * sin[i] * sign;
        second[i] = high[i] * cos[i] + low[i] * sin[i] * sign;
    }
}

/// Writes one head of one token, `x`, with adjacent features rotated together, to `y`. `cos` and `sin` are those of the
/// token's position, `[half]`; features from 2 · half on are copied. A `sign` of −1 rotates back.
#[inline(always)]
fn rotate_adjacent(y: &mut [f32], x: &[f32], cos: &[f32], sin: &[f32], sign: f32) {
    let turned = 2 * cos.len();
    y[turned..].copy_from_slice(&x[turned..]);
    let pairs = y[..turned].as_chunks_mut::<2>().0.iter_mut().zip(x[..turned].as_chunks::<2>().0);
    for (([first, second], [low, high]), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
        *first = low * cos - high * sin * sign;
        *second = high * cos + low * sin * sign;
    }
}

/// Returns an error if `heads` does not divide `features`, a head has fewer than the table's `2 · half` features, there
/// is not one position per token, or a position is past the table. Positions are not checked if the table has no
/// frequencies.
fn check_operands(tokens: usize, features: usize, heads: usize, positions: &[u32], table: &RopeTable) -> Result<()> {
    if heads == 0 || !features.is_multiple_of(heads) || 2 * table.half > features / heads {
        return Err(Error::shape(format!("{features} features are not {heads} heads of at least {}", 2 * table.half)));
    }
    if positions.len() != tokens {
        return Err(Error::shape(format!("{} positions for {tokens} tokens", positions.len())));
    }
    if table.half == 0 { Ok(()) } else { check_below(positions, table.positions(), ["position", "of the table"]) }
}

#[cfg(test)]
mod tests;
