//! Implements `wit/text.wit`: one function for each of the interface, in its order.

use crate::bindings::text::Host;
use crate::refusal::{Refusal, Result, ensure};
use crate::state::HostContext;

/// The most token ids of one call of `decode`.
const MOST_IDS: usize = 65_536;

/// The most bytes of text of one call of `encode`.
const MOST_BYTES: usize = 1 << 20;

impl Host for HostContext<'_> {
    /// Decodes token ids to text, leaving out special tokens. Charges work for each id and counts the text's bytes as read
    /// back.
    ///
    /// Errors: `invalid-argument` for more than `MOST_IDS` ids or one outside the vocabulary; `out-of-budget` past the
    /// bytes that a step may read back; `device-error` for a model without a tokenizer.
    fn decode(&mut self, ids: Vec<u32>) -> Result<String> {
        self.enter("text.decode")?;
        let count = ids.len();
        let long = || Refusal::argument(format!("at most {MOST_IDS} ids are decoded at once, these are {count}"));
        ensure(count <= MOST_IDS, long)?;
        self.check_tokens(&ids)?;
        self.meters.work(count as u64)?;
        let text = self.train_state().policy.model().tokenizer()?.decode(&ids, true)?;
        self.meters.read_back(text.len() as u64)?;
        Ok(text)
    }

    /// Encodes text to token ids, adding no special tokens. Charges work for each byte and counts 4 bytes an id as read
    /// back.
    ///
    /// Errors: `invalid-argument` for more than `MOST_BYTES` bytes; `out-of-budget` past the bytes that a step may read
    /// back; `device-error` for a model without a tokenizer.
    fn encode(&mut self, text: String) -> Result<Vec<u32>> {
        self.enter("text.encode")?;
        let count = text.len();
        let long = || Refusal::argument(format!("at most {MOST_BYTES} bytes are encoded at once, these are {count}"));
        ensure(count <= MOST_BYTES, long)?;
        self.meters.work(count as u64)?;
        let ids = self.train_state().policy.model().tokenizer()?.encode(&text, false)?;
        self.meters.read_back(4 * ids.len() as u64)?;
        Ok(ids)
    }
}
