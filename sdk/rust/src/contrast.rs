//! Pieces that methods share which compare two kinds of text: means, directions, and what a model would refuse.

mod component;
mod means;
mod refusal;
mod trial;

pub use component::{majority, principal, separation};
pub use means::{Means, projected};
pub use refusal::{Refusal, refusal};
pub use trial::{Trial, Verdict, ablated};
