//! The program `tunebox` as the host of a bench: started, met on a port of this machine, and ended.

use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::native::read_greeting;

/// Names the program where it is not on the path.
const PROGRAM: &str = "TUNEBOX";

/// How long the program may take to connect: it starts in a fraction of a second.
const CONNECTS_WITHIN: Duration = Duration::from_secs(60);

/// How long it may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long to sleep between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Why a bench does not work: there is no host, it did not connect, it ended the method, or it is gone.
pub struct Error(pub(super) String);

impl Error {
    /// The error for a program that cannot be started.
    pub(super) fn not_started(program: &str, reason: &std::io::Error) -> Self {
        Self(format!(
            "cannot start `{program}`: {reason}\na bench runs on the program `tunebox`; install it, or name it: \
             `TUNEBOX=/path/to/tunebox cargo test`"
        ))
    }

    /// The error for a failure to listen on a port of this machine.
    fn no_port(reason: std::io::Error) -> Self {
        Self(format!("cannot listen on this machine: {reason}"))
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
    program: String,
    child: Child,
    errors: Option<JoinHandle<String>>,
}

impl Host {
    /// Starts the program and waits until it connects. Returns the host, its connection and the token that proved it.
    pub(super) fn start() -> Result<(Self, TcpStream, String), Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::no_port)?;
        let address = listener.local_addr().map_err(Error::no_port)?;
        let token = token();
        let named = std::env::var_os(PROGRAM).unwrap_or_else(|| OsString::from("tunebox"));
        let program = named.to_string_lossy().into_owned();
        let mut command = Command::new(&named);
        command.arg("host").env("TUNEBOX_TWIN", address.to_string()).env("TUNEBOX_TWIN_TOKEN", &token);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|reason| Error::not_started(&program, &reason))?;
        let errors = child.stderr.take().map(|mut stream| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // Output read before a failure is still shown.
                let _ = stream.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let mut host = Self { program, child, errors };
        let stream = host.accept_connection(&listener, &token)?;
        Ok((host, stream, token))
    }

    /// Waits until a client sends the token, and drops all others. Errors: the program ended, or 60 s passed.
    fn accept_connection(&mut self, listener: &TcpListener, token: &str) -> Result<TcpStream, Error> {
        listener.set_nonblocking(true).map_err(Error::no_port)?;
        let begun = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Some(stream) = check_token(stream, token) {
                        return Ok(stream);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(error) => return Err(Error::no_port(error)),
            }
            let reason = match self.child.try_wait() {
                Ok(None) if begun.elapsed() < CONNECTS_WITHIN => continue,
                Ok(None) => format!("nothing came for {} s", CONNECTS_WITHIN.as_secs()),
                Ok(Some(status)) => format!("{status}\n{}", self.error_output()),
                Err(error) => error.to_string(),
            };
            return Err(Error(format!(
                "`{}` did not connect: {reason}\nis it a `tunebox` of this version? `TUNEBOX` names another",
                self.program
            )));
        }
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

/// Returns the stream if its first message, within 5 s, is the token; else drops it and returns `None`.
fn check_token(mut stream: TcpStream, token: &str) -> Option<TcpStream> {
    stream.set_nonblocking(false).ok()?;
    let known: String = read_greeting(&mut stream, ENDS_WITHIN)?;
    (known == token).then_some(stream)
}

/// Generates a random token of 32 hexadecimal digits from two hash keys that the system draws.
fn token() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}
