//! Causal attention over packed sequences: exact, in tiles, without a score matrix of sequence × sequence.
//!
//! The forward pass uses an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022), per tile of queries and per
//! key-value head. Tiles of queries and blocks of keys begin at fixed positions, and products are batch-invariant, so a
//! token's result has the same bits whatever else is in the batch, and whether or not other sequences share its prefix.
//! The gradients are in `attention/backward.rs`, attention of one new token per sequence in `attention/cached.rs`,
//! kernel launches in `attention/device.rs`.

mod backward;
mod cached;
pub(super) mod device;

use std::ops::Range;

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::accelerator_of;
use super::host::{self, Locked};
use super::product::{Data, Matrix, Tile, steps};
use super::scratch;
use super::segments::{Segments, Span, split_at_multiples};
use super::simd::{exp, exp_in_place, largest, tanh, vectorize};
use crate::error::{Error, Result};

pub use backward::attention_backward;
pub(super) use cached::attention_cached;

/// Rows of a score tile: query tokens times the query heads that share a key-value head.
const ROWS: usize = 128;
/// Keys of a score tile.
const KEYS: usize = 256;

/// Configuration of an attention layer: its heads, and how scores are scaled, masked and capped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key-value heads; each serves `heads / kv_heads` consecutive query heads.
    pub kv_heads: usize,
    /// Features per head.
    pub head_dim: usize,
    /// The factor by which q·k is multiplied.
    pub scale: f32,
    /// Sliding window in tokens: query i sees key j ≤ i only if i − j is less than this. `None`: all keys j ≤ i.
    pub window: Option<usize>,
    /// The cap: scores become `cap · tanh(score / cap)` (Gemma 2). `None`: scores stay as they are.
    pub soft_cap: Option<f32>,
}

impl AttentionShape {
    /// The number of query heads that share a key-value head: `heads / kv_heads`.
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The number of features of all query heads that share a key-value head, `group · head_dim`. They are adjacent in
    /// a token's row of q.
    fn group_features(&self) -> usize {
        self.group() * self.head_dim
    }

    /// The number of query tokens in a score tile: [`ROWS`] divided by [`group`](Self::group), but at least 16.
    fn tile_tokens(&self) -> usize {
        (ROWS / self.group()).max(16)
    }

    /// The factor by which q·k is multiplied: `scale`, or `scale / cap` with a soft cap, because `cap · tanh(…)` takes
    /// scores divided by the cap.
    fn factor(&self) -> f32 {
        self.soft_cap.map_or(self.scale, |cap| self.scale / cap)
    }

    /// Returns which of the key positions `keys` the query at position `query` sees (causal mask and window), as a
    /// range relative to `keys.start`. The range is empty if it sees none of them.
    fn visible(&self, query: usize, keys: &Range<usize>) -> Range<usize> {
        let end = (query + 1).clamp(keys.start, keys.end);
        let start = self.first_key(query).clamp(keys.start, end);
        start - keys.start..end - keys.start
    }

    /// The smallest key position that the query at position `query` or a later query sees: 0 without a window.
    fn first_key(&self, query: usize) -> usize {
        self.window.map_or(0, |window| (query + 1).saturating_sub(window))
    }

    /// Checks the configuration: returns [`Error::Shape`] unless `heads` is a positive multiple of `kv_heads` and
    /// `head_dim` is above 0, and [`Error::Argument`] for a window of 0. Scale and soft cap are not checked.
    pub(super) fn check(&self) -> Result<()> {
        if self.kv_heads == 0 || self.head_dim == 0 || !self.heads.is_multiple_of(self.kv_heads) || self.heads == 0 {
            return Err(Error::shape(format!(
                "{} heads of {} features cannot share {} key-value heads",
                self.heads, self.head_dim, self.kv_heads
            )));
        }
        if self.window == Some(0) {
            return Err(Error::argument("an attention window of 0 sees nothing"));
        }
        Ok(())
    }

