//! The gradients of attention, with the weights computed again from the scores and their log Σ exp.
//!
//! A task has a sequence, a key-value head and a block of keys, whose gradients it alone sums. Queries that see
//! several blocks get a part from each; the parts are added in the order of the blocks.

use std::ops::Range;

use candle_core::Tensor;
use rayon::prelude::*;

use super::{AttentionShape, Layer};
use crate::error::Result;
use crate::fused::host::{self, Floats};
use crate::fused::lanes::{dot, exp, tanh, wide};
use crate::fused::linear::plus;
use crate::fused::product::{Matrix, Tile, steps};
use crate::fused::scratch;
use crate::fused::segments::Segments;

/// Keys of a task.
const BLOCK: usize = 512;

/// What comes back from the layers above, and what the forward pass left.
#[derive(Clone, Copy)]
struct Above<'a> {
    dout: &'a [f32],
    out: &'a [f32],
    lse: &'a [f32],
}

/// What one task works on; keys are counted from the start of the sequence.
struct Task {
    segment: Range<usize>,
    kv_head: usize,
    keys: Range<usize>,
}

impl Task {
    /// The queries that see any of the keys, counted from the start of the sequence.
    fn queries(&self, shape: &AttentionShape) -> Range<usize> {
        let end = shape.window.map_or(usize::MAX, |window| self.keys.end - 1 + window).min(self.segment.len());
        self.keys.start..end
    }
}

/// The gradients of [`attention`](super::attention) by q, k and v, shaped like them. `dout` is the gradient by the
/// output; `out` and `lse` are what the forward pass returned.
#[expect(clippy::too_many_arguments, reason = "the inputs, the outputs and the gradient of one operation")]
pub fn attention_backward(
    dout: &Tensor,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    out: &Tensor,
    lse: &Tensor,
    segments: &Segments,
    shape: &AttentionShape,
) -> Result<(Tensor, Tensor, Tensor)> {
    shape.check_inputs(q, k, v, segments)?;
    host::expect(dout, "dout", q.dims())?;
    host::expect(out, "out", q.dims())?;
    host::expect(lse, "lse", &[segments.tokens(), shape.heads])?;
    let (queries, keys, values) = (Floats::of(q, "q")?, Floats::of(k, "k")?, Floats::of(v, "v")?);
    let (seeds, outs, sums) = (Floats::of(dout, "dout")?, Floats::of(out, "out")?, Floats::of(lse, "lse")?);
    let layer = Layer { shape, q: queries.slice(), k: keys.slice(), v: values.slice() };
    let above = Above { dout: seeds.slice(), out: outs.slice(), lse: sums.slice() };
    let tasks = tasks(segments, shape);
    let (tokens, width) = (segments.tokens(), shape.kv_heads * shape.head_dim);
    let (mut dk, mut dv) = (vec![0.0; tokens * width], vec![0.0; tokens * width]);
    let heights = || tasks.iter().step_by(shape.kv_heads).map(|task| task.keys.len());
    let dks = Tile::whole(&mut dk, tokens, width).cut(heights(), shape.head_dim);
    let dvs = Tile::whole(&mut dv, tokens, width).cut(heights(), shape.head_dim);
    let parts: Vec<Vec<f32>> = tasks
        .par_iter()
        .zip(dks)
        .zip(dvs)
        .with_max_len(1)
        .map(|((task, mut dk), mut dv)| block(layer, above, task, &mut dk, &mut dv))
        .collect();
    let dq = gather_parts(&tasks, &parts, segments, shape);
    Ok((host::tensor(dq, q.dims())?, host::tensor(dk, k.dims())?, host::tensor(dv, v.dims())?))
}

/// All tasks, in the order of rows first and of heads second.
fn tasks(segments: &Segments, shape: &AttentionShape) -> Vec<Task> {
    let mut tasks = Vec::new();
    for segment in segments.ranges() {
        for keys in steps(0..segment.len(), BLOCK) {
            let all = 0..shape.kv_heads;
            tasks.extend(all.map(|kv_head| Task { segment: segment.clone(), kv_head, keys: keys.clone() }));
        }
    }
    tasks
}

/// Adds the parts of dq in the order of the key blocks.
fn gather_parts(tasks: &[Task], parts: &[Vec<f32>], segments: &Segments, shape: &AttentionShape) -> Vec<f32> {
    let (tokens, width) = (segments.tokens(), shape.group_features());
    let mut dq = vec![0.0; tokens * shape.heads * shape.head_dim];
    let lengths = segments.ranges().map(|range| range.len()).filter(|length| *length > 0);
    let tiles = Tile::whole(&mut dq, tokens, shape.kv_heads * width).cut(lengths, width);
    let starts = segments.ranges().filter(|range| !range.is_empty()).map(|range| range.start);
    let places: Vec<(usize, usize)> =
        starts.flat_map(|start| (0..shape.kv_heads).map(move |head| (start, head))).collect();
    tiles.into_par_iter().zip(places).for_each(|(mut tile, (start, kv_head))| {
        let mine = tasks.iter().zip(parts).filter(|(task, _)| task.segment.start == start && task.kv_head == kv_head);
        for (task, part) in mine {
            for (row, part) in task.queries(shape).zip(part.chunks_exact(width)) {
                plus(tile.row(row), part);
            }
        }
    });
    dq
}

