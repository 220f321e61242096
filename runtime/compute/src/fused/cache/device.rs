//! The cache of a device: each layer has a pool of pages, keys and values apart, in the type of activations. Which
//! pages a sequence has is one table for all layers, which a pass uploads once.

use candle_core::{DType, Tensor};

use super::pages::{PAGE, Pages, Sequence};
use super::{Part, no_layer};
use crate::accelerator::{Accelerator, Argument, Build, Grid, arguments, extent, kernel};
use crate::error::{Error, Result};
use crate::fused::attention::AttentionShape;
use crate::fused::attention::device::{build, window};
use crate::fused::columns::copy;
use crate::fused::device::expect_type;

/// Tokens that one block of `attention_cached` reads.
const CHUNK: usize = 256;
/// Query heads that a block of `attention_cached` handles at most.
const TOGETHER: usize = 8;
/// Threads of a block of each kernel of the cache.
const THREADS: u32 = 128;

/// The key-value cache on a device: the pages of each sequence, and for each layer the pool that holds them.
#[derive(Debug)]
pub(super) struct Paged {
    device: Accelerator,
    pages: Pages,
    /// The pool of each layer; `None` until the layer's first keys arrive, which determine its width and type.
    layers: Vec<Option<Pool>>,
}

/// The pages of a layer, `[capacity, PAGE · kv_heads · head_dim]` each.
#[derive(Debug)]
struct Pool {
    keys: Tensor,
    values: Tensor,
}

/// The tables of one pass, as the kernels read them.
#[derive(Debug)]
pub(super) struct Placed {
    rows: usize,
    /// Tokens of the shortest and of the longest sequence of the pass, counting the new ones.
    shortest: usize,
    longest: usize,
    /// Columns of `pages`: the most pages that a sequence of the pass has.
    pages_of: usize,
    /// `[sequences]`: tokens of each.
    lengths: Tensor,
    /// `[sequences, pages_of]`: the page numbers of each sequence, then zeros.
    pages: Tensor,
    /// The sequence and the position of each row, `[rows]` each; `None` where each sequence grows by one token.
    rows_of: Option<[Tensor; 2]>,
}

impl Paged {
    /// Creates a cache of `slots` empty sequences. Pages get memory only when the first keys of a layer are kept.
    pub(super) fn new(device: Accelerator, slots: usize, layers: usize) -> Self {
        Self { device, pages: Pages::new(slots), layers: (0..layers).map(|_| None).collect() }
    }

    /// The number of tokens of a slot's sequence; 0 for a slot that does not exist.
    pub(super) fn length(&self, slot: usize) -> usize {
        self.pages.sequence(slot).map_or(0, |sequence| sequence.length)
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.pages.slots()
    }

    /// Reserves pages for the sequences that grow, adds the new tokens to their lengths, and uploads the tables of the
    /// pass. The caller has checked the slots. If the upload fails, the lengths have grown nevertheless.
    pub(super) fn begin(&mut self, parts: &[Part]) -> Result<Placed> {
        for part in parts {
            self.pages.grow(part.slot, part.rows.len())?;
        }
        self.upload_tables(parts)
    }

    /// Builds the tables of a pass and uploads them in one copy: lengths and pages of its sequences and, unless each
    /// grows by one token, the sequence and the position of each row.
    fn upload_tables(&self, parts: &[Part]) -> Result<Placed> {
        let sequences: Vec<&Sequence> = parts.iter().filter_map(|part| self.pages.sequence(part.slot)).collect();
        let pages_of = sequences.iter().map(|sequence| sequence.pages.len()).max().unwrap_or(0);
        let shortest = sequences.iter().map(|sequence| sequence.length).min().unwrap_or(0);
        let longest = sequences.iter().map(|sequence| sequence.length).max().unwrap_or(0);
        let mut numbers: Vec<u32> = sequences.iter().map(|sequence| extent(sequence.length)).collect::<Result<_>>()?;
        for sequence in &sequences {
            numbers.extend(&sequence.pages);
            // No kernel reads an entry past the end of a sequence.
            numbers.resize(numbers.len() + pages_of - sequence.pages.len(), 0);
        }
        let rows = parts.last().map_or(0, |part| part.rows.end);
        let apart = parts.iter().any(|part| part.rows.len() != 1);
        if apart {
            let numbered = (0_u32..).zip(parts);
            numbers.extend(numbered.flat_map(|(number, part)| part.rows.clone().map(move |_| number)));
            for (part, sequence) in parts.iter().zip(&sequences) {
                let end = sequence.length;
                // Lengths fit in 32 bits, so tokens do.
                numbers.extend((end - part.rows.len()..end).map(|token| token as u32));
            }
        }
        let all = self.device.upload(&numbers, &[numbers.len()])?;
        let mut start = 0;
        let mut cut = |length: usize| {
            start += length;
            all.narrow(0, start - length, length)
        };
        let (lengths, pages) = (cut(parts.len())?, cut(parts.len() * pages_of)?);
        let rows_of = if apart { Some([cut(rows)?, cut(rows)?]) } else { None };
        Ok(Placed { rows, shortest, longest, pages_of, lengths, pages, rows_of })
    }