    /// Returns an error unless [`check`](Self::check) accepts the configuration, `q` is `[tokens, heads · head_dim]`,
    /// and `k` and `v` are `[tokens, kv_heads · head_dim]`, with as many tokens as `segments`.
    fn check_inputs(&self, q: &Tensor, k: &Tensor, v: &Tensor, segments: &Segments) -> Result<()> {
        self.check()?;
        let tokens = segments.tokens();
        host::expect_shape(q, "q", &[tokens, self.heads * self.head_dim])?;
        host::expect_shape(k, "k", &[tokens, self.kv_heads * self.head_dim])?;
        host::expect_shape(v, "v", &[tokens, self.kv_heads * self.head_dim])
    }
}

/// The operands of one call of [`attention`] or [`attention_backward`], shared by all tasks.
#[derive(Clone, Copy)]
struct Layer<'a> {
    shape: &'a AttentionShape,
    q: Data<'a>,
    k: Data<'a>,
    v: Data<'a>,
}

impl<'a> Layer<'a> {
    /// Returns a view of some rows of `source`, the layer's keys or values, for one key-value head: `[rows, head_dim]`.
    fn head(&self, source: Data<'a>, rows: Range<usize>, kv_head: usize) -> Matrix<'a> {
        let stride = self.shape.kv_heads * self.shape.head_dim;
        let start = rows.start * stride + kv_head * self.shape.head_dim;
        Matrix::new(source.skip(start), rows.len(), self.shape.head_dim, stride)
    }

    /// Returns the keys or values (`source`) of one key-value head at `positions` of a sequence, `[positions,
    /// head_dim]`. `path` lists the spans of tokens that the sequence consists of, with those of the sequences that it
    /// continues. If one span covers all positions, the result is a view of `source`. Otherwise the rows are copied
    /// into `spare`, which has room for `positions · head_dim` numbers at least, with zeros for positions past the end
    /// of the path.
    fn rows_at(
        &self,
        source: Data<'a>,
        path: &[Span],
        positions: &Range<usize>,
        kv_head: usize,
        spare: &'a mut [f32],
    ) -> Matrix<'a> {
        let within = |span: &&Span| {
            let covered = span.positions();
            covered.start <= positions.start && positions.end <= covered.end
        };
        if let Some(span) = path.iter().find(within) {
            return self.head(source, span.rows_of(positions), kv_head);
        }
        let (dim, stride) = (self.shape.head_dim, self.shape.kv_heads * self.shape.head_dim);
        let rows = path.iter().flat_map(|span| {
            let covered = span.positions();
            let (start, end) = (covered.start.max(positions.start), covered.end.min(positions.end));
            if start < end { span.rows_of(&(start..end)) } else { 0..0 }
        });
        let starts = rows.map(|row| row * stride + kv_head * dim);
        Matrix::new(copy_rows(source, starts, dim, &mut spare[..positions.len() * dim]), positions.len(), dim, dim)
    }

    /// Copies from the rows `rows` of `source`, `[tokens, heads · head_dim]`, the features of the query heads that
    /// share `kv_head` into `into`, and returns the copy, `[rows, group · head_dim]`, in the type of `source`. `into`
    /// has exactly as many elements as the copy.
    fn gather<'b>(&self, source: Data<'_>, rows: Range<usize>, kv_head: usize, into: &'b mut [f32]) -> Data<'b> {
        let (width, stride) = (self.shape.group_features(), self.shape.heads * self.shape.head_dim);
        copy_rows(source, rows.map(|row| row * stride + kv_head * width), width, into)
    }
}

