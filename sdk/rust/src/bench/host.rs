//! The program `tunebox` as the host of a bench: started with one end of a socket as its standard input, and ended.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::native::read_greeting;

/// Names the program where it is not on the path.
const PROGRAM: &str = "TUNEBOX";

/// How long the program may take to greet: it starts in a fraction of a second.
const GREETS_WITHIN: Duration = Duration::from_secs(60);

/// How long it may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long to sleep between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Why a bench does not work: there is no host, it did not greet, it ended the method, or it is gone.
pub struct Error(pub(super) String);

impl Error {
    /// The error for a program that cannot be started.
    pub(super) fn not_started(program: &str, reason: &io::Error) -> Self {
        Self(format!(
            "cannot start `{program}`: {reason}\na bench runs on the program `tunebox`; install it, or name it: \
             `TUNEBOX=/path/to/tunebox cargo test`"
        ))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Debug shows the message of Display, because a test that returns an error prints it with Debug.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {}

/// The program at work; it ends when its connection does.
#[derive(Debug)]
pub(super) struct Host {
    child: Child,
    errors: Option<JoinHandle<String>>,
}

impl Host {
    /// Starts the program and waits for its greeting. Returns the host and the connection to it. Errors: no such
    /// program, or one that ends or says nothing within 60 s.
    pub(super) fn start() -> Result<(Self, UnixStream), Error> {
        let named = std::env::var_os(PROGRAM).unwrap_or_else(|| OsString::from("tunebox"));
        let program = named.to_string_lossy();
        let started = UnixStream::pair().and_then(|(ours, theirs)| {
            let mut command = Command::new(&named);
            command.arg("host").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
            Ok((command.spawn()?, ours))
        });
        let (mut child, mut stream) = started.map_err(|reason| Error::not_started(&program, &reason))?;
        let errors = child.stderr.take().map(|mut stream| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // Output read before a failure is still shown.
                let _ = stream.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let mut host = Self { child, errors };
        if read_greeting::<String>(&mut stream, GREETS_WITHIN).is_some() {
            return Ok((host, stream));
        }
        // A program that waits for more input ends without it.
        drop(stream);
        let output = host.error_output();
        Err(Error(format!(
            "`{program}` is no host of a bench: {output}\nis it a `tunebox` of this version? `TUNEBOX` names another"
        )))
    }

    /// Waits for the program to end, killing it after 5 s, and returns its stderr. Empty at a second call.
    pub(super) fn error_output(&mut self) -> String {
        self.end();
        let text = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        text.trim_end().to_owned()
    }

    /// Waits for the program to end, as it does when its connection closes; kills it after [`ENDS_WITHIN`].
    fn end(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < ENDS_WITHIN {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK);
        }
        // It may have ended by itself since.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}
