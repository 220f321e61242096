//! Serving a host: doing what it calls until it is done.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use super::codec::{Decode, Encode, Reader};
use super::connection::{self, Connected, Ended, Role};
use super::{Dispatch, frame, panics};

/// The host to serve, as `127.0.0.1:4711`.
const ADDRESS: &str = "TUNEBOX_TWIN";

/// What proves to it that the process is the one it started.
const TOKEN: &str = "TUNEBOX_TWIN_TOKEN";

/// How a stretch of calls came to its end.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The host is done.
    End,
    /// The host of a bench did what it was asked for: what it showed, and what the last call returned.
    Report { shown: String, returned: Vec<u8> },
}

/// Serves the host of the environment, if there is one. What goes wrong ends the process: it has no other purpose.
pub(super) fn twin(manifest: &str, dispatch: Dispatch) {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let token = std::env::var(TOKEN).unwrap_or_default();
    let connected = TcpStream::connect(&address);
    let served = connected.map_err(connection::lost).and_then(|stream| meet(stream, &token, manifest, dispatch));
    if let Err(ended) = served {
        exit(&ended);
    }
}

/// Says who is there, then serves.
pub(super) fn meet(stream: TcpStream, token: &str, manifest: &str, dispatch: Dispatch) -> Result<(), Ended> {
    let _connected = Connected::new(stream, Role::Twin)?;
    say(&(token, manifest))?;
    match serve_calls(dispatch)? {
        Outcome::End => Ok(()),
        Outcome::Report { .. } => Err(Ended::Unknown("a report to a twin".into())),
    }
}

/// Sends a message without a kind: the first one to a host.
pub(crate) fn say(words: &impl Encode) -> Result<(), Ended> {
    let mut message = Vec::new();
    words.encode(&mut message);
    connection::send(&message)
}

/// Reads the first message of a new connection; `None` if it is malformed or does not come before the deadline.
pub(crate) fn read_greeting<T: Decode>(stream: &mut TcpStream, patience: Duration) -> Option<T> {
    let message = frame::receive(stream, frame::LARGEST, frame::after(Some(patience))).ok()??;
    stream.set_read_timeout(None).ok()?;
    T::decode(&mut Reader::new(&message)).ok()
}

/// Asks the host of a bench for the next thing.
pub(crate) fn next(what: &str) -> Result<(), Ended> {
    let mut message = vec![frame::NEXT];
    what.encode(&mut message);
    connection::send(&message)
}

/// Does what the host calls, until it has had enough. Errors: it ended the method, or is gone.
pub(crate) fn serve_calls(dispatch: Dispatch) -> Result<Outcome, Ended> {
    let mut returned = Vec::new();
    loop {
        let message = connection::receive()?;
        let mut reader = Reader::new(&message);
        match u8::decode(&mut reader)? {
            frame::CALL => {
                let reply = done(dispatch, &mut reader)?;
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

/// What a call gave, or its panic, as the message that goes back.
fn done(dispatch: Dispatch, call: &mut Reader<'_>) -> Result<Vec<u8>, Ended> {
    let function = u8::decode(call)?;
    let mut arguments = Reader::new(call.rest());
    let mut reply = vec![frame::RETURN];
    let outcome = panics::caught(|| dispatch(function, &mut arguments, &mut reply));
    if let Some(ended) = connection::ended() {
        return Err(ended);
    }
    match outcome {
        Ok(Ok(())) => Ok(reply),
        Ok(Err(malformed)) => Err(connection::end(malformed.into())),
        Err(heard) => {
            let mut reply = vec![frame::PANICKED];
            (heard.message, heard.file, heard.line, heard.column).encode(&mut reply);
            Ok(reply)
        }
    }
}

/// Ends the process and says why, past the test harness, which would keep it to itself.
pub(super) fn exit(ended: &Ended) -> ! {
    // Nobody is left to tell that this failed.
    let _ = writeln!(std::io::stderr(), "tunebox twin: {ended}");
    std::process::exit(1)
}