    /// Queues a kernel that writes the keys and values of a pass, `[rows, kv_heads · head_dim]` each, into the pages of
    /// a layer. First allocates or enlarges the layer's pool if needed.
    ///
    /// # Errors
    /// If the keys are not f32 or bf16, the layer does not exist, its pool has another width or type, or there is no
    /// memory.
    pub(super) fn append(
        &mut self,
        placed: &Placed,
        layer: usize,
        [keys, values]: [&Tensor; 2],
        shape: &AttentionShape,
    ) -> Result<()> {
        let act = expect_type(keys, "keys")?;
        let width = shape.kv_heads * shape.head_dim;
        self.grow(layer, width, act)?;
        let Some(Some(pool)) = self.layers.get(layer) else { return Err(no_layer(layer)) };
        let [sequences, tokens] =
            placed.rows_of.as_ref().map_or([None, None], |[first, second]| [Some(first), Some(second)]);
        let rows = arguments![&pool.keys, &pool.values, keys, values, sequences, tokens];
        let (Placed { lengths, pages, pages_of, .. }, pitch) = (placed, Argument::Long(width as u64));
        let tables = arguments![lengths, pages, *pages_of, PAGE, width, pitch, pitch, Argument::FaultWord];
        let grid = Grid::of(extent(placed.rows)?, THREADS);
        self.device.launch(&kernel::CACHE_APPEND, build_constants(act, shape)?, grid, &[&rows[..], &tables].concat())
    }

    /// Allocates a layer's pool for as many pages as [`Pages::capacity`] says, with unspecified content, or enlarges it
    /// to that and copies the pages that it holds. `width` is the number of elements of a token's keys, `act` their
    /// type. Does nothing if the pool is large enough.
    ///
    /// # Errors
    /// [`Error::Argument`] if the layer does not exist, or its pool has another width or type;
    /// [`Error::Full`](crate::error::Error::Full) if there is no memory, after which the keys may be enlarged and the
    /// values not.
    fn grow(&mut self, layer: usize, width: usize, act: DType) -> Result<()> {
        let (device, shape) = (&self.device, [self.pages.capacity(), PAGE * width]);
        let Some(pool) = self.layers.get_mut(layer) else { return Err(no_layer(layer)) };
        let Some(Pool { keys, values }) = pool else {
            *pool = Some(Pool { keys: device.empty(&shape, act)?, values: device.empty(&shape, act)? });
            return Ok(());
        };
        // One after the other, so that the old keys are freed before memory for the values is allocated.
        for side in [keys, values] {
            let (held, row) = side.dims2()?;
            if row != shape[1] || side.dtype() != act {
                return Err(Error::argument("keys and values of a layer changed their width or their type"));
            }
            if held < shape[0] {
                let larger = device.empty(&shape, act)?;
                copy(device, (&larger.narrow(0, 0, held)?, row), (side, row), [held, row])?;
                *side = larger;
            }
        }
        Ok(())
    }

