//! A message on the connection: its length in four bytes, little-endian, and its bytes; and the kinds of messages.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// The longest message.
const MOST: usize = 64 << 20;

/// From the host: call a function of the method.
pub(crate) const CALL: u8 = 0;
/// From the host: what a request gave.
pub(crate) const ANSWER: u8 = 1;
/// From the host: it ended the method, and why.
pub(crate) const STOP: u8 = 2;
/// From the host: it is done.
pub(crate) const END: u8 = 3;
/// From the host of a bench: what it asked for is done, and what it showed.
pub(crate) const REPORT: u8 = 4;

/// To the host: call a function of the contract.
pub(crate) const REQUEST: u8 = 0;
/// To the host: what a call gave.
pub(crate) const RETURN: u8 = 1;
/// To the host: the method panicked.
pub(crate) const PANICKED: u8 = 2;
/// To the host of a bench: what to do next.
pub(crate) const NEXT: u8 = 3;

/// Sends a message, in one piece. Errors: a message past the longest; those of the connection.
pub(crate) fn write(stream: &mut impl Write, message: &[u8]) -> Result<()> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MOST);
    let length = length.ok_or_else(|| too_long(message.len()))?;
    let mut framed = Vec::with_capacity(message.len() + 4);
    framed.extend_from_slice(&length.to_le_bytes());
    framed.extend_from_slice(message);
    stream.write_all(&framed)
}

/// Waits for a message. Errors: a length past the longest; those of the connection, its end among them.
pub(crate) fn read(stream: &mut impl Read) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST {
        return Err(too_long(length));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn too_long(length: usize) -> Error {
    Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes; {MOST} is the longest"))
}
