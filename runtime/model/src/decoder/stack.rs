//! The forward and the backward pass through all blocks.
//! The forward pass saves what the recompute setting says; the backward pass frees it block by block.

use tunebox_compute::fused::{self, Indices};
use tunebox_compute::parameters::GradientSums;
use tunebox_compute::precision::Purpose;
use tunebox_compute::{Device, Tensor};

use super::attention::Context;
use super::block::{BlockActivations, SavedBlock};
use super::network::Network;
use super::packing::Packing;
use crate::error::Result;

/// What a forward pass saves for its backward pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Everything: the fastest, and the most memory.
    #[default]
    None,
    /// Only the input of each block; the backward pass runs each block again. The gradients are equal bit for bit; a
    /// step takes about a third longer.
    Blocks,
}

/// What a forward pass saved of consecutive blocks, the last of which is the last that it ran.
#[derive(Debug)]
pub(crate) struct SavedBlocks {
    /// The index of the first of these blocks, the lowest trained one.
    lowest: usize,
    blocks: Vec<SavedBlock>,
}

impl SavedBlocks {
    /// The bytes of all saved tensors.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.iter().map(SavedBlock::bytes).sum()
    }
}

/// Runs the embedding and every block and saves nothing. Returns the hidden states after the last block, before the
/// final norm, `[tokens, hidden]`.
pub(crate) fn forward(network: &Network<'_>, packing: &Packing) -> Result<Tensor> {
    forward_to(network, packing, network.model.configuration.layers - 1)
}

/// Runs the embedding and the blocks 0 to `last`, inclusive, and saves nothing for a backward pass; activation readers
/// store what they read. Returns the hidden states after block `last`, `[tokens, hidden]`.
pub(crate) fn forward_to(network: &Network<'_>, packing: &Packing, last: usize) -> Result<Tensor> {
    run_blocks(network, packing, last, |_, _, _| {})
}

/// Runs the embedding and the blocks 0 to `last`, inclusive; activation readers store what they read. Returns the
/// hidden states after block `last`, `[tokens, hidden]`, and what the backward pass needs: for each block from the
/// lowest trained one to `last`, all activations, or only the input with recomputation (`recompute`). If no block is
/// trained, saves nothing.
pub(crate) fn forward_saving(
    network: &Network<'_>,
    packing: &Packing,
    last: usize,
    recompute: Recompute,
) -> Result<(Tensor, SavedBlocks)> {
    let lowest = network.lowest_trained().unwrap_or(last + 1);
    let mut blocks = Vec::with_capacity((last + 1).saturating_sub(lowest));
    let hidden = run_blocks(network, packing, last, |layer, input, activations| {
        if layer >= lowest {
            blocks.push(match recompute {
                Recompute::None => SavedBlock::Activations(Box::new(activations)),
                Recompute::Blocks => SavedBlock::Input(input),
            });
        }
    })?;
    Ok((hidden, SavedBlocks { lowest, blocks }))
}

/// Runs the embedding, with noise if the network has it, and the blocks 0 to `last`, inclusive. Calls `keep` after each
/// block with the block's index, input and activations. Returns the hidden states after block `last`, `[tokens,
/// hidden]`. Errors: the deadline has passed before a block, or a weight is missing.
fn run_blocks(
    network: &Network<'_>,
    packing: &Packing,
    last: usize,
    mut keep: impl FnMut(usize, Tensor, BlockActivations),
) -> Result<Tensor> {
    let answer_mask = packing.answer_mask(network)?;
    let mut hidden = embed(network, &packing.ids)?;
    if let (Some(noise), Some(pass)) = (&network.noise, network.learning_pass) {
        hidden = noise.add(&hidden, packing, pass)?;
    }
    for layer in 0..=last {
        let block = network.build_block(layer, packing.table_rows, &answer_mask)?;
        let (output, activations) = block.forward(&hidden, &packing.positions, &packing.segments)?;
        keep(layer, std::mem::replace(&mut hidden, output), activations);
    }
    Ok(hidden)
}

/// Runs the backward pass from the last saved block down to the lowest; `upstream` `[tokens, hidden]` is the gradient
/// of the hidden states after the last saved block. Adds the gradients of trained weights, including a trained
/// embedding, to `gradients`. Frees each block's saved tensors with its backward pass.
pub(crate) fn backward(
    network: &Network<'_>,
    packing: &Packing,
    mut saved: SavedBlocks,
    mut upstream: Tensor,
    gradients: &GradientSums<'_>,
) -> Result<()> {
    let embedding = network.embedding()?;
    let answer_mask = packing.answer_mask(network)?;
    while let Some(own) = saved.blocks.pop() {
        let layer = saved.lowest + saved.blocks.len();
        let context = Context {
            positions: &packing.positions,
            segments: &packing.segments,
            gradients,
            want_input: layer > saved.lowest || embedding.slot.is_some(),
        };
        let block = network.build_block(layer, packing.table_rows, &answer_mask)?;
        match block.backward(&upstream, own, &context)? {
            Some(below) => upstream = below,
            None => return Ok(()),
        }
    }
    if let Some(slot) = embedding.slot {
        let configuration = &network.model.configuration;
        let rows = configuration.vocabulary;
        let found = fused::embed_gradient(&packing.ids, &upstream, configuration.embedding_scale, rows)?;
        gradients.accumulate(slot, &found)?;
    }
    Ok(())
}

/// Zeros in the shape and type of the hidden states of a pass, `[tokens, hidden]`, on the model's device.
pub(crate) fn zeros(network: &Network<'_>, packing: &Packing) -> Result<Tensor> {
    let dtype = network.model.weights.precision().dtype(Purpose::Activation);
    let shape = (packing.ids.len(), network.model.configuration.hidden);
    Ok(Tensor::zeros(shape, dtype, &Device::Cpu)?.to_device(network.model.weights.device())?)
}

/// The scaled embedding of each token, `[tokens, hidden]`, in the dtype of activations.
pub(crate) fn embed(network: &Network<'_>, ids: &Indices) -> Result<Tensor> {
    let scale = network.model.configuration.embedding_scale;
    let dtype = network.model.weights.precision().dtype(Purpose::Activation);
    Ok(fused::embed(ids, &network.embedding()?.weight, scale, dtype)?)
}
