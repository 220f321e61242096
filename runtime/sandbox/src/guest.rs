//! What a session calls: the exports of the contract.
//!
//! A component offers them inside the sandbox (`instance`); the same source as a process of its own over a
//! connection (`native`). Both work on the same state, through the same functions of `imports`.

use crate::batch::Batch;
use crate::bindings::types;
use crate::cause::Cause;
use crate::state::State;

/// What an export of the method returned: a value, or the message with which it refuses.
pub(crate) type ExportResult<R> = Result<R, String>;

/// A setting as it crosses the wall.
pub(crate) type Setting = (String, types::Value);

/// A method at work.
pub(crate) trait Guest: Send {
    /// What it holds and has used up.
    fn state(&mut self) -> &mut State;

    /// Starts the clocks of a call in which the method itself may compute for so many seconds.
    fn begin(&mut self, seconds: f64);

    /// Makes it ready for `init`.
    fn start(&mut self) -> wasmtime::Result<ExportResult<()>>;

    /// `init`.
    fn init(&mut self, settings: &[Setting]) -> wasmtime::Result<ExportResult<()>>;

    /// `step`.
    fn step(&mut self, batch: Batch) -> wasmtime::Result<ExportResult<()>>;

    /// `finish`.
    fn finish(&mut self) -> wasmtime::Result<ExportResult<()>>;

    /// `save-state`.
    fn save_state(&mut self) -> wasmtime::Result<Vec<u8>>;

    /// `load-state`.
    fn load_state(&mut self, state: &[u8]) -> wasmtime::Result<ExportResult<()>>;

    /// Answers what the method asks outside of a call, until it says what it wants next; `None` once it is gone.
    ///
    /// # Errors
    /// A component asks nothing outside of a call.
    fn wait(&mut self) -> wasmtime::Result<Option<String>> {
        Err(Cause::Protocol("it was waited for outside of a call".into()).into())
    }
}
