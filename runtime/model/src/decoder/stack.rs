//! The walk through all blocks, up and down again.
//! Keeps what the recompute setting says, and frees it block by block on the way down.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Indices};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::precision::Purpose;

use super::attention::Context;
use super::block::Kept;
use super::lens::Lens;
use super::packing::Packing;
use crate::error::Result;

/// What a pass keeps for its backward pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Everything: the fastest, and the most memory.
    #[default]
    None,
    /// Only the input of each block; the backward pass runs each block again. The gradients
    /// have the same bits; a step takes about a third longer.
    Blocks,
}

/// Runs every block and keeps nothing: the hidden rows after the last block, `[tokens, hidden]`.
pub(crate) fn forward(lens: &Lens<'_>, packing: &Packing) -> Result<Tensor> {
    forward_to(lens, packing, lens.model.configuration.layers - 1)
}

/// The same up to a block and no further, for those who read along.
pub(crate) fn forward_to(lens: &Lens<'_>, packing: &Packing, last: usize) -> Result<Tensor> {
    let spoken = packing.spoken(lens)?;
    let mut hidden = embed(lens, &packing.ids)?;
    for layer in 0..=last {
        let block = lens.block(layer, packing.table_rows, &spoken)?;
        hidden = block.forward(&hidden, &packing.positions, &packing.segments)?.0;
    }
    Ok(hidden)
}

/// Runs every block and keeps what a backward pass needs, from the lowest trained block on.
pub(crate) fn forward_kept(lens: &Lens<'_>, packing: &Packing, recompute: Recompute) -> Result<(Tensor, Vec<Kept>)> {
    let layers = lens.model.configuration.layers;
    let lowest = lens.lowest_trained().unwrap_or(layers);
    let mut kept = Vec::with_capacity(layers - lowest.min(layers));
    let spoken = packing.spoken(lens)?;
    let mut hidden = embed(lens, &packing.ids)?;
    for layer in 0..layers {
        let block = lens.block(layer, packing.table_rows, &spoken)?;
        let (output, own) = block.forward(&hidden, &packing.positions, &packing.segments)?;
        if layer >= lowest {
            kept.push(match recompute {
                Recompute::None => Kept::Everything(Box::new(own)),
                Recompute::Blocks => Kept::Input(hidden),
            });
        }
        hidden = output;
    }
    Ok((hidden, kept))
}

/// Walks the gradient of the hidden rows down to the lowest trained block, and into the
/// embedding when that is trained.
pub(crate) fn backward(
    lens: &Lens<'_>,
    packing: &Packing,
    mut kept: Vec<Kept>,
    upstream: Tensor,
    gradients: &Parameters,
) -> Result<()> {
    let layers = lens.model.configuration.layers;
    let lowest = layers - kept.len();
    let embedding = lens.embedding()?;
    let spoken = packing.spoken(lens)?;
    let mut upstream = upstream;
    for layer in (lowest..layers).rev() {
        let Some(own) = kept.pop() else { break };
        let context = Context {
            positions: &packing.positions,
            segments: &packing.segments,
            gradients,
            want_input: layer > lowest || embedding.slot.is_some(),
        };
        let block = lens.block(layer, packing.table_rows, &spoken)?;
        match block.backward(&upstream, own, &context)? {
            Some(below) => upstream = below,
            None => return Ok(()),
        }
    }
    if let Some(slot) = embedding.slot {
        let configuration = &lens.model.configuration;
        let rows = configuration.vocabulary;
        let found = fused::embed_gradient(&packing.ids, &upstream, configuration.embedding_scale, rows)?;
        gradients.accumulate(slot, &found)?;
    }
    Ok(())
}

/// The embedding of each token, `[tokens, hidden]`, in the type of activations; what follows has the type of its input.
pub(crate) fn embed(lens: &Lens<'_>, ids: &Indices) -> Result<Tensor> {
    let scale = lens.model.configuration.embedding_scale;
    let dtype = lens.model.weights.precision().dtype(Purpose::Activation);
    Ok(fused::embed(ids, &lens.embedding()?.weight, scale, dtype)?)
}
