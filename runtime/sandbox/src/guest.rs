//! What a session calls: the exports of the contract.
//!
//! A component offers them inside the sandbox (`instance`); a native process, compiled from the same source, offers
//! them over a connection (`native`). Both work on the same state, through the same functions of `imports`.

use std::sync::Arc;

use crate::batch::Batch;
use crate::bindings::types;
use crate::cause::Cause;
use crate::state::State;

/// What an export of the method returned: a value, or the method's own error message.
pub(crate) type ExportResult<R> = Result<R, String>;

/// The name and value of a setting, in the contract's types.
pub(crate) type Setting = (String, types::Value);

/// A method that a session calls: a component in the sandbox, or a native process. The outer error of a call ends the
/// method: a trap, a passed limit, a broken protocol or a fault of the host.
pub(crate) trait Guest: Send {
    /// Returns the host's state of the method: its handles, counters and limits.
    fn state(&mut self) -> &mut State;

    /// Resets the counters for a new call and starts the method's clock. `seconds` is how long the method itself may
    /// compute; a native process ignores it.
    fn begin(&mut self, seconds: f64) -> wasmtime::Result<()>;

    /// Returns the instructions that the method itself executed in the present call; 0 where none are counted.
    fn instructions(&self) -> u64 {
        0
    }

    /// Makes the method ready for `init`: instantiates a component; does nothing for a process, which runs already.
    fn start(&mut self) -> wasmtime::Result<ExportResult<()>>;

    /// Calls the export `init` with the settings. The inner `Err` is the message with which the method refuses them.
    fn init(&mut self, settings: &[Setting]) -> wasmtime::Result<ExportResult<()>>;

    /// Calls the export `step` with one micro-batch, whose handle is valid during this call only. The inner `Err` is
    /// the method's own error message.
    fn step(&mut self, batch: Arc<Batch>) -> wasmtime::Result<ExportResult<()>>;

    /// Calls the export `finish`. The inner `Err` is the method's own error message.
    fn finish(&mut self) -> wasmtime::Result<ExportResult<()>>;

    /// Calls the export `save-state` and returns the method's bytes for a checkpoint. Does not check their number.
    fn save_state(&mut self) -> wasmtime::Result<Vec<u8>>;

    /// Calls the export `load-state` with bytes of an earlier `save-state`. The inner `Err` is the method's own error
    /// message.
    fn load_state(&mut self, state: &[u8]) -> wasmtime::Result<ExportResult<()>>;

    /// Answers a native process's requests between two calls until it sends text that says what to do next, and returns
    /// that text; `None` once the process is gone.
    ///
    /// # Errors
    /// Always for a component, which makes no requests outside of a call.
    fn wait(&mut self) -> wasmtime::Result<Option<String>> {
        Err(Cause::Protocol("it was waited for outside of a call".into()).into())
    }
}
