//! Messages over a connection: a length (`u32`, little-endian, at most 64 MiB) and so many bytes. All but the first of
//! either side begin with their kind. The host's end of the connection compiles this file as well.
//!
//! Reading and writing end at a deadline, if the caller sets one.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// From the host: call a function of the method.
pub(crate) const CALL: u8 = 0;
/// From the host: what a request gave.
pub(crate) const ANSWER: u8 = 1;
/// From the host: it ended the method, and why.
pub(crate) const STOP: u8 = 2;
/// From the host: it is done.
pub(crate) const END: u8 = 3;
/// From the host of an author's test: what it asked for is done, and what it showed.
pub(crate) const REPORT: u8 = 4;

/// From the method: call a function of the contract.
pub(crate) const REQUEST: u8 = 0;
/// From the method: what a call gave.
pub(crate) const RETURN: u8 = 1;
/// From the method: it panicked.
pub(crate) const PANICKED: u8 = 2;
/// From an author's test: what to do next.
pub(crate) const NEXT: u8 = 3;

/// The most bytes of a message.
pub(crate) const LARGEST: usize = 64 << 20;

/// Bytes that are made room for at once: more only when they have come.
const CHUNK: usize = 1 << 16;

/// The end of a call, if it has one.
pub(crate) type Deadline = Option<Instant>;

/// The deadline that lies `patience` from now; `None`, no deadline, for `None` or a time too far away.
pub(crate) fn after(patience: Option<Duration>) -> Deadline {
    patience.and_then(|patience| Instant::now().checked_add(patience))
}

/// Writes a message with its length. Errors: more than 64 MiB, the deadline has passed, a broken stream.
pub(crate) fn send(stream: &mut UnixStream, payload: &[u8], deadline: Deadline) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= LARGEST);
    let length = length.ok_or_else(|| io::Error::new(ErrorKind::FileTooLarge, "a message has at most 64 MiB"))?;
    let mut framed = Vec::with_capacity(payload.len() + 4);
    framed.extend_from_slice(&length.to_le_bytes());
    framed.extend_from_slice(payload);
    stream.set_write_timeout(left(deadline)?)?;
    stream.write_all(&framed)
}

/// Reads a message of at most `largest` bytes. `None` if the other side has closed the stream before its first byte.
pub(crate) fn receive(stream: &mut UnixStream, largest: usize, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; 4];
    if !fill(stream, &mut header, deadline)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(header) as usize;
    if length > largest {
        let what = format!("a message of {length} bytes was announced, {largest} are allowed");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    let mut payload = Vec::with_capacity(length.min(CHUNK));
    while payload.len() < length {
        let filled = payload.len();
        payload.resize(length.min(filled.saturating_add(CHUNK.max(filled))), 0);
        let Some(room) = payload.get_mut(filled..) else { break };
        if !fill(stream, room, deadline)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(payload))
}

/// Fills a buffer by the deadline; `false` if the other side has closed the stream before its first byte.
fn fill(stream: &mut UnixStream, buffer: &mut [u8], deadline: Deadline) -> io::Result<bool> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        stream.set_read_timeout(left(deadline)?)?;
        match stream.read(room) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A time limit reads as one or the other, by system.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) if is_gone(&error) && filled == 0 => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Whether an I/O error means that the other side has closed the connection.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

/// The time left until the deadline, as a socket timeout; `None` without a deadline. `TimedOut` if it has passed.
fn left(deadline: Deadline) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else { return Ok(None) };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(Some(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of some bytes that another side wrote before it went.
    fn heard(bytes: &[u8], largest: usize) -> io::Result<Option<Vec<u8>>> {
        let (mut stream, mut other) = UnixStream::pair().unwrap();
        other.write_all(bytes).unwrap();
        drop(other);
        receive(&mut stream, largest, after(Some(Duration::from_secs(5))))
    }

    #[test]
    fn a_message_comes_whole_or_not_at_all() {
        assert_eq!(heard(&[3, 0, 0, 0, 7, 8, 9], LARGEST).unwrap(), Some(vec![7, 8, 9]));
        assert_eq!(heard(&[], LARGEST).unwrap(), None);
        for cut in [&[3, 0][..], &[3, 0, 0, 0, 7]] {
            assert_eq!(heard(cut, LARGEST).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_length_that_is_too_large_is_refused_before_anything_is_read() {
        assert_eq!(heard(&u32::MAX.to_le_bytes(), LARGEST).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(heard(&[3, 0, 0, 0, 7, 8, 9], 2).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_side_that_says_nothing_is_not_waited_for_longer_than_was_said() {
        let (mut stream, _silent) = UnixStream::pair().unwrap();
        let error = receive(&mut stream, LARGEST, after(Some(Duration::from_millis(30)))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
