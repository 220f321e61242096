//! Reads a file of plain text as one record.

use std::io::Read;

use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;

use super::{Chunks, Format, MAX_RECORD_BYTES, too_long, unreadable};
use crate::error::Error;

/// Reads the whole file as the field `text` of one record. A file of white space alone has no record. Returns the
/// number of records.
///
/// # Errors
/// A reader or a sink that fails, and a file of 16 MiB ([`MAX_RECORD_BYTES`]) or more.
pub(super) fn read(reader: &mut impl Read, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    let mut bytes = Vec::new();
    let read = reader.take(MAX_RECORD_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(chunks.name, error))?;
    if bytes.len() as u64 == MAX_RECORD_BYTES {
        let problem = Explanation::new("data", format!("`{}` cannot be read", chunks.name));
        let hint = "split it at the ends of documents: each file is one text";
        return Err(problem.with_why(too_long(Format::Text, 1)).with_hint(hint).into());
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return chunks.finish(0);
    }
    let fields = String::from_utf8(bytes).map(|text| Map::from_iter([("text".to_owned(), Value::String(text))]));
    let fields = fields.map_err(|error| {
        let why = format!("byte {} is part of no character", error.utf8_error().valid_up_to() + 1);
        let problem = Explanation::new("data", "the text is not UTF-8").with_why(why);
        Box::new(problem.with_hint("save the file as UTF-8"))
    });
    chunks.push_row(1, fields)?;
    chunks.finish(1)
}
