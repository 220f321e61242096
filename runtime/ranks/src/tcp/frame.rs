//! Frames on a TCP connection: a kind, a length and as many bytes, read and written before a deadline.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use tunebox_foundation::explain::ensure;

use crate::{Deadline, MAX_MESSAGE, RankError};

/// The length of the head of a frame: kind and length, each a number of 4 bytes, low byte first.
pub(super) const HEAD: usize = 8;
/// The longest content of a frame that is not a message: room for the numbers of all ranks.
const MAX_REPORT: usize = 32 << 10;
/// The bytes of a frame that are sent together with its head.
const FIRST: usize = 16 << 10;

/// What a frame contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of a gather.
    Message = 1,
    /// Rank 0 accepted the connection, and all ranks are connected. No content.
    Welcome = 2,
    /// Rank 0 does not accept the connection. The reason as text.
    Refused = 3,
    /// Ranks did not answer: the seconds that rank 0 waited, then the numbers of the ranks, 4 bytes each.
    Missing = 4,
    /// The connection of rank 0 to a rank ended: the number of the rank in 4 bytes, then the reason as text.
    Lost = 5,
}

/// Why a frame could not be read or written.
#[derive(Debug)]
pub(super) enum Failure {
    /// The deadline passed.
    Timeout,
    /// The connection ended, or what was sent is no frame; with the reason.
    Closed(String),
}

impl Failure {
    /// Converts a failure on the connection to `rank` into an error: [`RankError::Missing`] for a timeout, else
    /// [`RankError::Lost`].
    pub(super) fn error(self, rank: usize, deadline: Deadline) -> RankError {
        match self {
            Self::Timeout => deadline.missing(vec![rank]),
            Self::Closed(why) => RankError::Lost { rank, why },
        }
    }
}

/// Writes a frame. Sends the first [`FIRST`] bytes of the content together with the head.
///
/// # Errors
/// [`Failure::Timeout`] if the deadline passes, [`Failure::Closed`] if the connection ended or the content has 2³²
/// bytes or more. A part of the frame may have been sent.
pub(super) fn write_frame(
    mut stream: &TcpStream,
    kind: Kind,
    content: &[u8],
    deadline: Deadline,
) -> Result<(), Failure> {
    let length = u32::try_from(content.len()).map_err(|_| Failure::Closed("the frame is too long".to_owned()))?;
    let (first, rest) = content.split_at(content.len().min(FIRST));
    let head = [&(kind as u32).to_le_bytes()[..], &length.to_le_bytes(), first].concat();
    for mut bytes in [&head[..], rest] {
        while !bytes.is_empty() {
            stream.set_write_timeout(Some(time_left(deadline)?)).map_err(closed_failure)?;
            let written = count_moved(stream.write(bytes))?;
            bytes = &bytes[written..];
        }
    }
    Ok(())
}

/// Reads a frame and returns its kind and content. Checks the length before it allocates memory.
///
/// # Errors
/// [`Failure::Timeout`] if the deadline passes, [`Failure::Closed`] if the connection ended, or for an unknown kind or
/// a content that is longer than its kind allows. A part of the frame may have been read.
pub(super) fn read_frame(stream: &TcpStream, deadline: Deadline) -> Result<(Kind, Vec<u8>), Failure> {
    let mut head = [0; HEAD];
    read_bytes(stream, &mut head, deadline)?;
    let [a, b, c, d, length @ ..] = head;
    let (kind, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(length));
    let kinds = [Kind::Message, Kind::Welcome, Kind::Refused, Kind::Missing, Kind::Lost];
    let kind = kinds.into_iter().find(|known| *known as u32 == kind);
    let kind = kind.ok_or_else(|| Failure::Closed("it sent data of another program".to_owned()))?;
    let longest = if kind == Kind::Message { MAX_MESSAGE } else { MAX_REPORT };
    ensure(length as usize <= longest, || {
        Failure::Closed(format!("it announced {length} bytes, more than {longest}"))
    })?;
    let mut content = vec![0; length as usize];
    read_bytes(stream, &mut content, deadline)?;
    Ok((kind, content))
}

/// Fills all of `bytes` from the connection.
///
/// # Errors
/// [`Failure::Timeout`] if the deadline passes, [`Failure::Closed`] if the connection ended. A part of `bytes` may have
/// been filled.
pub(super) fn read_bytes(mut stream: &TcpStream, mut bytes: &mut [u8], deadline: Deadline) -> Result<(), Failure> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(time_left(deadline)?)).map_err(closed_failure)?;
        let read = count_moved(stream.read(bytes))?;
        bytes = &mut bytes[read..];
    }
    Ok(())
}

/// Whether a read would not wait: bytes of the other side are there, or the connection ended. Leaves the stream
/// blocking.
pub(super) fn is_readable(stream: &TcpStream) -> bool {
    let found = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    // Without this the next read would fail where it should wait; it then reports that as an ended connection.
    let _ = stream.set_nonblocking(false);
    !found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Returns the number of bytes that a read or write of the system moved; 0 if it was interrupted or timed out: the
/// caller then checks the deadline and tries again.
///
/// # Errors
/// [`Failure::Closed`] if it moved no bytes, which means that the other side closed the connection, or failed
/// otherwise.
fn count_moved(moved: std::io::Result<usize>) -> Result<usize, Failure> {
    match moved {
        Ok(0) => Err(Failure::Closed("the rank closed its connection".to_owned())),
        Ok(count) => Ok(count),
        Err(error) => match error.kind() {
            ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(0),
            _ => Err(closed_failure(error)),
        },
    }
}

/// Returns the time until the deadline.
///
/// # Errors
/// [`Failure::Timeout`] if it passed.
fn time_left(deadline: Deadline) -> Result<std::time::Duration, Failure> {
    let left = deadline.remaining();
    if left.is_zero() { Err(Failure::Timeout) } else { Ok(left) }
}

/// Converts an error of the system on a connection into [`Failure::Closed`] with its message.
fn closed_failure(error: std::io::Error) -> Failure {
    Failure::Closed(error.to_string())
}