    /// Attends with one query per sequence, `q` `[sequences, heads · head_dim]`, to the sequence's cached tokens; the
    /// result is shaped like `q`. One kernel handles chunks of [`CHUNK`] tokens, a second merges the chunks. Returns an
    /// error if a sequence has no tokens or the layer has no keys.
    pub(super) fn attend(&self, placed: &Placed, layer: usize, q: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
        let act = expect_type(q, "q")?;
        let Some(Some(pool)) = self.layers.get(layer) else { return Err(no_layer(layer)) };
        if placed.shortest == 0 {
            return Err(Error::argument("a sequence without tokens has nothing to attend to"));
        }
        let (batch, chunks) = (q.dim(0)?, placed.longest.div_ceil(CHUNK));
        let mixes = self.device.empty(&[batch, shape.heads, chunks, shape.head_dim], DType::F32)?;
        let levels = self.device.empty(&[batch, shape.heads, chunks, 2], DType::F32)?;
        let (AttentionShape { kv_heads, head_dim, scale, soft_cap, .. }, window) =
            (*shape, window(shape, placed.longest)?);
        let tensors = arguments![&mixes, &levels, q, &pool.keys, &pool.values, &placed.pages, &placed.lengths];
        let sizes = arguments![placed.pages_of, PAGE, kv_heads, head_dim, scale, soft_cap.unwrap_or(0.0), window];
        let arguments = [tensors, sizes].concat();
        let blocks = (extent(chunks)?, extent(shape.heads / heads_per_block(shape.group()))?, extent(batch)?);
        self.device.launch(
            &kernel::ATTENTION_CACHED,
            build_constants(act, shape)?,
            Grid::cube(blocks, THREADS, 0),
            &arguments,
        )?;
        let arguments = arguments![&mixes, &levels, &placed.lengths, head_dim, chunks, window];
        let grid = Grid::square(extent(shape.heads)?, extent(batch)?, THREADS);
        self.device.compute(&kernel::ATTENTION_CACHED_MERGE, build_constants(act, shape)?, grid, q.dims(), &arguments)
    }

    /// Replaces the sequence of slot `to` by that of slot `from`: full pages are shared, an unfinished last page is
    /// copied in every layer. Does nothing if both are the same slot. The caller has checked both slots. Errors: the
    /// device refuses a copy, and the last page of `to` then has undefined content; or there are too many pages, and
    /// `to` is then empty.
    pub(super) fn fork(&mut self, from: usize, to: usize) -> Result<()> {
        match self.pages.fork(from, to)? {
            Some([from, to]) => self.copy_page(from as usize, to as usize),
            None => Ok(()),
        }
    }

    /// Copies page `from` to page `to`, keys and values, in every layer that has a pool. Enlarges the pools first if
    /// needed.
    fn copy_page(&mut self, from: usize, to: usize) -> Result<()> {
        for layer in 0..self.layers.len() {
            let Some(pool) = &self.layers[layer] else { continue };
            let (row, act) = (pool.keys.dim(1)?, pool.keys.dtype());
            self.grow(layer, row / PAGE, act)?;
            if let Some(pool) = &self.layers[layer] {
                for side in [&pool.keys, &pool.values] {
                    copy(&self.device, (&side.narrow(0, to, 1)?, row), (&side.narrow(0, from, 1)?, row), [1, row])?;
                }
            }
        }
        Ok(())
    }

    /// Empties a slot. Pages that no other sequence shares become free in the pool, which keeps its memory.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        self.pages.clear_slot(slot);
    }
}

/// Returns the constants that the cache's kernels are compiled with for a layer: the activation type `act`, the head
/// size rounded up, and the number of query heads that share a key-value head. [`Error::Shape`] past 256 features per
/// head.
fn build_constants(act: DType, shape: &AttentionShape) -> Result<Build> {
    build(act, shape, extent(shape.group())?)
}

/// Returns the query heads that a block of `attention_cached` handles: the largest divisor of `group` that is at most
/// [`TOGETHER`].
fn heads_per_block(group: usize) -> usize {
    (1..=group.min(TOGETHER)).rev().find(|size| group.is_multiple_of(*size)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_a_block_divide_a_group() {
        assert_eq!([1, 2, 7, 8, 12, 14, 16, 11].map(heads_per_block), [1, 2, 7, 8, 6, 7, 8, 1]);
    }
}
