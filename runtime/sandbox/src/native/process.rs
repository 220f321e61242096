//! Calls a method that is a native process: sends each call over the connection, and answers the process's requests
//! until the call returns.
//!
//! The sandbox cannot bound native code. Only the time that the process itself takes in a call has a limit, `patience`,
//! so that a test that hangs ends; the host's time for answers does not count.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tunebox_foundation::explain::ensure;

use super::Twin;
use super::codec::{Decode, Encode, Reader};
use super::dispatch::Import;
use super::frame::{self, ANSWER, CALL, Deadline, END, LARGEST, NEXT, PANICKED, REQUEST, RETURN, after, is_gone};
use super::resource::{end, read};
use crate::batch::Batch;
use crate::cause::Cause;
use crate::fault::{Function, GuestFault};
use crate::grants::interface_of;
use crate::guest::{ExportResult, Guest, Setting};
use crate::printable::printable;
use crate::state::{BatchEntry, HostContext, State};

/// How long sending the last message to a process may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes that a request may have in addition to `transfer_bytes`: kind, name and handles.
const REQUEST_OVERHEAD: usize = 4_096;

/// The longest name that a message shows.
const NAME_BYTES: usize = 100;

/// A method in a process of its own. `patience` is the longest time that it may take in a call, answers excluded.
pub(crate) struct Process {
    state: State,
    stream: UnixStream,
    patience: Option<Duration>,
    /// The interfaces whose functions it may request.
    interfaces: BTreeSet<String>,
    /// Whether nothing more is sent to it.
    is_closed: bool,
}

/// A message of the method other than a request.
enum Message {
    /// The call returned this encoded result.
    Return(Vec<u8>),
    /// The process says what to do next, between two calls.
    Next(String),
    /// The process is gone.
    Gone,
}

/// Builds [`Cause::Protocol`] for a message that the protocol does not have, or does not allow at this point; `what`
/// describes it.
fn malformed(what: impl Into<String>) -> Cause {
    Cause::Protocol(what.into())
}

impl Process {
    /// Takes over a connected process. It may request functions of the interfaces in `imports`, given by full name;
    /// names outside the contract are ignored.
    pub(crate) fn new(twin: Twin, imports: &[String], state: State) -> Self {
        let Twin { stream, patience, .. } = twin;
        let interfaces = imports.iter().filter_map(|import| interface_of(import)).map(str::to_owned).collect();
        Self { state, stream, patience, interfaces, is_closed: false }
    }

    /// Calls an export with the arguments that `write` encodes, answers the method's requests, and returns the decoded
    /// result. After an error, sets `is_closed`: nothing more is sent to the process, not even when this is dropped.
    fn call<R: Decode>(&mut self, export: Function, write: impl FnOnce(&mut Vec<u8>)) -> wasmtime::Result<R> {
        let result = self.exchange(export, write);
        // A `Notifier` that shares the connection may still send the reason.
        self.is_closed |= result.is_err();
        result
    }

    /// Sends a call of `export` with the arguments that `write` encodes, answers requests until the export returns, and
    /// decodes its result. Errors: the process ended, panicked, computed longer than `patience`, or broke the protocol;
    /// a request ended the method.
    fn exchange<R: Decode>(&mut self, export: Function, write: impl FnOnce(&mut Vec<u8>)) -> wasmtime::Result<R> {
        let deadline = after(self.patience);
        let mut payload = vec![CALL, export as u8];
        write(&mut payload);
        self.send(&payload, deadline)?;
        match self.receive(deadline)? {
            Message::Return(result) => {
                let mut result = Reader::new(&result);
                let value = read(&mut result)?;
                end(&result)?;
                Ok(value)
            }
            Message::Next(_) => Err(malformed("it asked for the next call within one").into()),
            Message::Gone => Err(Cause::Trap("its process ended before the call did".into()).into()),
        }
    }

    /// Answers requests between two calls, without time limit, until the process sends text that says what to do next,
    /// and returns that text; `None` if the process is gone. Errors: the process sends the result of a call, panics, or
    /// breaks the protocol.
    fn answer_while_idle(&mut self) -> wasmtime::Result<Option<String>> {
        match self.receive(None)? {
            Message::Next(order) => Ok(Some(order)),
            Message::Return(_) => Err(malformed("it returned from no call").into()),
            Message::Gone => Ok(None),
        }
    }

    /// Runs one request of the method, encoded as the function's name and its arguments, and returns the message with
    /// the encoded result.
    ///
    /// Errors: an unknown function, an interface that the method does not import (drops of handles are always allowed),
    /// arguments of more than `transfer_bytes` plus 4 KiB, or the error with which the function ends the method.
    fn answer(&mut self, request: &[u8]) -> wasmtime::Result<Vec<u8>> {
        let mut request = Reader::new(request);
        let name: String = read(&mut request)?;
        let import = Import::find(&name);
        let import = import.ok_or_else(|| malformed(format!("there is no `{}`", printable(&name, NAME_BYTES))))?;
        // A handle may be dropped whichever interface gave it out.
        let imported = self.interfaces.contains(import.interface()) || name.contains("[resource-drop]");
        ensure(imported, || malformed(format!("it asks for `{name}`, which its component does not import")))?;
        let handed = request.rest();
        let limit = self.state.limits.transfer_bytes;
        let bytes = handed.len() as u64;
        let large = || malformed(format!("it hands {bytes} bytes over in one call, {limit} are allowed"));
        ensure(bytes <= limit.saturating_add(REQUEST_OVERHEAD as u64), large)?;
        let answer = (import.call)(&mut HostContext::new(&mut self.state), &mut Reader::new(handed))?;
        Ok([&[ANSWER], answer.as_slice()].concat())
    }

