//! The transformer: forward and hand-written backward, block by block, on detached tensors.
//!
//! Activations are `[tokens, features]` in the dtype of the embedded tokens, rows packed one after another without
//! padding. Gradients of trained weights are added to one flat buffer; frozen weights have no gradient. Autograd is not
//! used here: `policy` computes the gradients of a loss with respect to the taps (*seeds*), from which the backward
//! pass starts. Every operation is one of `fused`, so that all of them run on the device of the weights.

mod attention;
mod block;
mod experts;
mod feed_forward;
pub(crate) mod head;
pub(crate) mod hook;
pub(crate) mod linear;
pub(crate) mod network;
mod noise;
mod norm;
pub(crate) mod packing;
mod projection;
pub(crate) mod site;
pub(crate) mod stack;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

pub(crate) use block::Block;
pub use noise::EmbeddingNoise;
pub use site::Site;
pub use stack::Recompute;
pub(crate) use stack::SavedBlocks;
pub use tables::RopeTables;
