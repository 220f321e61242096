//! The gradients of attention, with the softmax weights computed again from the scores and their log Σ exp.
//!
//! A task covers a block of keys of a sequence and a key-value head. It alone sums the gradients of these keys and
//! values: over the queries of that sequence and of all sequences that continue it. A query that sees several blocks of
//! keys gets a part of its dq from each task; the parts are added in the order of the blocks.

use std::ops::Range;

use candle_core::Tensor;
use rayon::prelude::*;

use super::{AttentionShape, Layer, device};
use crate::error::Result;
use crate::fused::backend::accelerator_of;
use crate::fused::host::{self, Floats, Locked};
use crate::fused::linear::add_assign;
use crate::fused::product::{Data, Matrix, Tile, steps, widen};
use crate::fused::scratch;
use crate::fused::segments::{Segments, Span};
use crate::fused::simd::{dot, exp, fold2, tanh, vectorize};

/// Keys of a task.
const BLOCK: usize = 512;
/// Parts of dq are added up as soon as they hold this many f32 numbers. Without the limit their memory would be
/// quadratic in the length of a sequence.
const WAITING: usize = 1 << 23;
/// Rows of dq that are added up in one task.
const SUM_ROWS: usize = 64;

/// The inputs of the backward pass besides q, k and v: the gradient with respect to the output, and the output and log
/// Σ exp (`lse`) of the forward pass.
#[derive(Clone, Copy)]
struct BackwardInputs<'a> {
    dout: Data<'a>,
    out: Data<'a>,
    lse: &'a [f32],
}

/// A block of keys of one key-value head, and the queries that may see them.
struct Task {
    kv_head: usize,
    /// The positions of its keys, and their rows.
    keys: Span,
    /// The queries that may see any of the keys: those of the keys' own sequence first. The rows of all spans are
    /// adjacent.
    queries: Vec<Span>,
}

impl Task {
    /// The range of rows that the queries of the task cover; empty if there are none.
    fn rows(&self) -> Range<usize> {
        let ends = self.queries.first().zip(self.queries.last());
        ends.map_or(0..0, |(first, last)| first.rows.start..last.rows.end)
    }
}

/// Computes the backward pass of [`attention`](super::attention): returns (dq, dk, dv), the gradients with respect to
/// q, k and v, shaped like them and of their type. `dout` is the gradient with respect to the output, `[tokens, heads ·
/// head_dim]`; `out` and `lse` (log Σ exp, `[tokens, heads]` f32) are what the forward pass returned. On a device,
/// queues kernels and does not wait for them.
///
/// # Errors
/// If `heads` of `shape` is not a positive multiple of `kv_heads`, `head_dim` or the window is 0, an operand has
/// another shape, type or device than described, or, on a device, a head has more than 256 features.
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
    host::expect_shape(dout, "dout", q.dims())?;
    host::expect_shape(out, "out", q.dims())?;
    host::expect_shape(lse, "lse", &[segments.tokens(), shape.heads])?;
    if let Some(device) = accelerator_of([(q, "q"), (k, "k"), (v, "v"), (dout, "dout"), (out, "out"), (lse, "lse")])? {
        return device::attention_backward(&device, [q, k, v], [dout, out, lse], segments, shape);
    }
    let locked = [Locked::of(q, "q")?, Locked::of(k, "k")?, Locked::of(v, "v")?];
    let layer = Layer { shape, q: locked[0].data("q")?, k: locked[1].data("k")?, v: locked[2].data("v")? };
    let locked = [Locked::of(dout, "dout")?, Locked::of(out, "out")?];
    let inputs =
        BackwardInputs { dout: locked[0].data("dout")?, out: locked[1].data("out")?, lse: &Floats::of(lse, "lse")? };
    let tasks = build_tasks(segments, shape);
    let (tokens, width) = (segments.tokens(), shape.kv_heads * shape.head_dim);
    let (mut dk, mut dv) = (host::zeros(tokens * width), host::zeros(tokens * width));
    let mut dq = host::zeros(tokens * shape.heads * shape.head_dim);
    let heights = || tasks.iter().step_by(shape.kv_heads).map(|task| task.keys.rows.len());
    let mut dks = Tile::from_slice(&mut dk, tokens, width).split_into_bands(heights(), shape.head_dim).into_iter();
    let mut dvs = Tile::from_slice(&mut dv, tokens, width).split_into_bands(heights(), shape.head_dim).into_iter();
    for tasks in split_by_memory(&tasks, shape) {
        let tiles: Vec<_> = dks.by_ref().zip(dvs.by_ref()).take(tasks.len()).collect();
        let parts: Vec<Vec<f32>> = tasks
            .par_iter()
            .zip(tiles)
            .with_max_len(1)
            .map(|(task, (mut dk, mut dv))| task_gradients(layer, inputs, task, &mut dk, &mut dv))
            .collect();
        add_parts(tasks, &parts, Tile::from_slice(&mut dq, tokens, shape.heads * shape.head_dim), shape);
    }
    let tensor = |numbers, like: &Tensor| host::tensor_in(like.dtype(), numbers, like.dims());
    Ok((tensor(dq, q)?, tensor(dk, k)?, tensor(dv, v)?))
}

