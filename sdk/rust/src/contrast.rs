//! Pieces that methods share which compare two kinds of text: means, directions, and what a model would refuse.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch, edit: &tunebox::contrast::Edit) -> Result<()> {
//! use tunebox::contrast::{Edit, Means};
//! use tunebox::hidden::{Site, Token, capture};
//!
//! // Removes the direction between two kinds of prompts at layer 12 from the weights.
//! let (mut harmful, mut harmless) = (Means::default(), Means::default());
//! harmful.add(&capture(&policy(), &batch.rows("harmful")?, &[12], Site::ResidualBefore, Token::FromEnd(0))?);
//! harmless.add(&capture(&policy(), &batch.rows("harmless")?, &[12], Site::ResidualBefore, Token::FromEnd(0))?);
//! if let (Some(harmful), Some(harmless)) = (harmful.mean(), harmless.mean()) {
//!     let direction = (harmful - harmless).squeeze(0).cast(tunebox::tensor::Dtype::F32); // [dimension]
//!     edit.apply(&direction)?;
//! }
//! # Ok(())
//! # }
//! ```

mod component;
mod edit;
mod means;
mod refusal;
mod sweep;
mod trial;

pub use component::{majority, principal, separation};
pub use edit::{Apply, Edit};
pub use means::{Means, remove_projection};
pub use refusal::{Refusal, refusal};
pub use sweep::{add_directions, lead};
pub use trial::{Trial, Verdict, ablate_direction};
