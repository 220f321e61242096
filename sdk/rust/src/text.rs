//! Tokens as text (`wit/text.wit`). Granted by name.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(rows: &Rows) -> Result<()> {
//! use tunebox::text;
//!
//! let refusals = text::encode("I cannot")?; // the token ids, without special tokens
//! let ids = rows.ids().slice(0, 0, 1).copy_to_indices()?; // of the first row, with its padding
//! let length = rows.presence().slice(0, 0, 1).sum(All).item()? as usize;
//! log(&text::decode(&ids[..length])?);
//! # Ok(())
//! # }
//! ```

use crate::Result;
use crate::bindings::tunebox::method::text;
use crate::error::checked;

/// The text of token ids; special tokens are left out.
#[track_caller]
pub fn decode(ids: &[u32]) -> Result<String> {
    checked(text::decode(ids))
}

/// The token ids of a text, without special tokens.
#[track_caller]
pub fn encode(text: &str) -> Result<Vec<u32>> {
    checked(text::encode(text))
}
