//! The key-value cache of generation: keys and values of the sequences that are being written, layer by layer.
//!
//! A sequence has a slot. A pass says how many tokens it adds to which slots, appends the keys and values of each
//! layer, and attends to them with its queries. On the CPU a slot has vectors of its own; on a device all slots share a
//! pool of pages (`cache/pages.rs`).

mod device;
mod pages;

use std::ops::Range;

use candle_core::{Device, Tensor};

use super::attention::{AttentionShape, attention_cached};
use super::host::{self, Floats};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};

/// The key-value cache of a fixed number of slots. Each slot holds the keys and values of one sequence, for all layers.
#[derive(Debug)]
pub struct KvCache {
    kept: SlotStorage,
}

/// The sequences of all slots, on the CPU or on a device.
#[derive(Debug)]
enum SlotStorage {
    /// One sequence for each slot.
    Cpu(Vec<Sequence>),
    Device(device::Paged),
}

/// A sequence on the CPU. Between `begin` and the `append` of a layer, the layer has fewer tokens than `length`.
#[derive(Debug, Clone)]
struct Sequence {
    layers: Vec<Layer>,
    length: usize,
}

/// The keys and values of one layer, `[length, kv_heads · head_dim]` each.
#[derive(Debug, Clone, Default)]
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// The tokens that one forward pass adds to the slots of a [`KvCache`].
#[derive(Debug)]
pub struct KvCachePass {
    /// Which slots grow by which rows of the pass.
    parts: Vec<Part>,
    /// The tables of the pass on the device; none on the CPU.
    placed: Option<device::Placed>,
}

/// The rows of a pass that a slot grows by.
#[derive(Debug, Clone)]
struct Part {
    slot: usize,
    rows: Range<usize>,
}

impl KvCachePass {
    /// The number of rows of the pass: the tokens that it adds to all of its slots.
    fn rows(&self) -> usize {
        self.parts.last().map_or(0, |part| part.rows.end)
    }
}

impl KvCache {
    /// Creates a cache of `slots` empty sequences for a model of `layers` layers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a device that was not opened by [`parse`](crate::device::parse).
    pub fn new(slots: usize, layers: usize, device: &Device) -> Result<Self> {
        let kept = match Accelerator::of(device)? {
            None => SlotStorage::Cpu(vec![Sequence { layers: vec![Layer::default(); layers], length: 0 }; slots]),
            Some(device) => SlotStorage::Device(device::Paged::new(device, slots, layers)),
        };
        Ok(Self { kept })
    }

    /// The number of tokens of a slot's sequence; 0 for a slot that does not exist.
    #[must_use]
    pub fn length(&self, slot: usize) -> usize {
        match &self.kept {
            SlotStorage::Cpu(sequences) => sequences.get(slot).map_or(0, |sequence| sequence.length),
            SlotStorage::Device(pages) => pages.length(slot),
        }
    }

    /// The number of slots.
    fn slots(&self) -> usize {
        match &self.kept {
            SlotStorage::Cpu(sequences) => sequences.len(),
            SlotStorage::Device(pages) => pages.slots(),
        }
    }

    /// Begins a pass that adds tokens to sequences: `growth` yields slots, each with its number of new tokens. The rows
    /// of the pass are those of the first slot, then those of the second, and so on. [`length`](Self::length) counts
    /// the new tokens at once; [`append`](Self::append) adds their keys and values.
    ///
    /// # Errors
    /// [`Error::Argument`] if a slot does not exist or comes twice; no length has changed then. On a device, also if
    /// there is no memory for the tables of the pass; the lengths have grown then.
    pub fn begin(&mut self, growth: impl IntoIterator<Item = (usize, usize)>) -> Result<KvCachePass> {
        let (slots, mut end) = (self.slots(), 0);
        let mut parts = Vec::new();
        for (slot, tokens) in growth {
            if slot >= slots {
                return Err(Error::argument(format!("a cache of {slots} sequences has no sequence {slot}")));
            }
            if parts.iter().any(|part: &Part| part.slot == slot) {
                return Err(Error::argument(format!("sequence {slot} grows twice in one pass")));
            }
            parts.push(Part { slot, rows: end..end + tokens });
            end += tokens;
        }
        let placed = match &mut self.kept {
            SlotStorage::Cpu(sequences) => {
                parts.iter().for_each(|part| sequences[part.slot].length += part.rows.len());
                None
            }
            SlotStorage::Device(pages) => Some(pages.begin(&parts)?),
        };
        Ok(KvCachePass { parts, placed })
    }

