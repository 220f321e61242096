//! Implements the contract: one file for each interface of `wit/`, functions in the order of WIT.
//!
//! Each function counts its call under its name, looks up its operands, checks them, and calls the module that
//! does the work. Nothing here may panic, loop without bound, or trust a number that the method passes.

mod data;
mod hidden;
mod learn;
mod model;
mod optimizer;
mod patch;
mod reward;
mod run;
mod sample;
mod teacher;
mod tensor;
mod text;
mod weights;

pub use sample::NEW_TOKENS;

use crate::bindings::types::{self, Host};
use crate::refusal::{ErrorCode, Refusal, Result, ensure};
use crate::state::HostContext;

/// Bytes that an error counts as read back: its message may show a number of a tensor, such as an index out of range.
const ERROR_BYTES: u64 = 8;

/// The key of the metadata in the head of a safetensors file: a file with a tensor of this name cannot be read.
const METADATA_KEY: &str = "__metadata__";

/// Returns `invalid-argument` for the name of something that a run saves as a tensor, if safetensors files reserve it.
pub(crate) fn check_tensor_name(name: &str) -> Result<()> {
    ensure(name != METADATA_KEY, || {
        Refusal::argument(format!("the name `{METADATA_KEY}` is reserved in files of tensors"))
    })
}

/// Turns a refusal into an error that the method gets, or into its end.
impl Host for HostContext<'_> {
    /// Converts a refusal for a function with a `result` in WIT: an error is recorded with `State::record_denied` and
    /// returned to the method, a trap ends the method. Counts an error as [`ERROR_BYTES`] read back; past
    /// `readback_bytes` the method gets that error instead.
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        let counted = match &refusal {
            // It says that a limit is reached, and nothing of a tensor.
            Refusal::Error(error) if error.code == ErrorCode::OutOfBudget.name() => Ok(()),
            Refusal::Error(_) => self.meters.count_readback(ERROR_BYTES),
            Refusal::Trap(_) => Ok(()),
        };
        match counted.err().unwrap_or(refusal) {
            Refusal::Error(error) => {
                self.record_denied(&error.message);
                Ok(error)
            }
            Refusal::Trap(error) => Err(error),
        }
    }
}