/// Creates a task for each block of [`BLOCK`] keys of a sequence, the last block possibly shorter, and each key-value
/// head. Tasks are in the order of their keys' rows; those of the same rows are in the order of heads.
fn build_tasks(segments: &Segments, shape: &AttentionShape) -> Vec<Task> {
    let mut tasks = Vec::new();
    for number in 0..segments.count() {
        let own = segments.span(number);
        for positions in steps(own.positions(), BLOCK) {
            let keys = Span { first: positions.start, rows: own.rows_of(&positions) };
            let all = 0..shape.kv_heads;
            tasks.extend(all.map(|kv_head| Task {
                kv_head,
                keys: keys.clone(),
                queries: query_spans(segments, number, &positions, shape),
            }));
        }
    }
    tasks
}

/// Returns the spans of queries that may see the keys at positions `keys` of the sequence with index `number`: first
/// the sequence's own queries from the first key on, then the queries of the sequences that continue it. The window
/// shortens the first span only if there are no others.
fn query_spans(segments: &Segments, number: usize, keys: &Range<usize>, shape: &AttentionShape) -> Vec<Span> {
    let mut found: Vec<Span> = segments.family(number).filter(|one| !one.rows.is_empty()).collect();
    // The rows of all spans lie side by side, so the own span is cut at the window only if it is the last.
    let window = shape.window.filter(|_| found.len() == 1);
    let end = window.map_or(usize::MAX, |window| (keys.end - 1).saturating_add(window));
    if let Some(own) = found.first_mut() {
        *own = Span { first: keys.start, rows: own.rows_of(&(keys.start..own.positions().end.min(end))) };
    }
    found
}

/// Splits tasks into consecutive groups; the parts of dq of one group are in memory at the same time. A group ends with
/// the task whose part brings the group to [`WAITING`] numbers, so it may exceed that. The last group may be smaller.
fn split_by_memory<'a>(tasks: &'a [Task], shape: &AttentionShape) -> Vec<&'a [Task]> {
    let mut waiting = 0;
    let portions = tasks.split_inclusive(|task| {
        waiting += task.rows().len() * shape.group_features();
        let is_full = waiting >= WAITING;
        waiting = if is_full { 0 } else { waiting };
        is_full
    });
    portions.collect()
}

