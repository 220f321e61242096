//! Keys and values of every layer and sequence, and the passes that fill them.
//! A prompt that several completions share is run once.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Segments};

use super::writer::Writer;
use crate::decoder::hook::Spoken;
use crate::decoder::lens::Lens;
use crate::decoder::tables::first_row;
use crate::decoder::{Block, stack};
use crate::error::Result;

/// Prompt tokens of one pass; a longer prompt goes alone.
const PASS: usize = 4096;

/// The keys and values of one sequence, layer by layer, `[length, kv_heads · head_dim]` each.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache {
    layers: Vec<Layer>,
    length: usize,
}

#[derive(Debug, Clone, Default)]
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// The blocks of a view, with rotations for sequences up to a length; patches ask whose tokens they see.
pub(super) fn blocks(lens: &Lens<'_>, longest: usize, spoken: &Spoken) -> Result<Vec<Block>> {
    let rows = first_row(&lens.model.configuration, longest) + longest;
    (0..lens.model.configuration.layers).map(|layer| lens.block(layer, rows, spoken)).collect()
}

/// Runs the prompts of some completions: the hidden row after each prompt, `[completions, hidden]`.
pub(super) fn prefill(lens: &Lens<'_>, blocks: &[Block], prompts: &[Vec<u32>], batch: &mut [Writer]) -> Result<Tensor> {
    let mut numbers: Vec<usize> = batch.iter().map(Writer::prompt).collect();
    numbers.dedup();
    let mut lasts = Vec::with_capacity(numbers.len());
    let mut caches = Vec::with_capacity(numbers.len());
    for group in groups(&numbers, prompts) {
        let chosen: Vec<&[u32]> = group.iter().map(|number| prompts[*number].as_slice()).collect();
        let (rows, filled) = run_prompts(lens, blocks, &chosen, 0)?;
        lasts.push(rows);
        caches.extend(filled);
    }
    let lasts = Tensor::cat(&lasts, 0)?;
    let mut row_of = Vec::with_capacity(batch.len());
    for writer in batch.iter_mut() {
        let at = numbers.iter().position(|number| *number == writer.prompt()).unwrap_or(0);
        writer.cache = caches[at].clone();
        row_of.push(at as u32);
    }
    let row_of = Tensor::new(row_of.as_slice(), lasts.device())?;
    Ok(lasts.index_select(&row_of, 0)?)
}

/// Runs the last token of every sequence: the hidden row after it, `[sequences, hidden]`.
pub(super) fn step(lens: &Lens<'_>, blocks: &[Block], active: &mut [&mut Writer]) -> Result<Tensor> {
    // On a thread of the pool, where the next of a step's hundreds of small products starts without a wake-up call.
    rayon::scope(|_| pass(lens, blocks, active))
}

fn pass(lens: &Lens<'_>, blocks: &[Block], active: &mut [&mut Writer]) -> Result<Tensor> {
    let ids = active.iter().map(|writer| writer.last()).collect::<Result<Vec<u32>>>()?;
    let row = |length: usize| (first_row(&lens.model.configuration, length + 1) + length) as u32;
    let positions: Vec<u32> = active.iter().map(|writer| row(writer.cache.length)).collect();
    let mut hidden = stack::embed(lens, &ids)?;
    for (layer, block) in blocks.iter().enumerate() {
        hidden = block.before.forward(hidden)?;
        let attention = &block.attention;
        let projected = attention.project(&hidden, &positions)?;
        let (keys, values) = (rows(projected.key())?, rows(projected.value())?);
        for (at, writer) in active.iter_mut().enumerate() {
            writer.cache.layers[layer].push(&keys, &values, at..at + 1, ids.len());
        }
        let keys: Vec<&[f32]> = active.iter().map(|writer| writer.cache.layers[layer].keys.as_slice()).collect();
        let values: Vec<&[f32]> = active.iter().map(|writer| writer.cache.layers[layer].values.as_slice()).collect();
        let mixed = fused::attention_cached(projected.query(), &keys, &values, &attention.shape)?;
        let middle = attention.complete(&hidden, &mixed)?;
        hidden = block.after.forward(block.feed_forward.forward(&middle)?.0)?;
    }
    for writer in active.iter_mut() {
        writer.cache.length += 1;
    }
    Ok(hidden)
}

/// Runs some prompts, to be read by a token `ahead` of their last: the hidden row after each, and the caches.
pub(super) fn run_prompts(
    lens: &Lens<'_>,
    blocks: &[Block],
    prompts: &[&[u32]],
    ahead: usize,
) -> Result<(Tensor, Vec<Cache>)> {
    let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.len()).collect();
    let segments = Segments::new(&lengths);
    let ids = prompts.concat();
    let first = |length: &usize| first_row(&lens.model.configuration, length + ahead) as u32;
    let positions: Vec<u32> =
        lengths.iter().flat_map(|length| (0..*length as u32).map(|at| first(length) + at)).collect();
    let mut caches: Vec<Cache> = lengths.iter().map(|length| Cache { layers: Vec::new(), length: *length }).collect();
    let mut hidden = stack::embed(lens, &ids)?;
    for block in blocks {
        hidden = block.before.forward(hidden)?;
        let attention = &block.attention;
        let projected = attention.project(&hidden, &positions)?;
        keep(&mut caches, &rows(projected.key())?, &rows(projected.value())?, &segments);
        let (query, key, value) = (projected.query(), projected.key(), projected.value());
        let (mixed, _) = fused::attention(query, key, value, &segments, &attention.shape)?;
        let middle = attention.complete(&hidden, &mixed)?;
        hidden = block.after.forward(block.feed_forward.forward(&middle)?.0)?;
    }
    let lasts: Vec<u32> = segments.ranges().map(|range| range.end as u32 - 1).collect();
    let lasts = Tensor::new(lasts.as_slice(), hidden.device())?;
    Ok((hidden.index_select(&lasts, 0)?, caches))
}

/// Appends a layer to the cache of each sequence of a pass.
fn keep(caches: &mut [Cache], keys: &[f32], values: &[f32], segments: &Segments) {
    let total = segments.ranges().last().map_or(0, |range| range.end);
    for (cache, range) in caches.iter_mut().zip(segments.ranges()) {
        let mut layer = Layer::default();
        layer.push(keys, values, range, total);
        cache.layers.push(layer);
    }
}

/// Prompts that go through the model together.
fn groups(numbers: &[usize], prompts: &[Vec<u32>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for number in numbers {
        let length = prompts[*number].len();
        match groups.last_mut() {
            Some(group) if tokens + length <= PASS => group.push(*number),
            _ => {
                groups.push(vec![*number]);
                tokens = 0;
            }
        }
        tokens += length;
    }
    groups
}

fn rows(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.flatten_all()?.to_vec1::<f32>()?)
}

impl Cache {
    /// Tokens whose keys and values are here.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Layer {
    /// Appends some rows of a pass of `total` rows.
    fn push(&mut self, keys: &[f32], values: &[f32], range: std::ops::Range<usize>, total: usize) {
        let width = keys.len() / total.max(1);
        let range = range.start * width..range.end * width;
        self.keys.extend_from_slice(&keys[range.clone()]);
        self.values.extend_from_slice(&values[range]);
    }
}
