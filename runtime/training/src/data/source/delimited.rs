//! The rows of a table of text: CSV, and TSV with tabs. The first row names the columns.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{BufRead, Read};

use csv::ByteRecord;
use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::format::pluralize;

use super::{Chunks, Following, Format, MAX_COLUMNS, MAX_RECORD_BYTES, Position, too_long, unreadable};
use crate::data::fault::Fault;
use crate::error::Error;

/// The separator of a CSV file that begins with `head`: a comma, or a semicolon if the first line has one and no comma,
/// as spreadsheets write it in many countries.
pub(super) fn separator(head: &[u8]) -> u8 {
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first.contains(&b';') && !first.contains(&b',') { b';' } else { b',' }
}

/// Reads every row after the first as an object of texts. Returns the number of rows. A row with another number of
/// fields than the first, or with a text that is not UTF-8, is passed on as a fault.
///
/// # Errors
/// A reader or a sink that fails; a first row with more than 1,000 columns or with two of one name; a row of 16 MiB or
/// more; and a quote that is not closed, because the field that it begins would hold the rest of the file.
pub(super) fn read(reader: &mut impl BufRead, separator: u8, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    let position = Cell::new(Position::START);
    let is_crlf = has_crlf(reader).map_err(|error| unreadable(chunks.name, error))?;
    // The last row ends as every other, so that the lines of all rows are counted alike.
    let reader = reader.chain(if is_crlf { &b"\r\n"[..] } else { &b"\n"[..] });
    let following = Following { reader, position: &position };
    let mut table = csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(following);
    let failed = |name: &str, line: u64, error: csv::Error| match position.get().left {
        0 => unreadable(name, too_long(Format::Delimited(separator), line)),
        _ => unreadable(name, error),
    };
    let names = table.byte_headers().map_err(|error| failed(chunks.name, 1, error))?.clone();
    if position.get().is_at_end && !names.is_empty() {
        return Err(unclosed_quote(chunks.name, 1, &names));
    }
    let names = column_names(chunks.name, &names)?;
    let (mut row, mut count) = (ByteRecord::new(), 0);
    loop {
        let line = table.position().line();
        position.set(Position { left: MAX_RECORD_BYTES, ..position.get() });
        if !table.read_byte_record(&mut row).map_err(|error| failed(chunks.name, line, error))? {
            return chunks.finish(count);
        }
        count += 1;
        // Every row ends before the end of the text, except inside a quoted field.
        let is_unclosed = position.get().is_at_end;
        // The library counts a line at `\n`: of `\r\n` after the row, of blank lines before it.
        let inside = count_line_ends(row.as_slice());
        let passed = table.position().line() - line;
        let number = line + passed.saturating_sub(inside + u64::from(!is_crlf && !is_unclosed));
        if is_unclosed {
            return Err(unclosed_quote(chunks.name, number, &row));
        }
        chunks.push_row(number, read_row(&names, &row))?;
    }
}

/// Builds the error about a table whose last row, which begins at line `number`, ends inside a quoted field. Names the
/// line in which that field, the last of the row, begins.
fn unclosed_quote(file: &str, number: u64, row: &ByteRecord) -> Error {
    let before: u64 = row.iter().take(row.len().saturating_sub(1)).map(count_line_ends).sum();
    Explanation::new("data", "a quote is not closed")
        .with_location(format!("{file}:{}", number + before))
        .with_why("the field that it begins goes on to the end of the file")
        .with_hint("close the quote after the text; a quote in a quoted text is written twice")
        .into()
}

/// The number of line ends (`\n`) in a text.
fn count_line_ends(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Whether the first line in the reader's buffer, which is filled if it is empty, ends with `\r\n`. False if no line
/// ends in the buffer. Consumes nothing.
fn has_crlf(reader: &mut impl BufRead) -> std::io::Result<bool> {
    let head = reader.fill_buf()?;
    let end = head.iter().position(|byte| *byte == b'\n');
    Ok(end.is_some_and(|end| head[..end].ends_with(b"\r")))
}

/// Returns the names of the columns without spaces around them; a name may be empty. Fails if there are more than
/// [`MAX_COLUMNS`], one is not UTF-8, or two are equal and not empty.
fn column_names(file: &str, row: &ByteRecord) -> Result<Vec<String>, Error> {
    let wrong = |what: String, hint: &str| {
        let problem = Explanation::new("data", what).with_location(format!("{file}:1"));
        Err(problem.with_why("the first row names the columns").with_hint(hint).into())
    };
    if row.len() > MAX_COLUMNS {
        return wrong(format!("the table has {} columns, at most {MAX_COLUMNS} are read", row.len()), "leave some out");
    }
    let mut names = Vec::with_capacity(row.len());
    let mut known = BTreeSet::new();
    for (number, name) in row.iter().enumerate() {
        let Ok(name) = std::str::from_utf8(name) else {
            return wrong(format!("the name of column {} is not UTF-8 text", number + 1), "save the file as UTF-8");
        };
        let name = name.trim();
        if !name.is_empty() && !known.insert(name.to_owned()) {
            return wrong(format!("two columns are named `{name}`"), "rename one of them");
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Reads the fields of a row as texts by the name of their column. Leaves out columns without a name. Returns a fault
/// if the row has another number of fields than there are columns, or a text that is not UTF-8.
fn read_row(names: &[String], row: &ByteRecord) -> Result<Map<String, Value>, Fault> {
    if row.len() != names.len() {
        let what = format!(
            "the row has {}, the first row names {}",
            pluralize(row.len() as u64, "field"),
            pluralize(names.len() as u64, "column")
        );
        let hint = "put texts with commas, quotes or line ends in double quotes, and write a quote in them twice";
        return Err(Explanation::new("data", what).with_hint(hint).into());
    }
    let field = |(name, value): (&String, &[u8])| match std::str::from_utf8(value) {
        Ok(text) => Ok((name.clone(), Value::String(text.to_owned()))),
        Err(_) => {
            let fault = Explanation::new("data", format!("`{name}` is not UTF-8 text"));
            Err(fault.with_hint("save the file as UTF-8").into())
        }
    };
    names.iter().zip(row.iter()).filter(|(name, _)| !name.is_empty()).map(field).collect()
}