/// Adds the parts of dq, of which `parts[i]` belongs to `tasks[i]`, to the rows and head features that the tasks cover,
/// in the order of the tasks.
fn add_parts(tasks: &[Task], parts: &[Vec<f32>], dq: Tile<'_>, shape: &AttentionShape) {
    let width = shape.group_features();
    dq.grid(SUM_ROWS, width).into_par_iter().for_each(|(rows, columns, mut tile)| {
        for (task, part) in tasks.iter().zip(parts).filter(|(task, _)| task.kv_head * width == columns.start) {
            let covered = task.rows();
            for row in covered.start.max(rows.start)..covered.end.min(rows.end) {
                add_assign(tile.row(row - rows.start), &part[(row - covered.start) * width..][..width]);
            }
        }
    });
}

/// Computes the gradients of one task: adds those of its keys and values to `dk` and `dv`, `[keys, head_dim]`. Returns
/// its part of dq, `[query rows, group · head_dim]`.
fn task_gradients(
    layer: Layer<'_>,
    inputs: BackwardInputs<'_>,
    task: &Task,
    dk: &mut Tile<'_>,
    dv: &mut Tile<'_>,
) -> Vec<f32> {
    let (shape, width) = (layer.shape, layer.shape.group_features());
    let rows = task.rows();
    let mut part = vec![0.0; rows.len() * width];
    for span in &task.queries {
        for positions in steps(span.positions(), shape.tile_tokens()) {
            let queries = Span { first: positions.start, rows: span.rows_of(&positions) };
            let into = &mut part[(queries.rows.start - rows.start) * width..][..positions.len() * width];
            tile_gradients(layer, inputs, task, &queries, (&mut *dk, &mut *dv, into));
        }
    }
    part
}

/// Computes the gradients of one tile of a task's queries, the tokens `tile`: adds to `dk` and `dv`, `[keys,
/// head_dim]`, and overwrites `part`, the dq of these queries, `[queries, group · head_dim]`. Does nothing if none of
/// them sees a key of the task.
fn tile_gradients(
    layer: Layer<'_>,
    inputs: BackwardInputs<'_>,
    task: &Task,
    tile: &Span,
    (dk, dv, part): (&mut Tile<'_>, &mut Tile<'_>, &mut [f32]),
) {
    let (shape, all) = (layer.shape, task.keys.positions());
    let rows = tile.rows.len() * shape.group();
    let keys = shape.first_key(tile.first).max(all.start)..all.end.min(tile.positions().end);
    if keys.is_empty() {
        return;
    }
    let inside = keys.start - all.start..keys.end - all.start;
    let mut dk = dk.part(inside.clone(), 0..shape.head_dim);
    let mut dv = dv.part(inside, 0..shape.head_dim);
    let (vectors, scores) = (rows * shape.head_dim, rows * keys.len());
    let lengths = [vectors, vectors, vectors, scores, scores];
    scratch::with_parts(lengths, |[queries, dout, out, weights, slopes]| {
        let queries = layer.gather(layer.q, tile.rows.clone(), task.kv_head, queries);
        let dout = layer.gather(inputs.dout, tile.rows.clone(), task.kv_head, dout);
        let out = layer.gather(inputs.out, tile.rows.clone(), task.kv_head, out);
        let keys_matrix = layer.head(layer.k, task.keys.rows_of(&keys), task.kv_head);
        let queries = Matrix::new(queries, rows, shape.head_dim, shape.head_dim);
        Tile::from_slice(weights, rows, keys.len()).multiply(false, shape.factor(), queries, keys_matrix.transposed());
        let seeds = Matrix::new(dout, rows, shape.head_dim, shape.head_dim);
        let values = layer.head(layer.v, task.keys.rows_of(&keys), task.kv_head).transposed();
        Tile::from_slice(slopes, rows, keys.len()).multiply(false, 1.0, seeds, values);
        score_gradients(shape, inputs.lse, task, tile, &keys, (weights, slopes), (dout, out));
        let (weights, slopes) = (Matrix::packed(weights, rows, keys.len()), Matrix::packed(slopes, rows, keys.len()));
        dv.multiply(true, 1.0, weights.transposed(), seeds);
        dk.multiply(true, shape.scale, slopes.transposed(), queries);
        Tile::from_slice(part, rows, shape.head_dim).multiply(false, shape.scale, slopes, keys_matrix);
    });
}

