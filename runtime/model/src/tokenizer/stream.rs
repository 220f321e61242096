//! Text out of ids that arrive one at a time.
//!
//! A character may be spread over several tokens, and a token's text may depend on the one before
//! it. So a few ids are held back until their text is settled.

use super::Tokenizer;
use crate::error::Result;

/// Marks bytes that are not a whole character yet.
const UNFINISHED: char = '\u{FFFD}';

/// Turns a stream of ids into text that never has to be taken back.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    /// Whether the names of special tokens are left out of the text.
    skip_special: bool,
    /// The last ids that were pushed, in order: those that later text may still depend on.
    ids: Vec<u32>,
    /// The index in `ids` at which decoding starts; no later text depends on the ids before it.
    context: usize,
    /// How many of `ids`, from the first on, have had their text returned.
    returned: usize,
}

impl StreamDecoder {
    /// A decoder before its first id. `skip_special` leaves out the names of special tokens.
    pub fn new(skip_special: bool) -> Self {
        Self { skip_special, ids: Vec::new(), context: 0, returned: 0 }
    }

    /// Adds an id and returns the text that follows what was returned so far. Returns an empty text, and holds the new
    /// text back, while the text of all ids ends in an incomplete character or is no longer than before.
    ///
    /// # Errors
    /// When the decoder cannot put the pieces together.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        self.ids.push(id);
        let (before, now) = self.texts(tokenizer)?;
        if now.len() <= before || now.ends_with(UNFINISHED) {
            return Ok(String::new());
        }

        self.context = self.returned;
        self.returned = self.ids.len();
        self.drop_settled_ids();
        Ok(now.get(before..).unwrap_or_default().to_owned())
    }

    /// Returns the text still held back, even an incomplete character, and resets the decoder.
    ///
    /// # Errors
    /// When the decoder cannot put the pieces together.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let (before, now) = self.texts(tokenizer)?;
        *self = Self::new(self.skip_special);
        Ok(now.get(before..).unwrap_or_default().to_owned())
    }

    /// Decodes the ids from `context` on. Returns the length in bytes of the text of those up to `returned`, and the
    /// text of all of them.
    fn texts(&self, tokenizer: &Tokenizer) -> Result<(usize, String)> {
        let before = tokenizer.decode(&self.ids[self.context..self.returned], self.skip_special)?;
        let now = tokenizer.decode(&self.ids[self.context..], self.skip_special)?;
        Ok((before.len(), now))
    }

    /// Drops the ids before the context, on which no later text depends, so that the cost of a token does not grow.
    fn drop_settled_ids(&mut self) {
        self.ids.drain(..self.context);
        self.returned -= self.context;
        self.context = 0;
    }
}
