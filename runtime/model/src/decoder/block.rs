//! One block of the decoder: attention, then feed-forward, and what it saves for its backward pass.
//! The two halves are in `attention` and `feed_forward`; `stack` runs the blocks in order.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{Indices, Segments};
use tunebox_compute::precision::bytes;

use super::attention::{Attention, Context, SavedAttention};
use super::feed_forward::{FeedForward, SavedFeedForward};
use super::hook::SiteHooks;
use crate::error::Result;

/// One block, with the weights, the adapter and the patches of one view of the model.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The hooks of the block's input.
    pub(crate) input_hooks: SiteHooks,
    pub(crate) attention: Attention,
    pub(crate) feed_forward: FeedForward,
    /// The hooks of the block's output.
    pub(crate) output_hooks: SiteHooks,
}

/// What a block's forward pass saves for its backward pass.
#[derive(Debug)]
pub(crate) enum SavedBlock {
    /// All activations that the backward pass reads.
    Activations(Box<BlockActivations>),
    /// The block's input; the backward pass runs the block again.
    Input(Tensor),
}

/// All activations of a block that its backward pass reads.
#[derive(Debug)]
pub(crate) struct BlockActivations {
    input: Tensor,
    attention: SavedAttention,
    feed_forward: SavedFeedForward,
}

impl SavedBlock {
    /// The bytes of all saved tensors, including the block's input.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Activations(saved) => bytes(&saved.input) + saved.attention.bytes() + saved.feed_forward.bytes(),
            Self::Input(input) => bytes(input),
        }
    }
}

impl Block {
    /// Runs the block over `input` `[tokens, hidden]`: input hooks, attention, feed-forward, output hooks. `positions`
    /// holds each token's row in the rotation table; `segments` says which tokens each token attends to. Returns the
    /// output `[tokens, hidden]` and everything that the backward pass reads.
    pub(crate) fn forward(
        &self,
        input: &Tensor,
        positions: &Indices,
        segments: &Segments,
    ) -> Result<(Tensor, BlockActivations)> {
        let input = self.input_hooks.forward(input.clone())?;
        let (middle, attention) = self.attention.forward(&input, positions, segments)?;
        let (output, feed_forward) = self.feed_forward.forward(&middle)?;
        Ok((self.output_hooks.forward(output)?, BlockActivations { input, attention, feed_forward }))
    }

    /// Adds the gradients of the block's trained weights to `context.gradients`; `upstream` `[tokens, hidden]` is the
    /// gradient of the block's output. Returns the gradient of the block's input; `None` unless `context.want_input` is
    /// set or the attention's input norm is trained. Runs the forward pass again if only the input was saved. Frees the
    /// saved tensors of the feed-forward half before the backward pass of the attention half.
    pub(crate) fn backward(
        &self,
        upstream: &Tensor,
        saved: SavedBlock,
        context: &Context<'_>,
    ) -> Result<Option<Tensor>> {
        let saved = match saved {
            SavedBlock::Activations(saved) => *saved,
            SavedBlock::Input(input) => self.forward(&input, context.positions, context.segments)?.1,
        };
        let below = Context { want_input: context.want_input || self.attention.is_trained(), ..*context };
        let upstream = self.output_hooks.backward(upstream.clone())?;
        let middle = self.feed_forward.backward(&upstream, &saved.feed_forward, &below)?;
        drop(saved.feed_forward);
        let Some(middle) = middle else { return Ok(None) };
        let input = self.attention.backward(&middle, &saved.input, &saved.attention, context)?;
        input.map(|input| self.input_hooks.backward(input)).transpose()
    }
}
