//! Serving a host: doing what it calls until it is done.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::codec::{Decode, Encode, Reader};
use super::connection::{self, Connected, Ended, Role};
use super::{Dispatch, frame, panics};

/// Names the socket of the host to serve.
const ADDRESS: &str = "TUNEBOX_TWIN";

/// Why the host stopped calling.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The host is done.
    End,
    /// The host of a bench did what it was asked for: what it showed, and what the last call returned.
    Report { shown: String, returned: Vec<u8> },
}

/// Serves the host that `TUNEBOX_TWIN` names; does nothing without one. An error exits the process with code 1.
pub(super) fn twin(manifest: &str, dispatch: Dispatch) {
    let Some(address) = std::env::var_os(ADDRESS) else { return };
    let connected = UnixStream::connect(address).map_err(connection::lost);
    if let Err(ended) = connected.and_then(|stream| greet_and_serve(stream, manifest, dispatch)) {
        exit(&ended);
    }
}

/// Sends the manifest over a new connection to the host, then answers its calls until it ends.
pub(super) fn greet_and_serve(stream: UnixStream, manifest: &str, dispatch: Dispatch) -> Result<(), Ended> {
    let _connected = Connected::new(stream, Role::Twin)?;
    send_greeting(&manifest)?;
    match serve_calls(dispatch)? {
        Outcome::End => Ok(()),
        Outcome::Report { .. } => Err(Ended::Unknown("a report to a twin".into())),
    }
}

/// Sends the first message to the host, whose bytes are `words` alone, without a kind.
pub(crate) fn send_greeting(words: &impl Encode) -> Result<(), Ended> {
    let mut message = Vec::new();
    words.encode(&mut message);
    connection::send(&message)
}

/// Reads the first message of a new connection; `None` if it is malformed, too late or the stream is broken.
pub(crate) fn read_greeting<T: Decode>(stream: &mut UnixStream, patience: Duration) -> Option<T> {
    let message = frame::receive(stream, frame::LARGEST, frame::after(Some(patience))).ok()??;
    stream.set_read_timeout(None).ok()?;
    T::decode(&mut Reader::new(&message)).ok()
}

/// Asks the host of a bench to make its next call, such as `step`. Does not wait for it.
pub(crate) fn request_next(what: &str) -> Result<(), Ended> {
    let mut message = vec![frame::NEXT];
    what.encode(&mut message);
    connection::send(&message)
}

/// Answers calls of the host until it ends or reports. Errors: the host stopped the method, or the connection broke.
pub(crate) fn serve_calls(dispatch: Dispatch) -> Result<Outcome, Ended> {
    let mut returned = Vec::new();
    loop {
        let message = connection::receive()?;
        let mut reader = Reader::new(&message);
        match u8::decode(&mut reader)? {
            frame::CALL => {
                let reply = answer_call(dispatch, &mut reader)?;
                connection::send(&reply)?;
                returned = reply;
                // What is left is the result alone.
                returned.remove(0);
            }
            frame::REPORT => return Ok(Outcome::Report { shown: String::decode(&mut reader)?, returned }),
            frame::END => return Ok(Outcome::End),
            frame::STOP => return Err(connection::end(Ended::Stopped(String::decode(&mut reader)?))),
            _ => return Err(connection::end(Ended::Unknown("a message that is no call".into()))),
        }
    }
}

/// Runs one call of the host and returns the message that answers it: the result, or the panic with its location.
fn answer_call(dispatch: Dispatch, call: &mut Reader<'_>) -> Result<Vec<u8>, Ended> {
    let function = u8::decode(call)?;
    let mut arguments = Reader::new(call.rest());
    let mut reply = vec![frame::RETURN];
    let outcome = panics::catch_panic(|| dispatch(function, &mut arguments, &mut reply));
    if let Some(ended) = connection::ended() {
        return Err(ended);
    }
    match outcome {
        Ok(Ok(())) => Ok(reply),
        Ok(Err(malformed)) => Err(connection::end(malformed.into())),
        Err(panic) => {
            let mut reply = vec![frame::PANICKED];
            panic.encode(&mut reply);
            Ok(reply)
        }
    }
}

/// Writes the reason to stderr, which the test harness does not capture, and exits the process with code 1.
pub(super) fn exit(ended: &Ended) -> ! {
    // Nobody is left to tell that this failed.
    let _ = writeln!(std::io::stderr(), "tunebox twin: {ended}");
    std::process::exit(1)
}
