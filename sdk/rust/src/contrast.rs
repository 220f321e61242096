//! Pieces that methods share which compare two kinds of text: means, directions, and what a model would refuse.

mod component;
mod edit;
mod means;
mod refusal;
mod sweep;
mod trial;

pub use component::{majority, principal, separation};
pub use edit::{Apply, Edit};
pub use means::{Means, projected};
pub use refusal::{Refusal, refusal};
pub use sweep::{added, lead};
pub use trial::{Trial, Verdict, ablated};
