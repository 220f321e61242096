//! The transformer: forward and hand-written backward, block by block, on detached tensors.
//!
//! Activations are `[tokens, features]` in the type that the embedding gives them, rows packed one after another without
//! padding. Gradients of what is trained go straight into one flat buffer; frozen weights never get one. Autograd is not
//! used here: a loss is built on the taps (`policy`), and its seeds come back to this walk. Every operation is one of
//! `fused`, so that all of it runs where the weights are.

mod attention;
mod block;
mod feed_forward;
pub(crate) mod head;
pub(crate) mod hook;
pub(crate) mod linear;
pub(crate) mod network;
mod norm;
pub(crate) mod packing;
mod projection;
pub(crate) mod site;
pub(crate) mod stack;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

pub(crate) use block::{Block, SavedBlock};
pub use site::Site;
pub use stack::Recompute;
pub use tables::RopeTables;
