//! The lines of a JSONL file. Skips blank lines, and accepts Windows line ends.

use std::io::{BufRead, Read};

use super::{Chunks, Format, Line, MAX_RECORD_BYTES, too_long, unreadable};
use crate::error::Error;

/// Reads every line that is not only ASCII whitespace, without `\n` and `\r` at its end. Returns the number of lines,
/// blank ones included.
///
/// # Errors
/// A reader or a sink that fails, and a line of 16 MiB ([`MAX_RECORD_BYTES`]) or more, blank lines included.
pub(super) fn read(reader: &mut impl BufRead, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    let mut number = 0;
    loop {
        let mut bytes = Vec::new();
        let read = reader.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', &mut bytes);
        if read.map_err(|error| unreadable(chunks.name, error))? == 0 {
            return chunks.finish(number);
        }
        number += 1;
        if bytes.len() as u64 == MAX_RECORD_BYTES && !bytes.ends_with(b"\n") {
            return Err(unreadable(chunks.name, too_long(Format::Lines, number)));
        }
        while bytes.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
            bytes.pop();
        }
        if !bytes.iter().all(u8::is_ascii_whitespace) {
            chunks.push(Line { number, column: 1, text: Ok(bytes) })?;
        }
    }
}
