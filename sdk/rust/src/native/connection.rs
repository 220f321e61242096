//! The connection of a thread, the requests that go over it, and the handles that come back.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use super::codec::{Decode, Encode, Malformed, Reader};
use super::{frame, serve};

/// Why nothing more comes from the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ended {
    /// The host ended the method, and says why.
    Stopped(String),
    /// The connection broke.
    Lost(String),
    /// The host does not speak this contract.
    Unknown(String),
    /// There never was a host.
    Absent,
    /// A second host for the same thread.
    Busy,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(why) => formatter.write_str(why),
            Self::Lost(how) => write!(formatter, "the host is gone: {how}"),
            Self::Unknown(what) => write!(formatter, "the host does not speak this version of the contract: {what}"),
            Self::Absent => formatter.write_str(
                "no host listens to this thread; start one with `tunebox::bench::Bench`, and call from the same thread",
            ),
            Self::Busy => {
                formatter.write_str("this thread has a bench already; drop its run first, or use another thread")
            }
        }
    }
}

impl From<Malformed> for Ended {
    fn from(error: Malformed) -> Self {
        Self::Unknown(error.0)
    }
}

/// How a process reacts when the host ends the method in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The process serves the host and nothing else: it ends.
    Twin,
    /// A test goes on with others: it panics.
    Bench,
}

struct Connection {
    stream: UnixStream,
    role: Role,
    ended: Option<Ended>,
}

thread_local! {
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };

    /// The number of the thread's connection; 0 without one.
    static SESSION: Cell<u32> = const { Cell::new(0) };
}

/// The numbers of the connections that the process had.
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// Keeps the connection of the thread until it is dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Connected {
    /// Makes a stream this thread's connection; installs the panic hook. Errors: the thread has one.
    pub(crate) fn new(stream: UnixStream, role: Role) -> Result<Self, Ended> {
        if SESSION.get() != 0 {
            return Err(Ended::Busy);
        }
        super::panics::install_hook();
        CONNECTION.set(Some(Connection { stream, role, ended: None }));
        SESSION.set(SESSIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1));
        Ok(Self { _here: PhantomData })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        SESSION.set(0);
        // A thread that ends may have dropped its connection first.
        let _ = CONNECTION.try_with(|connection| connection.take());
    }
}

/// Sends a message over the thread's connection. Errors: there is none, or it has ended; a failure ends it.
pub(crate) fn send(message: &[u8]) -> Result<(), Ended> {
    with(|connection| frame::send(&mut connection.stream, message, None).map_err(lost))
}

/// Waits for a message on the thread's connection, without a deadline. Errors: there is none, or it has ended.
pub(crate) fn receive() -> Result<Vec<u8>, Ended> {
    with(|connection| receive_from(&mut connection.stream).map_err(lost))
}

/// Waits for a message on a stream, without a deadline. Errors: those of the stream; `UnexpectedEof` if it is closed.
pub(crate) fn receive_from(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    frame::receive(stream, frame::LARGEST, None)?.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// Why the thread has no working connection, [`Ended::Absent`] if it never had one; `None` if it works.
pub(crate) fn ended() -> Option<Ended> {
    with(|_| Ok(())).err()
}

/// Marks the thread's connection as ended and returns the reason: `why`, or the earlier one if it had ended.
pub(crate) fn end(why: Ended) -> Ended {
    with(|_| Err::<(), _>(why.clone())).err().unwrap_or(why)
}

/// Runs `work` on the thread's connection. An error of `work` ends the connection: every later call returns that error
/// without running its `work`. Errors: those of `work`, or [`Ended::Absent`] if the thread has no connection.
fn with<T>(work: impl FnOnce(&mut Connection) -> Result<T, Ended>) -> Result<T, Ended> {
    let done = CONNECTION.try_with(|connection| match connection.borrow_mut().as_mut() {
        Some(Connection { ended: Some(ended), .. }) => Err(ended.clone()),
        Some(connection) => work(connection).inspect_err(|ended| connection.ended = Some(ended.clone())),
        None => Err(Ended::Absent),
    });
    done.unwrap_or(Err(Ended::Absent))
}

/// Converts an I/O error of a connection to [`Ended::Lost`].
pub(crate) fn lost(error: std::io::Error) -> Ended {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Ended::Lost("it closed the connection".to_owned()),
        _ => Ended::Lost(error.to_string()),
    }
}

