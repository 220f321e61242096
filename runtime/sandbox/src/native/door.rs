//! Who comes in: the token is compared before anything else of a connection is looked at.
//!
//! A host opens a [`Door`], starts the method's process with where it is and what to say, and lets it in as a [`Twin`]. The
//! other way round a test that is at work already listens, and this program comes to that [`Test`].

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::codec::{Encode, Reader};
use super::frame::{self, Deadline, REPORT, STOP, after};

/// The variable that tells a process where the other side listens.
pub const ADDRESS: &str = "TUNEBOX_TWIN";

/// The variable that tells it what to say there first.
pub const TOKEN: &str = "TUNEBOX_TWIN_TOKEN";

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The most bytes of the message that a stranger may send before it has said the token.
const HELLO_BYTES: usize = 1 << 20;

/// How long a connection may take to say it.
const HELLO: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody came.
const LOOK: Duration = Duration::from_millis(10);

/// A place on this machine where one process may come in that knows the token.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

/// What waiting at the door came to.
#[derive(Debug)]
pub enum Knock {
    /// The process is here.
    Here(Twin),
    /// Nobody came in time.
    Nobody,
    /// The waiting was called off.
    Off,
}

impl Door {
    /// Opens one, with a token of its own.
    ///
    /// # Errors
    /// When the system gives no port or no random numbers.
    pub fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, token: random_token()? })
    }

    /// What the process that is to come in must find in its environment.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [(ADDRESS, self.address.to_string()), (TOKEN, self.token.clone())]
    }

    /// Waits until the process is here, at most so long, or until `off` says that it will not come any more. `patience` is
    /// how long each of its calls may last later.
    ///
    /// # Errors
    /// When the system does not let anybody in. A connection that says something else is closed, and the next one heard.
    pub fn wait(
        &self,
        longest: Option<Duration>,
        patience: Option<Duration>,
        mut off: impl FnMut() -> bool,
    ) -> io::Result<Knock> {
        let deadline = after(longest);
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Some((stream, manifest)) = self.let_in(stream) {
                        return Ok(Knock::Here(Twin { stream, manifest, patience }));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if off() {
                        return Ok(Knock::Off);
                    }
                    if deadline.is_some_and(|deadline| deadline <= std::time::Instant::now()) {
                        return Ok(Knock::Nobody);
                    }
                    std::thread::sleep(LOOK);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The connection and what its method says about itself, if it knows the token.
    fn let_in(&self, mut stream: TcpStream) -> Option<(TcpStream, String)> {
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

/// A method's process that came in and was not called yet.
#[derive(Debug)]
pub struct Twin {
    pub(super) stream: TcpStream,
    pub(super) patience: Option<Duration>,
    manifest: String,
}

impl Twin {
    /// What the method says about itself, as text that nobody has checked.
    #[must_use]
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// A way to say something to the process beside the calls of a session, and after the last.
    ///
    /// # Errors
    /// When the system does not give a second hold of the connection.
    pub fn aside(&self) -> io::Result<Aside> {
        Ok(Aside(self.stream.try_clone()?))
    }
}

/// What a host says to the process of a method outside of the calls.
#[derive(Debug)]
pub struct Aside(TcpStream);

impl Aside {
    /// Tells how a call went, as JSON.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn report(&mut self, text: &str) -> io::Result<()> {
        self.say(REPORT, text)
    }

    /// Ends the method, with the reason. A process that is gone does not hear it.
    pub fn stop(mut self, reason: &str) {
        // It is being ended; whether it hears why cannot be made sure of.
        let _ = self.say(STOP, reason);
        let _ = self.0.shutdown(Shutdown::Write);
        // What it was just saying must not cut off what it is told.
        let _ = self.0.set_read_timeout(Some(HELLO));
        let _ = io::copy(&mut (&self.0).take(frame::LARGEST as u64), &mut io::sink());
    }

    fn say(&mut self, kind: u8, text: &str) -> io::Result<()> {
        let mut payload = vec![kind];
        text.encode(&mut payload);
        frame::send(&mut self.0, &payload, after(Some(HELLO)))
    }
}

/// A test of a method's author, at work, that listens for this program and says what it wants of it.
#[derive(Debug)]
pub struct Test {
    /// Its method.
    pub method: Twin,
    /// What it wants, as text that nobody has checked.
    pub wanted: String,
}

impl Test {
    /// Comes to the test that started this program, as the environment says.
    ///
    /// # Errors
    /// When the environment does not say it, nobody listens there, or the other side is another.
    pub fn find() -> io::Result<Self> {
        let variable = |name: &str| {
            let missing = || io::Error::new(ErrorKind::NotFound, format!("the variable `{name}` is not set"));
            std::env::var(name).map_err(|_| missing())
        };
        let address: SocketAddr = variable(ADDRESS)?.parse().map_err(|_| invalid("`TUNEBOX_TWIN` is no address"))?;
        if !address.ip().is_loopback() {
            return Err(invalid("`TUNEBOX_TWIN` is an address of another machine"));
        }
        Self::connect(address, &variable(TOKEN)?, after(Some(HELLO)))
    }

    fn connect(address: SocketAddr, token: &str, deadline: Deadline) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut proof = Vec::new();
        token.encode(&mut proof);
        frame::send(&mut stream, &proof, deadline)?;
        let wanted = frame::receive(&mut stream, frame::LARGEST, deadline)?;
        let wanted = wanted.ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))?;
        let mut wanted = Reader::new(&wanted);
        let told = |_| invalid("the first message is not what a test says first");
        if !is_same(&wanted.read::<String>().map_err(told)?, token) {
            return Err(invalid("whoever listens does not know the token"));
        }
        let (manifest, text) = (wanted.read().map_err(told)?, wanted.read().map_err(told)?);
        wanted.end().map_err(told)?;
        Ok(Self { method: Twin { stream, manifest, patience: None }, wanted: text })
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let difference = one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && difference == 0
}

/// A token that nobody guesses, in hexadecimal digits.
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
        let door = Door::open().unwrap();
        let [(_, address), (_, token)] = door.environment();
        let knock = |payload: Vec<u8>| {
            let mut stream = TcpStream::connect(&*address).unwrap();
            frame::send(&mut stream, &payload, None).unwrap();
            stream
        };
        let mut guessed = knock(hello(&"0".repeat(token.len())));
        let _garbled = knock(vec![0xff; 9]);
        let _known = knock(hello(&token));

        let Knock::Here(twin) = door.wait(soon(), None, || false).unwrap() else { panic!("nobody came") };
        assert_eq!(twin.manifest(), "{}");
        // The one that guessed was sent away without a word.
        assert_eq!(frame::receive(&mut guessed, 1, after(soon())).unwrap(), None);
    }

    #[test]
    fn nobody_is_waited_for_longer_than_was_said_or_than_there_is_hope() {
        let door = Door::open().unwrap();
        assert!(matches!(door.wait(Some(Duration::from_millis(30)), None, || false).unwrap(), Knock::Nobody));
        assert!(matches!(door.wait(None, None, || true).unwrap(), Knock::Off));
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
            let found = Test::connect(address, "secret", after(soon()));
            test.join().unwrap();
            assert_eq!(found.is_ok_and(|test| test.wanted == "{\"seed\":1}"), comes);
        }
    }
}