/// Converts the scores of one tile in place, row by row: `weights` from scores s to softmax weights `p = exp(s − lse)`,
/// and `slopes` from gradients with respect to p (dp) to those with respect to s, `ds = p·(dp − Σ dout·out)`, times the
/// derivative of the soft cap. Both are `[query rows, keys]` and become 0 for keys that a query does not see. With a
/// soft cap, scores are given divided by the cap. `lse` is that of the whole batch, `[tokens, heads]`; `keys` are
/// positions in the sequence; `dout` and `out` hold the tile's rows only, `[query rows, head_dim]`.
fn score_gradients(
    shape: &AttentionShape,
    lse: &[f32],
    task: &Task,
    tile: &Span,
    keys: &Range<usize>,
    (weights, slopes): (&mut [f32], &mut [f32]),
    (dout, out): (Data<'_>, Data<'_>),
) {
    let (group, dim) = (shape.group(), shape.head_dim);
    let rows = weights.chunks_exact_mut(keys.len()).zip(slopes.chunks_exact_mut(keys.len()));
    for (row, (weights, slopes)) in rows.enumerate() {
        let token = row / group;
        let visible = shape.visible(tile.first + token, keys);
        for numbers in [&mut *weights, &mut *slopes] {
            numbers[..visible.start].fill(0.0);
            numbers[visible.end..].fill(0.0);
        }
        let log = lse[(tile.rows.start + token) * shape.heads + task.kv_head * group + row % group];
        let (weights, slopes) = (&mut weights[visible.clone()], &mut slopes[visible]);
        let numbers = row * dim..(row + 1) * dim;
        let mean = row_dot(dout.part(numbers.clone()), out.part(numbers));
        vectorize!(match shape.soft_cap {
            None => scores_to_gradients(weights, slopes, log, mean),
            Some(cap) => capped_scores_to_gradients(weights, slopes, log, mean, cap),
        });
    }
}

/// Computes the dot product of two rows of equal length in f32. Each row may be f32 or bf16.
fn row_dot(a: Data<'_>, b: Data<'_>) -> f32 {
    match (a, b) {
        (Data::F32(a), Data::F32(b)) => vectorize!(dot(a, b)),
        (Data::Bf16(a), Data::Bf16(b)) => {
            vectorize!(fold2(a, b, |sum: f32, a, b| widen(a).mul_add(widen(b), sum)))
        }
        (Data::F32(a), Data::Bf16(b)) | (Data::Bf16(b), Data::F32(a)) => {
            vectorize!(fold2(a, b, |sum: f32, a: f32, b| a.mul_add(widen(b), sum)))
        }
    }
}

/// Converts one row in place, without a soft cap: `weights` from scores to softmax weights, and `slopes` from gradients
/// with respect to the weights to those with respect to the scores. `log` is log Σ exp of the row, `mean` is Σ
/// dout·out.
#[inline(always)]
fn scores_to_gradients(weights: &mut [f32], slopes: &mut [f32], log: f32, mean: f32) {
    for (weight, slope) in weights.iter_mut().zip(slopes) {
        *weight = exp(*weight - log);
        *slope = *weight * (*slope - mean);
    }
}

/// Converts one row in place, with a soft cap: `weights` from scores divided by the cap to softmax weights of the
/// capped scores, and `slopes` from gradients with respect to the weights to those with respect to the scores before
/// the cap. `log` is log Σ exp of the row, `mean` is Σ dout·out.
#[inline(always)]
fn capped_scores_to_gradients(weights: &mut [f32], slopes: &mut [f32], log: f32, mean: f32, cap: f32) {
    for (weight, slope) in weights.iter_mut().zip(slopes) {
        let tanh_value = tanh(*weight);
        *weight = exp(cap.mul_add(tanh_value, -log));
        *slope = *weight * (*slope - mean) * (1.0 - tanh_value * tanh_value);
    }
}