/// A call of a function of the contract.
pub struct Request {
    message: Vec<u8>,
}

impl Request {
    /// Creates a request to call a function, named as in `tensor/[method]tensor.add-scalar`.
    pub fn new(function: &str) -> Self {
        let mut message = vec![frame::REQUEST];
        function.encode(&mut message);
        Self { message }
    }

    /// Appends an encoded argument and returns the request.
    #[must_use]
    pub fn with(mut self, argument: &(impl Encode + ?Sized)) -> Self {
        argument.encode(&mut self.message);
        self
    }

    /// Sends the request and waits for its decoded answer. On a failure a twin exits its process; a bench panics.
    #[track_caller]
    pub fn send<A: Decode>(self) -> A {
        match self.exchange().and_then(|answer| read_answer(&answer)) {
            Ok(answer) => answer,
            Err(ended) => give_up(&ended),
        }
    }

    /// Sends the request and waits for the answer, as its encoded message.
    fn exchange(&self) -> Result<Vec<u8>, Ended> {
        send(&self.message)?;
        receive()
    }
}

/// Decodes the host's answer to a request. A malformed answer, or a message that the host has ended the method, ends
/// the thread's connection and is the error.
fn read_answer<A: Decode>(message: &[u8]) -> Result<A, Ended> {
    let mut reader = Reader::new(message);
    let mut read = || match u8::decode(&mut reader)? {
        frame::ANSWER => {
            let answer = A::decode(&mut reader)?;
            // Noted before the answer is dropped, which would ask again if it holds handles.
            reader.end().map_err(|malformed| end(malformed.into()))?;
            Ok(answer)
        }
        frame::STOP => Err(Ended::Stopped(String::decode(&mut reader)?)),
        _ => Err(Ended::Unknown("a message that is no answer".into())),
    };
    read().map_err(end)
}

/// Exits the process if it is a twin; panics with the reason otherwise.
#[track_caller]
fn give_up(ended: &Ended) -> ! {
    let role = CONNECTION.try_with(|connection| connection.borrow().as_ref().map(|connection| connection.role));
    match role {
        Ok(Some(Role::Twin)) => serve::exit(ended),
        _ => panic!("{ended}"),
    }
}

/// A resource of the host's, by its number on one connection.
#[derive(Debug)]
pub struct Handle {
    number: u32,
    session: u32,
}

impl Handle {
    /// Asks the host to drop the resource, by the request `function`. Does nothing if the thread has another connection
    /// or none: the host has dropped it then, or will. Never panics, so that it may be called while a panic unwinds.
    pub fn release(&self, function: &str) {
        if self.session == SESSION.get() && ended().is_none() {
            let answer = Request::new(function).with(self).exchange();
            // A failure is noted on the connection, and the next call tells it.
            let _ = answer.and_then(|answer| read_answer::<()>(&answer));
        }
    }
}

impl Encode for Handle {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let here = self.session == SESSION.get();
        assert!(here, "what is used here belongs to a bench of another thread, or to one that has ended");
        self.number.encode(bytes);
    }
}

impl Decode for Handle {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { number: u32::decode(bytes)?, session: SESSION.get() })
    }
}

/// A resource that the host lends for one call: dropping it sends no message.
pub struct Borrowed<T>(ManuallyDrop<T>);

impl<T: Decode> Decode for Borrowed<T> {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::decode(bytes).map(|value| Self(ManuallyDrop::new(value)))
    }
}

impl<T> Deref for Borrowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
