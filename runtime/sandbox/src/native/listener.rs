//! Connections of native twins: a token is compared before anything else of a connection is read.
//!
//! A host opens a [`TwinListener`], starts the method's process with its address and token, and accepts it as a [`Twin`].
//! In the other direction a running test listens, and this program connects to it as a [`ListeningTest`].

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tunebox_foundation::explain::ensure;

use super::codec::{Encode, Reader};
use super::frame::{self, Deadline, REPORT, STOP, after};

/// The environment variable with the address of the other side.
pub const ADDRESS: &str = "TUNEBOX_TWIN";

/// The environment variable with the token that proves who connects.
pub const TOKEN: &str = "TUNEBOX_TWIN_TOKEN";

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The largest first message, in bytes: it comes from a process that has not shown the token yet.
const HELLO_BYTES: usize = 1 << 20;

/// How long a connection may take to send the first message.
const HELLO: Duration = Duration::from_secs(5);

/// How often to poll for a connection.
const LOOK: Duration = Duration::from_millis(10);

/// A port of this machine that accepts one process, if it knows the token.
#[derive(Debug)]
pub struct TwinListener {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

/// The result of waiting for a connection.
#[derive(Debug)]
pub enum Arrival {
    /// The process connected and sent the token.
    Connected(Twin),
    /// No process connected in time.
    TimedOut,
    /// The caller cancelled the waiting.
    Cancelled,
}

impl TwinListener {
    /// Opens a free port of this machine's loopback address and draws a random token.
    ///
    /// # Errors
    /// When the system gives no port or no random numbers.
    pub fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, token: random_token()? })
    }

    /// Returns the environment variables that the process needs to connect, as names and values: address and token.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [(ADDRESS, self.address.to_string()), (TOKEN, self.token.clone())]
    }

    /// Waits for the process to connect: at most `longest`, without limit if `None`, or until `off` returns true.
    /// `patience` limits how long the process may compute in each later call.
    ///
    /// # Errors
    /// Failures of the socket. A connection without the token is closed, and the next one accepted.
    pub fn wait(
        &self,
        longest: Option<Duration>,
        patience: Option<Duration>,
        mut off: impl FnMut() -> bool,
    ) -> io::Result<Arrival> {
        let deadline = after(longest);
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Some((stream, manifest)) = self.authenticate(stream) {
                        return Ok(Arrival::Connected(Twin { stream, manifest, patience }));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if off() {
                        return Ok(Arrival::Cancelled);
                    }
                    if deadline.is_some_and(|deadline| deadline <= std::time::Instant::now()) {
                        return Ok(Arrival::TimedOut);
                    }
                    std::thread::sleep(LOOK);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the first message of a connection. Returns the connection and the method's manifest if the message holds
    /// the token and comes in time; `None` closes the connection.
    fn authenticate(&self, mut stream: TcpStream) -> Option<(TcpStream, String)> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        let hello = frame::receive(&mut stream, HELLO_BYTES, after(Some(HELLO))).ok()??;
        let mut hello = Reader::new(&hello);
        let known = hello.read::<String>().is_ok_and(|token| is_same(&token, &self.token));
        let manifest = known.then(|| hello.read::<String>().ok()).flatten()?;
        hello.end().ok()?;
        Some((stream, manifest))
    }
}

/// A connected process of a method, before its first call.
#[derive(Debug)]
pub struct Twin {
    pub(super) stream: TcpStream,
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
pub struct Notifier(TcpStream);

impl Notifier {
    /// Sends the report of a call; `text` is JSON.
    ///
    /// # Errors
    /// When the connection broke.
    pub fn report(&mut self, text: &str) -> io::Result<()> {
        self.send(REPORT, text)
    }

    /// Sends the reason to stop, closes the connection for writing, and discards what the process still sends. Ignores
    /// failures.
    pub fn stop(mut self, reason: &str) {
        // The method ends in any case; the reason is sent as far as the connection allows.
        let _ = self.send(STOP, reason);
        let _ = self.0.shutdown(Shutdown::Write);
        // Unread bytes of the process would reset the connection and lose the reason.
        let _ = self.0.set_read_timeout(Some(HELLO));
        let _ = io::copy(&mut (&self.0).take(frame::LARGEST as u64), &mut io::sink());
    }

