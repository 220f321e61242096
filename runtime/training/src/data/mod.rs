//! Training data: JSONL lines to examples to batches.
//!
//! `lines` reads a file, `parse` makes a record of each line, `encode` tokenizes it, `dataset` puts the examples together.
//! `sampler` chooses the examples of each micro-batch, `window` makes the batches of one update of them.

mod dataset;
mod encode;
mod fault;
mod lines;
mod parse;
mod random;
mod sampler;
mod shape;
mod window;

pub use dataset::{Dataset, Reading, Report, Skipped};
pub use encode::{Encoder, Example};
pub use parse::shape_of_line;
pub use random::random_dataset;
pub(crate) use sampler::{BatchSampler, Batching, Cursor};
pub use shape::{Content, Record, Shape, TextOrMessages};
pub(crate) use window::collect_rows;
pub use window::{Window, window};