/// One block of keys: fills its dk and dv, returns the part of dq for the queries that see it.
fn block(layer: Layer<'_>, above: Above<'_>, task: &Task, dk: &mut Tile<'_>, dv: &mut Tile<'_>) -> Vec<f32> {
    let shape = layer.shape;
    let queries = task.queries(shape);
    let mut part = vec![0.0; queries.len() * shape.group_features()];
    let parts = part.chunks_mut(shape.tile_tokens() * shape.group_features());
    for (tile, part) in steps(queries, shape.tile_tokens()).zip(parts) {
        let rows = tile.len() * shape.group();
        let low = shape.first_key(tile.start).max(task.keys.start);
        let keys = low..task.keys.end.min(tile.end);
        if keys.is_empty() {
            continue;
        }
        let inside = keys.start - task.keys.start..keys.end - task.keys.start;
        let mut dk = dk.part(inside.clone(), 0..shape.head_dim);
        let mut dv = dv.part(inside, 0..shape.head_dim);
        scratch::with(rows * (3 * shape.head_dim + 2 * keys.len()), |buffer| {
            let [queries, dout, out, weights, slopes] = split(buffer, rows, shape.head_dim, keys.len());
            let absolute = task.segment.start + tile.start..task.segment.start + tile.end;
            layer.gather(layer.q, absolute.clone(), task.kv_head, queries);
            layer.gather(above.dout, absolute.clone(), task.kv_head, dout);
            layer.gather(above.out, absolute, task.kv_head, out);
            let keys_matrix = layer.head(layer.k, at(task, &keys), task.kv_head);
            let queries = Matrix::packed(queries, rows, shape.head_dim);
            Tile::whole(weights, rows, keys.len()).multiply(false, shape.factor(), queries, keys_matrix.transposed());
            let seeds = Matrix::packed(dout, rows, shape.head_dim);
            let values = layer.head(layer.v, at(task, &keys), task.kv_head).transposed();
            Tile::whole(slopes, rows, keys.len()).multiply(false, 1.0, seeds, values);
            score_gradients(shape, above.lse, task, &tile, &keys, (weights, slopes), (dout, out));
            let (weights, slopes) =
                (Matrix::packed(weights, rows, keys.len()), Matrix::packed(slopes, rows, keys.len()));
            dv.multiply(true, 1.0, weights.transposed(), seeds);
            dk.multiply(true, shape.scale, slopes.transposed(), queries);
            Tile::whole(part, rows, shape.head_dim).multiply(false, shape.scale, slopes, keys_matrix);
        });
    }
    part
}

/// The rows of a task's keys in the packed batch.
fn at(task: &Task, keys: &Range<usize>) -> Range<usize> {
    task.segment.start + keys.start..task.segment.start + keys.end
}

/// Three buffers of `rows × dim` and two of `rows × keys`.
fn split(buffer: &mut [f32], rows: usize, dim: usize, keys: usize) -> [&mut [f32]; 5] {
    let (queries, rest) = buffer.split_at_mut(rows * dim);
    let (dout, rest) = rest.split_at_mut(rows * dim);
    let (out, rest) = rest.split_at_mut(rows * dim);
    let (weights, slopes) = rest.split_at_mut(rows * keys);
    [queries, dout, out, weights, slopes]
}

/// Scores become weights and gradients by weights become gradients by scores, row by row:
/// `p = exp(s − lse)`, `ds = p·(dp − Σ dout·out)`, times the slope of the soft cap.
fn score_gradients(
    shape: &AttentionShape,
    lse: &[f32],
    task: &Task,
    tile: &Range<usize>,
    keys: &Range<usize>,
    (weights, slopes): (&mut [f32], &mut [f32]),
    (dout, out): (&[f32], &[f32]),
) {
    let (group, dim) = (shape.group(), shape.head_dim);
    let rows = weights.chunks_exact_mut(keys.len()).zip(slopes.chunks_exact_mut(keys.len()));
    for (row, (weights, slopes)) in rows.enumerate() {
        let query = tile.start + row / group;
        let visible = shape.visible(query, keys);
        for numbers in [&mut *weights, &mut *slopes] {
            numbers[..visible.start].fill(0.0);
            numbers[visible.end..].fill(0.0);
        }
        let log = lse[(task.segment.start + query) * shape.heads + task.kv_head * group + row % group];
        let (weights, slopes) = (&mut weights[visible.clone()], &mut slopes[visible]);
        let (dout, out) = (&dout[row * dim..][..dim], &out[row * dim..][..dim]);
        wide(
            #[inline(always)]
            || match shape.soft_cap {
                None => plain_row(weights, slopes, log, dot(dout, out)),
                Some(cap) => capped_row(weights, slopes, log, dot(dout, out), cap),
            },
        );
    }
}

#[inline(always)]
fn plain_row(weights: &mut [f32], slopes: &mut [f32], log: f32, mean: f32) {
    for (weight, slope) in weights.iter_mut().zip(slopes) {
        *weight = exp(*weight - log);
        *slope = *weight * (*slope - mean);
    }
}

#[inline(always)]
fn capped_row(weights: &mut [f32], slopes: &mut [f32], log: f32, mean: f32, cap: f32) {
    for (weight, slope) in weights.iter_mut().zip(slopes) {
        let bent = tanh(*weight);
        *weight = exp(cap.mul_add(bent, -log));
        *slope = *weight * (*slope - mean) * (1.0 - bent * bent);
    }
}
