//! `wit/text.wit`, kept: one function here for each there, in the same order.

use crate::bindings::text::Host;
use crate::refusal::Refusal;
use crate::state::Crossing;

/// Tokens of one call.
const MOST_IDS: usize = 65_536;

/// Bytes of text of one call.
const MOST_BYTES: usize = 1 << 20;

impl Host for Crossing<'_> {
    fn decode(&mut self, ids: Vec<u32>) -> Result<String, Refusal> {
        self.enter("text.decode")?;
        if ids.len() > MOST_IDS {
            return Err(Refusal::argument(format!(
                "at most {MOST_IDS} ids are decoded at once, these are {}",
                ids.len()
            )));
        }
        let vocabulary = self.learner.sizes().vocabulary;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Refusal::argument(format!("token {id} is not in the vocabulary of {vocabulary}")));
        }
        self.work(ids.len() as u64)?;
        let text = self.learner.decode(&ids)?;
        self.read_back(text.len() as u64)?;
        Ok(text)
    }

    fn encode(&mut self, text: String) -> Result<Vec<u32>, Refusal> {
        self.enter("text.encode")?;
        if text.len() > MOST_BYTES {
            return Err(Refusal::argument(format!(
                "at most {MOST_BYTES} bytes are encoded at once, these are {}",
                text.len()
            )));
        }
        self.work(text.len() as u64)?;
        let ids = self.learner.encode(&text)?;
        self.read_back(4 * ids.len() as u64)?;
        Ok(ids)
    }
}