    /// Answers requests until another message comes, and returns that message; [`Message::Gone`] if the connection is
    /// closed. `None` is no deadline. The time that the host needs to compute answers is added to the deadline.
    ///
    /// Errors: the method panicked (its message and place are stored as the fault), sent no message in time, or sent
    /// one that the protocol does not have; an answer failed or could not be sent.
    fn receive(&mut self, mut deadline: Deadline) -> wasmtime::Result<Message> {
        loop {
            let received = match frame::receive(&mut self.stream, LARGEST, deadline) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(Message::Gone),
                Err(error) => return Err(self.connection_error(&error).into()),
            };
            let mut input = Reader::new(&received);
            match read::<u8>(&mut input)? {
                REQUEST => {
                    let begun = Instant::now();
                    let answer = self.answer(input.rest())?;
                    deadline = deadline.map(|deadline| deadline + begun.elapsed());
                    self.send(&answer, deadline)?;
                }
                RETURN => return Ok(Message::Return(input.rest().to_vec())),
                PANICKED => {
                    let (message, file, line, column): (String, String, u32, u32) = read(&mut input)?;
                    end(&input)?;
                    self.state.fault = Some(GuestFault::new(&message, &file, line, column));
                    return Err(Cause::Trap("it panicked".into()).into());
                }
                NEXT => {
                    let order = read(&mut input)?;
                    end(&input)?;
                    return Ok(Message::Next(order));
                }
                other => return Err(malformed(format!("there is no message of kind {other}")).into()),
            }
        }
    }

    /// Sends a message to the process by the deadline; an error ends the method.
    fn send(&mut self, payload: &[u8], deadline: Deadline) -> wasmtime::Result<()> {
        let sent = frame::send(&mut self.stream, payload, deadline);
        sent.map_err(|error| self.connection_error(&error).into())
    }

    /// Converts a failure to send or receive into the cause that ends the method: [`Cause::Protocol`] for bytes that
    /// are no message or too large a one, else [`Cause::Trap`] with a text that says whether the process was too slow,
    /// is gone, or the connection broke.
    fn connection_error(&self, error: &std::io::Error) -> Cause {
        match (error.kind(), self.patience) {
            (ErrorKind::TimedOut, Some(patience)) => {
                Cause::Trap(format!("its process did not come back within {} s", patience.as_secs()))
            }
            (ErrorKind::InvalidData | ErrorKind::FileTooLarge, _) => malformed(error.to_string()),
            _ if is_gone(error) => Cause::Trap("its process ended before the call did".into()),
            _ => Cause::Trap(format!("the connection to its process broke: {error}")),
        }
    }
}

impl Guest for Process {
    fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Resets the counters and starts the clocks of a call. Ignores the seconds: the method's own time has no limit
    /// here.
    fn begin(&mut self, _: f64) -> wasmtime::Result<()> {
        // How long native code computes says nothing about the component.
        self.state.meters.begin(f64::INFINITY);
        Ok(())
    }

    /// Does nothing: the process runs already.
    fn start(&mut self) -> wasmtime::Result<ExportResult<()>> {
        Ok(Ok(()))
    }

    /// Calls `init` in the process; the inner `Err` is the method's own error message.
    fn init(&mut self, settings: &[Setting]) -> wasmtime::Result<ExportResult<()>> {
        self.call(Function::Init, |to| settings.encode(to))
    }

    /// Calls `step` in the process with the handle of the batch, which is deleted after the call unless the call
    /// failed. The inner `Err` is the method's own error message.
    fn step(&mut self, batch: Arc<Batch>) -> wasmtime::Result<ExportResult<()>> {
        let entry = self.state.table.push(BatchEntry(batch))?;
        let answer = self.call(Function::Step, |to| entry.encode(to))?;
        self.state.table.delete(entry)?;
        Ok(answer)
    }

    /// Calls `finish` in the process; the inner `Err` is the method's own error message.
    fn finish(&mut self) -> wasmtime::Result<ExportResult<()>> {
        self.call(Function::Finish, |_| {})
    }

    /// Calls `save-state` in the process and returns its bytes. Does not check their number.
    fn save_state(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.call(Function::SaveState, |_| {})
    }

    /// Calls `load-state` in the process; the inner `Err` is the method's own error message.
    fn load_state(&mut self, state: &[u8]) -> wasmtime::Result<ExportResult<()>> {
        self.call(Function::LoadState, |to| state.encode(to))
    }

    /// Answers requests until the process says what to do next; see [`Guest::wait`]. On an error or a closed
    /// connection, nothing more is sent to the process.
    fn wait(&mut self) -> wasmtime::Result<Option<String>> {
        let next = self.answer_while_idle();
        self.is_closed |= !matches!(next, Ok(Some(_)));
        next
    }
}

impl Drop for Process {
    /// Tells the process, within 1 s, that the session is over, unless a call failed or the process is gone. Ignores a
    /// failure. Does not end the process.
    fn drop(&mut self) {
        if !self.is_closed {
            // A failure means that the process is gone already.
            let _ = frame::send(&mut self.stream, &[END], after(Some(FAREWELL_TIMEOUT)));
        }
    }
}

#[cfg(test)]
mod tests;