    /// Sends a message of `kind` with one text, within 5 s.
    fn send(&mut self, kind: u8, text: &str) -> io::Result<()> {
        let mut payload = vec![kind];
        text.encode(&mut payload);
        frame::send(&mut self.0, &payload, after(Some(HELLO)))
    }
}

/// A running test of a method's author that listens for this program.
#[derive(Debug)]
pub struct ListeningTest {
    /// The method under test.
    pub method: Twin,
    /// The run that the test asks for, as unchecked JSON.
    pub wanted: String,
}

impl ListeningTest {
    /// Connects to the test that started this program, by address and token in the environment.
    ///
    /// # Errors
    /// When the environment does not name it, nothing listens there, or the other side does not know the token.
    pub fn find() -> io::Result<Self> {
        let missing = |name: &str| io::Error::new(ErrorKind::NotFound, format!("the variable `{name}` is not set"));
        let variable = |name: &str| std::env::var(name).map_err(|_| missing(name));
        let address: SocketAddr = variable(ADDRESS)?.parse().map_err(|_| invalid("`TUNEBOX_TWIN` is no address"))?;
        ensure(address.ip().is_loopback(), || invalid("`TUNEBOX_TWIN` is an address of another machine"))?;
        Self::connect(address, &variable(TOKEN)?, after(Some(HELLO)))
    }

    /// Connects to a listening test: sends the token, then reads the first message with the token, the manifest and the
    /// run.
    ///
    /// Errors: the other side does not know the token, sends another message, or takes longer than `deadline`.
    fn connect(address: SocketAddr, token: &str, deadline: Deadline) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut proof = Vec::new();
        token.encode(&mut proof);
        frame::send(&mut stream, &proof, deadline)?;
        let wanted = frame::receive(&mut stream, frame::LARGEST, deadline)?;
        let wanted = wanted.ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))?;
        let mut wanted = Reader::new(&wanted);
        let unexpected = |_| invalid("the first message is not what a test says first");
        let known = is_same(&wanted.read::<String>().map_err(unexpected)?, token);
        ensure(known, || invalid("the listening process does not know the token"))?;
        let (manifest, text) = (wanted.read().map_err(unexpected)?, wanted.read().map_err(unexpected)?);
        wanted.end().map_err(unexpected)?;
        Ok(Self { method: Twin { stream, manifest, patience: None }, wanted: text })
    }
}

/// Builds an `InvalidData` error with this message.
fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Whether two texts are equal, in a time that does not depend on where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let difference = one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && difference == 0
}

/// Draws `TOKEN_BYTES` random bytes from the system, as hexadecimal digits.
fn random_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(tunebox_foundation::hexadecimal::hexadecimal(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(token: &str) -> Vec<u8> {
        let mut payload = Vec::new();
        token.encode(&mut payload);
        "{}".encode(&mut payload);
        payload
    }

    fn soon() -> Option<Duration> {
        Some(Duration::from_secs(5))
    }

    #[test]
    fn only_a_process_that_knows_the_token_comes_in() {
        let listener = TwinListener::open().unwrap();
        let [(_, address), (_, token)] = listener.environment();
        let knock = |payload: Vec<u8>| {
            let mut stream = TcpStream::connect(&*address).unwrap();
            frame::send(&mut stream, &payload, None).unwrap();
            stream
        };
        let mut guessed = knock(hello(&"0".repeat(token.len())));
        let _garbled = knock(vec![0xff; 9]);
        let _known = knock(hello(&token));

        let Arrival::Connected(twin) = listener.wait(soon(), None, || false).unwrap() else { panic!("no connection") };
        assert_eq!(twin.manifest(), "{}");
        // The one that guessed was sent away without a word.
        assert_eq!(frame::receive(&mut guessed, 1, after(soon())).unwrap(), None);
    }

    #[test]
    fn waiting_ends_at_the_limit_or_when_the_twin_is_gone() {
        let listener = TwinListener::open().unwrap();
        assert!(matches!(listener.wait(Some(Duration::from_millis(30)), None, || false).unwrap(), Arrival::TimedOut));
        assert!(matches!(listener.wait(None, None, || true).unwrap(), Arrival::Cancelled));
    }

    #[test]
    fn a_test_that_listens_hears_the_token_first_and_must_know_it_too() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        for (told, comes) in [("secret", true), ("guessed", false)] {
            let listens = listener.try_clone().unwrap();
            let test = std::thread::spawn(move || {
                let (mut stream, _) = listens.accept().unwrap();
                let proof = frame::receive(&mut stream, HELLO_BYTES, after(soon())).unwrap().unwrap();
                assert_eq!(Reader::new(&proof).read::<String>().unwrap(), "secret");
                let mut payload = hello(told);
                "{\"seed\":1}".encode(&mut payload);
                frame::send(&mut stream, &payload, None).unwrap();
            });
            let found = ListeningTest::connect(address, "secret", after(soon()));
            test.join().unwrap();
            assert_eq!(found.is_ok_and(|test| test.wanted == "{\"seed\":1}"), comes);
        }
    }
}