    /// Appends the keys and values of one layer for all rows of a pass: both are `[rows, kv_heads · head_dim]`, f32 or
    /// bf16. The CPU keeps them in f32, a device in their type. Must be called once for each layer of a pass, before
    /// [`attend`](Self::attend); this is not checked.
    ///
    /// # Errors
    /// If `heads` of `shape` is not a positive multiple of `kv_heads`, `head_dim` or the window is 0, keys or values
    /// have another shape or type or are on another device, the layer does not exist, or the pass is of a cache on
    /// another kind of device. On a device, also if a layer's width or type changes, or there is no memory.
    pub fn append(
        &mut self,
        pass: &KvCachePass,
        layer: usize,
        keys: &Tensor,
        values: &Tensor,
        shape: &AttentionShape,
    ) -> Result<()> {
        shape.check()?;
        let width = shape.kv_heads * shape.head_dim;
        host::expect_shape(keys, "keys", &[pass.rows(), width])?;
        host::expect_shape(values, "values", &[pass.rows(), width])?;
        let sequences = match (&mut self.kept, &pass.placed) {
            (SlotStorage::Cpu(sequences), None) => sequences,
            (SlotStorage::Device(pages), Some(placed)) => return pages.append(placed, layer, [keys, values], shape),
            _ => return Err(wrong_cache()),
        };
        let (keys, values) = (Floats::activations(keys, "keys")?, Floats::activations(values, "values")?);
        for part in &pass.parts {
            let own = sequences.get_mut(part.slot).and_then(|sequence| sequence.layers.get_mut(layer));
            let own = own.ok_or_else(|| no_layer(layer))?;
            let numbers = part.rows.start * width..part.rows.end * width;
            own.keys.extend_from_slice(&keys[numbers.clone()]);
            own.values.extend_from_slice(&values[numbers]);
        }
        Ok(())
    }

    /// Attends with one query per sequence of the pass, that of its last token, to the keys and values that its slot
    /// holds at `layer`: to all of them, or to the last ones if `shape` has a window. `q` is `[slots of the pass, heads
    /// · head_dim]`, and the result is shaped like `q`. A sequence's result does not depend on the other sequences.
    ///
    /// # Errors
    /// If `heads` of `shape` is not a positive multiple of `kv_heads`, `head_dim` or the window is 0, `q` has another
    /// shape or is on another device, the layer does not exist or holds no keys of a sequence, or the pass is of a
    /// cache on another kind of device.
    pub fn attend(&self, pass: &KvCachePass, layer: usize, q: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
        shape.check()?;
        host::expect_shape(q, "q", &[pass.parts.len(), shape.heads * shape.head_dim])?;
        let sequences = match (&self.kept, &pass.placed) {
            (SlotStorage::Cpu(sequences), None) => sequences,
            (SlotStorage::Device(pages), Some(placed)) => return pages.attend(placed, layer, q, shape),
            _ => return Err(wrong_cache()),
        };
        let kept = |part: &Part| {
            let own = sequences.get(part.slot).and_then(|sequence| sequence.layers.get(layer));
            own.map(|own| (own.keys.as_slice(), own.values.as_slice())).ok_or_else(|| no_layer(layer))
        };
        attention_cached(q, &pass.parts.iter().map(kept).collect::<Result<Vec<_>>>()?, shape)
    }

    /// Replaces the sequence of slot `to` by a copy of the sequence of slot `from`. Tokens that are added to one of
    /// them later do not affect the other. Does nothing if both are the same slot.
    ///
    /// # Errors
    /// If a slot does not exist, or on a device if there is no memory for the copy.
    pub fn fork(&mut self, from: usize, to: usize) -> Result<()> {
        let slots = self.slots();
        if from.max(to) >= slots {
            return Err(Error::argument(format!("a cache of {slots} sequences has no sequence {}", from.max(to))));
        }
        match &mut self.kept {
            SlotStorage::Cpu(_) if from == to => {}
            SlotStorage::Cpu(sequences) => sequences[to] = sequences[from].clone(),
            SlotStorage::Device(pages) => pages.fork(from, to)?,
        }
        Ok(())
    }

    /// Empties a slot: its length becomes 0. The CPU releases the memory of the sequence; on a device, other sequences
    /// can use it. Does nothing for a slot that does not exist.
    pub fn clear_slot(&mut self, slot: usize) {
        match &mut self.kept {
            SlotStorage::Cpu(sequences) => {
                if let Some(sequence) = sequences.get_mut(slot) {
                    sequence.length = 0;
                    sequence.layers.fill(Layer::default());
                }
            }
            SlotStorage::Device(pages) => pages.clear_slot(slot),
        }
    }
}

/// Creates the [`Error::Argument`] for a pass that a cache of the CPU began and that is used with a cache of a device,
/// or the reverse.
fn wrong_cache() -> Error {
    Error::argument("a pass of one cache was used with another")
}

/// Creates the [`Error::Argument`] for a layer number that the cache does not have.
fn no_layer(layer: usize) -> Error {
    Error::argument(format!("the cache has no layer {layer}"))
}

#[cfg(test)]
mod tests;
