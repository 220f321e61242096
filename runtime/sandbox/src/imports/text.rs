//! Implements `wit/text.wit`: one function for each of the interface, in its order.

use crate::bindings::text::Host;
use crate::refusal::{Refusal, Result, ensure};
use crate::state::HostContext;

/// The most token ids of one call of `decode`.
const MAX_IDS: usize = 65_536;

/// The most bytes of text of one call of `encode`.
const MAX_BYTES: usize = 1 << 20;

impl Host for HostContext<'_> {
    /// Decodes token ids to text, leaving out special tokens. Charges work for each id and counts the text's bytes as
    /// read back.
    ///
    /// Errors: `invalid-argument` for more than `MAX_IDS` ids or one outside the vocabulary; `out-of-budget` past the
    /// bytes that a step may read back; `device-error` for a model without a tokenizer.
    fn decode(&mut self, ids: Vec<u32>) -> Result<String> {
        self.enter("text.decode")?;
        let count = ids.len();
        let long = || Refusal::argument(format!("at most {MAX_IDS} ids are decoded at once, these are {count}"));
        ensure(count <= MAX_IDS, long)?;
        self.check_tokens(&ids)?;
        self.meters.charge_units(count as u64)?;
        let text = self.train_state().policy.model().tokenizer()?.decode(&ids, true)?;
        self.meters.count_readback(text.len() as u64)?;
        Ok(text)
    }

    /// Encodes text to token ids, adding no special tokens. Charges work for each byte and counts 4 bytes an id as read
    /// back.
    ///
    /// Errors: `invalid-argument` for more than `MAX_BYTES` bytes; `out-of-budget` past the bytes that a step may read
    /// back; `device-error` for a model without a tokenizer.
    fn encode(&mut self, text: String) -> Result<Vec<u32>> {
        self.enter("text.encode")?;
        let count = text.len();
        let long = || Refusal::argument(format!("at most {MAX_BYTES} bytes are encoded at once, these are {count}"));
        ensure(count <= MAX_BYTES, long)?;
        self.meters.charge_units(count as u64)?;
        let ids = self.train_state().policy.model().tokenizer()?.encode(&text, false)?;
        self.meters.count_readback(4 * ids.len() as u64)?;
        Ok(ids)
    }
}
