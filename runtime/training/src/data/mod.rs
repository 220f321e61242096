//! Training data: files to examples to batches.
//!
//! `files` finds the files, `source` reads the records of one as JSON texts, `layout` converts the fields of other
//! tools, `parse` makes a record of each text, `encode` tokenizes it, `dataset` puts the examples together. `sampler`
//! chooses the examples of each micro-batch, `window` makes the batches of one update of them. `beginning` and
//! `preview` read data for people.

mod beginning;
mod dataset;
mod encode;
mod fault;
mod files;
mod layout;
mod parse;
mod preview;
mod random;
mod sampler;
mod shape;
mod source;
mod window;

pub use beginning::{Beginning, read_beginning};
pub(crate) use dataset::check_amount;
pub use dataset::{Dataset, FileReport, Reading, Report, Skipped};
pub use encode::{Encoder, Example, WrongLength};
pub(crate) use files::combined_digest;
pub use files::{InputFile, find_files, has_data_name};
pub use layout::{FieldMap, check_fields};
pub use preview::{Bar, Preview, Sample, SampleRow, ShownToken, preview};
pub use random::random_dataset;
pub(crate) use sampler::{BatchSampler, Batching, Cursor};
pub use shape::{Content, Record, Shape, TextOrMessages};
pub(crate) use window::collect_rows;
pub use window::{Window, window};