/// Copies rows of `width` numbers of `source`, which begin at the indices `starts`, one after another into `into`, and
/// returns the copy in the type of `source`. The copy has `into.len()` elements; in bf16 it takes the first half of the
/// bytes of `into`. Elements after the last copied row are 0. Rows for which there is no room are not copied.
fn copy_rows<'b>(source: Data<'_>, starts: impl Iterator<Item = usize>, width: usize, into: &'b mut [f32]) -> Data<'b> {
    /// Copies rows of one element type, and fills the rows of `into` that are left with zeros.
    fn copy<T: Copy + Default>(from: &[T], starts: impl Iterator<Item = usize>, width: usize, into: &mut [T]) {
        let mut rows = into.chunks_exact_mut(width);
        starts.zip(&mut rows).for_each(|(start, row)| row.copy_from_slice(&from[start..][..width]));
        rows.for_each(|row| row.fill(T::default()));
    }
    match source {
        Data::F32(from) => {
            copy(from, starts, width, into);
            Data::F32(into)
        }
        Data::Bf16(from) => {
            let count = into.len();
            let into = &mut bytemuck::cast_slice_mut(into)[..count];
            copy(from, starts, width, into);
            Data::Bf16(into)
        }
    }
}

/// One tile of query tokens of one sequence: their rows in the batch, their positions in the sequence, and the path of
/// the sequence (see [`Segments::path`]), the spans of all tokens that it sees.
struct QueryTile<'a> {
    rows: Range<usize>,
    positions: Range<usize>,
    path: &'a [Span],
}

/// Computes causal attention: a token attends to itself, to the tokens before it in its sequence, and to the sequences
/// that its sequence continues (see [`Segments`]), all within the window of `shape`.
///
/// `q` is `[tokens, heads · head_dim]`, `k` and `v` are `[tokens, kv_heads · head_dim]`, f32 or bf16.
/// Returns the output, shaped like `q` and of its type, and the log Σ exp of the scores, `[tokens, heads]` f32, which
/// [`attention_backward`] needs. On a device, queues a kernel and does not wait for it.
///
/// # Errors
/// If `heads` of `shape` is not a positive multiple of `kv_heads`, `head_dim` or the window is 0, an operand has
/// another shape, type or device than described, or, on a device, a head has more than 256 features.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    segments: &Segments,
    shape: &AttentionShape,
) -> Result<(Tensor, Tensor)> {
    shape.check_inputs(q, k, v, segments)?;
    if let Some(device) = accelerator_of([(q, "q"), (k, "k"), (v, "v")])? {
        return device::attention(&device, [q, k, v], segments, shape);
    }
    let locked = [Locked::of(q, "q")?, Locked::of(k, "k")?, Locked::of(v, "v")?];
    let layer = Layer { shape, q: locked[0].data("q")?, k: locked[1].data("k")?, v: locked[2].data("v")? };
    let (tokens, features) = (segments.tokens(), shape.heads * shape.head_dim);
    let (mut out, mut sums) = (host::zeros(tokens * features), vec![0.0; tokens * shape.heads]);
    let paths: Vec<Vec<Span>> = (0..segments.count()).map(|number| segments.path(number)).collect();
    let mut tiles = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let own = segments.span(number);
        let cuts = split_at_multiples(own.positions(), shape.tile_tokens());
        tiles.extend(cuts.map(|positions| QueryTile { rows: own.rows_of(&positions), positions, path }));
    }
    // A task for each tile of queries and key-value head.
    let heights = || tiles.iter().map(|tile| tile.rows.len());
    let outs = Tile::from_slice(&mut out, tokens, features).split_into_bands(heights(), shape.group_features());
    let logs = Tile::from_slice(&mut sums, tokens, shape.heads).split_into_bands(heights(), shape.group());
    outs.into_par_iter().zip(logs).enumerate().with_max_len(1).for_each(|(task, (mut out, mut log))| {
        attend_tile(layer, &tiles[task / shape.kv_heads], task % shape.kv_heads, &mut out, &mut log);
    });
    Ok((host::tensor_in(q.dtype(), out, &[tokens, features])?, host::tensor(sums, &[tokens, shape.heads])?))
}

/// The state of the online softmax of one row: the largest score so far, and Σ exp(score − largest).
#[derive(Clone, Copy)]
struct SoftmaxState {
    largest: f32,
    sum: f32,
}

