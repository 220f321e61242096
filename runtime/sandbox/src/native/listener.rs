//! Connections of native twins, over sockets that only processes of this user can reach.
//!
//! A host opens a [`TwinListener`], starts the method's process with the path of its socket, and accepts it as a
//! [`Twin`]. In the other direction, a running unit test starts this program with one end of a socket: its
//! [`UnitTest`].

use std::fs::Permissions;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tunebox_foundation::contract::CONTRACT;

use super::codec::{Decode, Encode, Malformed, Reader};
use super::frame::{self, REPORT, STOP, after};

/// The environment variable with the path of the listener's socket.
pub const ADDRESS: &str = "TUNEBOX_TWIN";

/// How long a connection may take to send the first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to poll for a connection.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A listening socket in a folder that only this user can enter.
#[derive(Debug)]
pub struct TwinListener {
    listener: UnixListener,
    /// Holds the socket; removed when dropped.
    folder: TempDir,
}

/// The result of waiting for a connection.
#[derive(Debug)]
pub enum Arrival {
    /// The process connected and sent its manifest.
    Connected(Twin),
    /// No process connected in time.
    TimedOut,
    /// The caller cancelled the waiting.
    Cancelled,
}

impl TwinListener {
    /// Creates a temporary folder that no other user may enter, and listens on a socket in it.
    ///
    /// # Errors
    /// When the system cannot create the folder or the socket.
    pub fn open() -> io::Result<Self> {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
        let listener = UnixListener::bind(folder.path().join("twin"))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, folder })
    }

    /// Returns the path of the socket, which the process needs in the environment variable [`ADDRESS`].
    #[must_use]
    pub fn address(&self) -> PathBuf {
        self.folder.path().join("twin")
    }

    /// Waits for the process to connect and send its manifest: at most `longest` (without limit if `None`), or until
    /// `is_cancelled` returns true, which is called every 10 ms except while a connection's manifest is awaited. A
    /// connection that does not send a manifest within 5 s is closed, and the next one accepted. `patience` limits how
    /// long the process may compute in each later call; `None` for no limit.
    ///
    /// # Errors
    /// When the listening socket fails. Failures of a connection are not errors.
    pub fn wait(
        &self,
        longest: Option<Duration>,
        patience: Option<Duration>,
        mut is_cancelled: impl FnMut() -> bool,
    ) -> io::Result<Arrival> {
        let deadline = after(longest);
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    if let Ok((stream, manifest)) = read_hello(stream) {
                        return Ok(Arrival::Connected(Twin { stream, manifest, patience }));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if is_cancelled() {
                        return Ok(Arrival::Cancelled);
                    }
                    if deadline.is_some_and(|deadline| deadline <= std::time::Instant::now()) {
                        return Ok(Arrival::TimedOut);
                    }
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads the first message of a connection, which must come within 5 s. Returns the connection and the decoded message.
/// Errors: `UnexpectedEof` for a closed connection, `InvalidData` for other bytes than one `T`, `TimedOut`.
fn read_hello<T: Decode>(mut stream: UnixStream) -> io::Result<(UnixStream, T)> {
    let invalid = |error: Malformed| io::Error::new(ErrorKind::InvalidData, error.0);
    let hello = frame::receive(&mut stream, frame::LARGEST, after(Some(HELLO_TIMEOUT)))?;
    let hello = hello.ok_or(ErrorKind::UnexpectedEof)?;
    let mut reader = Reader::new(&hello);
    let read = reader.read().map_err(invalid)?;
    reader.end().map_err(invalid)?;
    Ok((stream, read))
}

/// A connected process of a method, before its first call.
#[derive(Debug)]
pub struct Twin {
    pub(super) stream: UnixStream,
    /// How long the process may compute in each call; `None` for no limit.
    pub(super) patience: Option<Duration>,
    manifest: String,
}

impl Twin {
    /// Returns the manifest that the method sent, as unchecked text.
    #[must_use]
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// Duplicates the connection, for messages to the process outside of a session's calls.
    ///
    /// # Errors
    /// When the system cannot duplicate the socket.
    pub fn notifier(&self) -> io::Result<Notifier> {
        Ok(Notifier(self.stream.try_clone()?))
    }
}

/// Sends messages to the process of a method outside of the calls: reports, and the reason to stop.
#[derive(Debug)]
pub struct Notifier(UnixStream);

impl Notifier {
    /// Sends the report of a call to the process, within 5 s; `text` is JSON. Does not wait for an answer.
    ///
    /// # Errors
    /// When the connection broke or the process does not read in time.
    pub fn report(&mut self, text: &str) -> io::Result<()> {
        self.send(REPORT, text)
    }

    /// Sends the reason to stop, closes the connection for writing, and discards what the process still sends, until it
    /// closes the connection, is silent for 5 s, or has sent as many bytes as the largest message. Ignores failures.
    pub fn stop(mut self, reason: &str) {
        // The method ends in any case; the reason is sent as far as the connection allows.
        let _ = self.send(STOP, reason);
        let _ = self.0.shutdown(Shutdown::Write);
        // Unread bytes of the process would reset the connection and lose the reason.
        let _ = self.0.set_read_timeout(Some(HELLO_TIMEOUT));
        let _ = io::copy(&mut (&self.0).take(frame::LARGEST as u64), &mut io::sink());
    }

    /// Sends a message of `kind` with one text, within 5 s.
    fn send(&mut self, kind: u8, text: &str) -> io::Result<()> {
        let mut payload = vec![kind];
        text.encode(&mut payload);
        frame::send(&mut self.0, &payload, after(Some(HELLO_TIMEOUT)))
    }
}

/// A unit test of a method's author; its process started this program.
#[derive(Debug)]
pub struct UnitTest {
    /// The method under test.
    pub method: Twin,
    /// The run that the test asks for, as unchecked JSON.
    pub wanted: String,
}

impl UnitTest {
    /// Greets the test that started this program over the socket that is its standard input, and reads what it asks
    /// for.
    ///
    /// # Errors
    /// When the standard input is no socket, or the test does not read within 5 s, does not answer within 5 s, or
    /// answers something else than a manifest and a run, two texts.
    pub fn find() -> io::Result<Self> {
        Self::greet(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// Sends the version of the contract to the test at the other end of a socket, and reads the manifest of the method
    /// and the run that the test asks for, each within 5 s. Later calls of the method have no time limit.
    fn greet(mut stream: UnixStream) -> io::Result<Self> {
        let mut greeting = Vec::new();
        CONTRACT.to_string().encode(&mut greeting);
        frame::send(&mut stream, &greeting, after(Some(HELLO_TIMEOUT)))?;
        let (stream, (manifest, wanted)) = read_hello(stream)?;
        Ok(Self { method: Twin { stream, manifest, patience: None }, wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &impl Encode) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        bytes
    }

    #[test]
    fn only_this_user_reaches_the_socket_and_only_a_manifest_comes_in() {
        let listener = TwinListener::open().unwrap();
        let mode = listener.folder.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let knock = |payload: Vec<u8>| {
            let mut stream = UnixStream::connect(listener.address()).unwrap();
            frame::send(&mut stream, &payload, None).unwrap();
            stream
        };
        let mut garbled = knock(vec![0xff; 9]);
        let _known = knock(encoded(&"{}"));

        let soon = Some(Duration::from_secs(5));
        let Arrival::Connected(twin) = listener.wait(soon, None, || false).unwrap() else { panic!("no connection") };
        assert_eq!(twin.manifest(), "{}");
        // The first one was sent away without a word.
        assert_eq!(frame::receive(&mut garbled, 1, after(soon)).unwrap(), None);
    }

    #[test]
    fn waiting_ends_at_the_limit_or_when_the_twin_is_gone() {
        let listener = TwinListener::open().unwrap();
        assert!(matches!(listener.wait(Some(Duration::from_millis(30)), None, || false).unwrap(), Arrival::TimedOut));
        assert!(matches!(listener.wait(None, None, || true).unwrap(), Arrival::Cancelled));
    }

    #[test]
    fn a_test_is_greeted_first_and_says_what_it_wants() {
        let wants = |payload: Vec<u8>| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let test = std::thread::spawn(move || {
                let greeting = frame::receive(&mut theirs, frame::LARGEST, None).unwrap().unwrap();
                assert_eq!(Reader::new(&greeting).read::<String>().unwrap(), CONTRACT.to_string());
                frame::send(&mut theirs, &payload, None).unwrap();
            });
            let found = UnitTest::greet(ours);
            test.join().unwrap();
            found
        };
        assert_eq!(wants(encoded(&("{}", "{\"seed\":1}"))).unwrap().wanted, "{\"seed\":1}");
        assert_eq!(wants(encoded(&"{}")).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
