//! The elements of a JSON array, one at a time.

use std::cell::Cell;
use std::fmt;
use std::io::BufRead;

use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tunebox_foundation::explain::Explanation;

use super::{Chunks, Following, Format, Line, MAX_RECORD_BYTES, Position, too_long, unreadable};
use crate::data::fault::json_problem;
use crate::error::Error;

/// Reads every element of a JSON array, which must be all that the file holds. Returns the number of elements.
///
/// # Errors
/// A reader or a sink that fails, text that is no JSON array, with its location, and an element of 16 MiB or more.
pub(super) fn read(reader: &mut impl BufRead, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    let position = Cell::new(Position::START);
    let mut deserializer = serde_json::Deserializer::from_reader(Following { reader, position: &position });
    let mut elements = Elements { chunks, position: &position, count: 0, failed: None };
    let result = deserializer.deserialize_seq(&mut elements);
    let Elements { count, failed, .. } = elements;
    if let Some(error) = failed {
        return Err(error);
    }
    result.and_then(|()| deserializer.end()).map_err(|error| array_error(chunks.name, &position, &error))?;
    chunks.finish(count)
}

/// Builds the error about text that is no JSON array, with its location; about a file that cannot be read; or about an
/// element of too many bytes, if `position` has none left.
fn array_error(name: &str, position: &Cell<Position>, error: &serde_json::Error) -> Error {
    let at = position.get();
    if at.left == 0 {
        return unreadable(name, too_long(Format::Array, at.begin.map_or(at.line, |(line, _)| line)));
    }
    if error.is_io() {
        return unreadable(name, error);
    }
    Explanation::new("data", format!("the file is no JSON array: {}", json_problem(error)))
        .with_location(format!("{name}:{}:{}", at.line, at.column.saturating_sub(1).max(1)))
        .with_hint("write an array of objects, `[{…}, {…}]`, or one object a line")
        .into()
}

/// Passes the elements of an array on.
struct Elements<'a, 'b> {
    chunks: &'a mut Chunks<'b>,
    position: &'a Cell<Position>,
    count: u64,
    /// The error of the sink, which ended the reading.
    failed: Option<Error>,
}

impl<'de> Visitor<'de> for &mut Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an array")
    }

    /// Passes each element on as the text of a record, with the line and column at which it begins, and counts it.
    /// Stops at an error of the sink, and keeps that in `failed`.
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<Box<RawValue>>()? {
            let at = self.position.get();
            let (number, column) = at.begin.unwrap_or((at.line, at.column));
            self.position.set(Position { begin: None, left: MAX_RECORD_BYTES, ..at });
            self.count += 1;
            let text = Ok(Box::<str>::from(element).into_string().into_bytes());
            if let Err(error) = self.chunks.push(Line { number, column, text }) {
                self.failed = Some(error);
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}