/// Computes attention for one tile of query tokens and the query heads of one key-value head. Writes the output to
/// `out`, `[tokens, group · head_dim]`, and the log Σ exp of the scores to `log`, `[tokens, group]`.
///
/// Goes through the keys in blocks of [`KEYS`], from the block of the first visible key on. The last block ends where a
/// whole tile of queries would end, even past the end of the sequence; keys past the end are masked. So the products
/// have the same shape however short the tile is.
fn attend_tile(layer: Layer<'_>, tile: &QueryTile<'_>, kv_head: usize, out: &mut Tile<'_>, log: &mut Tile<'_>) {
    let shape = layer.shape;
    let (group, dim) = (shape.group(), shape.head_dim);
    let rows = tile.rows.len() * group;
    let (start, whole) = (tile.positions.start, shape.tile_tokens());
    let (first, end) = (shape.first_key(start) / KEYS * KEYS, (start / whole + 1) * whole);
    let lengths = [rows * dim, rows * dim, rows * KEYS, KEYS * dim];
    scratch::with_parts(lengths, |[queries, sums, scores, spare]| {
        let queries = layer.gather(layer.q, tile.rows.clone(), kv_head, queries);
        sums.fill(0.0);
        let mut running = vec![SoftmaxState { largest: f32::NEG_INFINITY, sum: 0.0 }; rows];
        for keys in steps(first..end, KEYS) {
            let scores = &mut scores[..rows * keys.len()];
            let left = Matrix::new(queries, rows, dim, dim);
            let right = layer.rows_at(layer.k, tile.path, &keys, kv_head, spare).transposed();
            Tile::from_slice(scores, rows, keys.len()).multiply_batch_invariant(false, shape.factor(), left, right);
            for (row, scores) in scores.chunks_exact_mut(keys.len()).enumerate() {
                let visible = shape.visible(start + row / group, &keys);
                let sums = &mut sums[row * dim..][..dim];
                vectorize!(fold_scores(scores, visible, shape.soft_cap, &mut running[row], sums));
            }
            let left = Matrix::packed(scores, rows, keys.len());
            let right = layer.rows_at(layer.v, tile.path, &keys, kv_head, spare);
            Tile::from_slice(sums, rows, dim).multiply_batch_invariant(true, 1.0, left, right);
        }
        for (row, (state, sums)) in running.iter().zip(sums.chunks_exact(dim)).enumerate() {
            let (token, head) = (row / group, row % group);
            let out = &mut out.row(token)[head * dim..][..dim];
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / state.sum);
            log.row(token)[head] = state.largest + state.sum.ln();
        }
    });
}

/// Adds a block of scores to the running softmax of a query row. Replaces the scores of visible keys by exp(score − the
/// largest score so far), after the soft cap, and the other scores by 0. If the largest score grows, rescales
/// `running.sum` and `sums`, the weighted sums of values. Then adds the new weights to `running.sum`. `visible` is a
/// range of indices in `scores`; if it is empty, only the zeros are written. With a soft cap, `scores` are given
/// divided by the cap.
#[inline(always)]
fn fold_scores(
    scores: &mut [f32],
    visible: Range<usize>,
    soft_cap: Option<f32>,
    running: &mut SoftmaxState,
    sums: &mut [f32],
) {
    scores[..visible.start].fill(0.0);
    scores[visible.end..].fill(0.0);
    let scores = &mut scores[visible];
    if scores.is_empty() {
        return;
    }
    if let Some(cap) = soft_cap {
        scores.iter_mut().for_each(|score| *score = cap * tanh(*score));
    }
    let best = largest(scores);
    if best > running.largest {
        let shrink = exp(running.largest - best);
        running.sum *= shrink;
        sums.iter_mut().for_each(|sum| *sum *= shrink);
        running.largest = best;
    }
    running.sum += exp_in_place(scores, running.largest);
}

#[cfg(test)]
mod tests;
