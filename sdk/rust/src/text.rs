//! Tokens as text (`wit/text.wit`). Granted by name.

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
