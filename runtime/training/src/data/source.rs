//! The records of a data file as JSON texts, whatever the format of the file.
//!
//! The format follows from the content first and the name second, so that a `.json` file of lines is read as lines.
//! Every format is read as a stream: what is in memory at once is a chunk of records, and for Parquet the pages of one
//! row group. Files may come from anyone, so the size of a record and what a file may unpack to are limited.

mod compression;
mod delimited;
mod json;
mod lines;
mod parquet;
mod text;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::files::{self, FileError};
use tunebox_foundation::hexadecimal::hexadecimal;

use super::fault::Fault;
use crate::error::Error;
pub(super) use compression::{extension, unpacked_bytes};

/// The most bytes of a record, so that a file without an end of its first record is not read without end.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// A chunk of records ends once it has so many bytes, so that many long records are not in memory together.
const CHUNK_BYTES: usize = 2 << 20;

/// Number of records that are tokenized in parallel: enough for all threads, little in memory.
const CHUNK_RECORDS: usize = 2_048;

/// The most columns of a table.
const MAX_COLUMNS: usize = 1_000;

/// The UTF-8 byte-order mark.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Bytes at the beginning of a file from which its format is recognized.
const HEAD_BYTES: u64 = 4 << 10;

/// The format of a data file, without its compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// One JSON object a line.
    Lines,
    /// A JSON array of objects.
    Array,
    /// A table of text whose first row names the columns; the fields are separated by this byte.
    Delimited(u8),
    /// A Parquet table.
    Parquet,
    /// Plain text: the whole file is one record with the field `text`.
    Text,
}

impl Format {
    /// What one record of the format is called in messages: `line`, `record` or `row`.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Lines => "line",
            Self::Array => "record",
            Self::Delimited(_) | Self::Parquet => "row",
            Self::Text => "text",
        }
    }

    /// Where record `number` begins, in words: `line 7`, or `row 7` of a Parquet table.
    pub(super) fn place(self, number: u64) -> String {
        if self == Self::Parquet { format!("row {number}") } else { format!("line {number}") }
    }

    /// Whether all values are text, as in CSV, so that a number, boolean or list is recognized only where one is
    /// expected.
    pub(super) fn is_untyped(self) -> bool {
        matches!(self, Self::Delimited(_))
    }

    /// The location of a record in a message: `file:line:column`, `file:line` for a table of text, whose columns have
    /// names, or `file, row 7` for Parquet.
    pub(super) fn location(self, file: &str, number: u64, column: usize) -> String {
        match self {
            Self::Lines | Self::Array | Self::Text => format!("{file}:{number}:{column}"),
            Self::Delimited(_) => format!("{file}:{number}"),
            Self::Parquet => format!("{file}, row {number}"),
        }
    }

    /// Finds the format of a file that is not Parquet by its first bytes and its name: Markdown by its extension, and
    /// plain text by its extension unless it begins as a record of JSON does; JSON by its first bracket, then a table
    /// by its extension, else lines.
    fn find(path: &Path, head: &[u8]) -> Self {
        let head = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head);
        let marks: Vec<u8> = head.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).take(3).collect();
        let extension = compression::extension(path);
        match (extension.as_deref(), marks.as_slice()) {
            (Some("md"), _) => return Self::Text,
            (Some("txt"), marks) if !marks.starts_with(b"{\"") && marks != b"[{\"" => return Self::Text,
            (_, [b'[', ..]) => return Self::Array,
            (_, [b'{', ..]) => return Self::Lines,
            _ => {}
        }
        match extension.as_deref() {
            Some("csv") => Self::Delimited(delimited::separator(head)),
            Some("tsv" | "tab") => Self::Delimited(b'\t'),
            _ => Self::Lines,
        }
    }
}

/// One record of a file as JSON text.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// Where the record begins: the number of its line in the file, or for Parquet of its row; from 1.
    pub(super) number: u64,
    /// The column at which the record begins in its line, from 1, in characters.
    pub(super) column: usize,
    /// The JSON text of the record, which has line ends only if it has them in the file; or why there is none.
    pub(super) text: Result<Vec<u8>, Fault>,
}

/// What is known of a file after all of it was read.
pub(super) struct FileFacts {
    /// Lines of a file of lines, blank ones included; records of another file.
    pub(super) lines: u64,
    /// The SHA-256 of the file as it is stored.
    pub(super) digest: String,
}

/// Reads all records of a file and passes them to `sink` in chunks, with the format of the file.
///
/// # Errors
/// A file that cannot be read or is damaged; a record or a plain text of 16 MiB or more; a table without named columns
/// or with more than 1,000; a file that unpacks to more than 64 MiB and 200 times its size; and errors of `sink`.
pub(super) fn read_records(
    path: &Path,
    sink: &mut dyn FnMut(Format, Vec<Line>) -> Result<(), Error>,
) -> Result<FileFacts, Error> {
    let mut file = files::open(path)?;
    let (name, stored) = (path.display().to_string(), file.metadata().map_or(0, |about| about.len()));
    let mut magic = [0; 4];
    let is_parquet = file.read_exact(&mut magic).is_ok() && magic == parquet::MAGIC;
    file.rewind().map_err(FileError::at("read", path))?;
    let (format, left) = (Format::Parquet, unpacked_bytes(stored));
    let mut chunks = Chunks { name: &name, format, sink, lines: Vec::new(), bytes: 0, left };
    if is_parquet {
        let lines = parquet::read(file, &mut chunks)?;
        return Ok(FileFacts { lines, digest: tunebox_model::digest(&[path.to_owned()])? });
    }
    if compression::extension(path).as_deref() == Some("parquet") {
        let problem = Explanation::new("data", format!("`{name}` is no Parquet file"));
        return Err(problem
            .with_why("it does not begin with `PAR1`")
            .with_hint("copy or download the file again")
            .into());
    }
    let mut stored_bytes = Hashing { file, digest: Sha256::new() };
    let unpacked = compression::unpack(&mut stored_bytes, magic, stored, &name)?;
    let lines = read_text(path, unpacked, &mut chunks)?;
    // A decoder may end before the end of the file.
    io::copy(&mut stored_bytes, &mut io::sink()).map_err(|error| unreadable(&name, error))?;
    Ok(FileFacts { lines, digest: hexadecimal(&stored_bytes.digest.finalize()) })
}

/// Reads all records of a file of text, given by its path and its unpacked content, after finding its format. Returns
/// the number of lines, or of records or rows.
fn read_text(path: &Path, mut unpacked: Box<dyn Read + '_>, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    let mut head = Vec::new();
    let read = unpacked.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(|error| unreadable(chunks.name, error))?;
    chunks.format = Format::find(path, &head);
    let start = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(&head);
    let mut reader = BufReader::with_capacity(1 << 16, Cursor::new(start).chain(unpacked));
    match chunks.format {
        Format::Array => json::read(&mut reader, chunks),
        Format::Delimited(separator) => delimited::read(&mut reader, separator, chunks),
        Format::Text => text::read(&mut reader, chunks),
        Format::Lines | Format::Parquet => lines::read(&mut reader, chunks),
    }
}

/// Builds the error about the file `name` that cannot be read; `error` is the cause.
fn unreadable(name: &str, error: impl std::fmt::Display) -> Error {
    Explanation::new("data", format!("`{name}` cannot be read")).with_why(error.to_string()).into()
}

/// A file whose read bytes are hashed.
struct Hashing {
    file: File,
    digest: Sha256,
}

impl Read for Hashing {
    /// Reads from the file, and adds the bytes to the digest.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.digest.update(&buffer[..length]);
        Ok(length)
    }
}

/// Collects the records of one file to chunks for the sink.
struct Chunks<'a> {
    /// The file's name in messages.
    name: &'a str,
    format: Format,
    sink: &'a mut dyn FnMut(Format, Vec<Line>) -> Result<(), Error>,
    lines: Vec<Line>,
    /// Bytes of `lines`.
    bytes: usize,
    /// Bytes that the further records may have.
    left: u64,
}

impl Chunks<'_> {
    /// Adds a record to the chunk, and passes the chunk on to the sink if it is full. Errors: the sink fails, the
    /// record has [`MAX_RECORD_BYTES`] or more, or all records together have more bytes than a file of this size can
    /// unpack to.
    fn push(&mut self, line: Line) -> Result<(), Error> {
        let length = line.text.as_ref().map_or(0, Vec::len);
        if length as u64 >= MAX_RECORD_BYTES {
            return Err(unreadable(self.name, too_long(self.format, line.number)));
        }
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| compression::unpacks_to_too_much(self.name))?;
        self.bytes += length;
        self.lines.push(line);
        if self.lines.len() >= CHUNK_RECORDS || self.bytes >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    /// Adds a record of a table, given by its fields, or by why they cannot be read. `number` is that of its line or
    /// row. Fails as [`push`](Self::push) does.
    fn push_row(&mut self, number: u64, fields: Result<Map<String, Value>, Fault>) -> Result<(), Error> {
        let text = fields.map(|fields| Value::Object(fields).to_string().into_bytes());
        self.push(Line { number, column: 1, text })
    }

    /// Passes the last records on, and returns `count`, the number of records of the file.
    fn finish(&mut self, count: u64) -> Result<u64, Error> {
        self.flush()?;
        Ok(count)
    }

    /// Passes the collected records on to the sink; does nothing if there are none.
    fn flush(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() { Ok(()) } else { (self.sink)(self.format, lines) }
    }
}

/// Says that record `number` of a file in this format has too many bytes.
fn too_long(format: Format, number: u64) -> String {
    let place = match format {
        Format::Lines => "line",
        Format::Array => "the record at line",
        Format::Delimited(_) => "the row at line",
        Format::Parquet => "row",
        Format::Text => "the text at line",
    };
    format!("{place} {number} has {MAX_RECORD_BYTES} bytes or more")
}

/// A position in a text, and how much may still be read from it.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// Number of the line, from 1.
    line: u64,
    /// Column of the next character, from 1.
    column: usize,
    /// Line and column of the first byte of the record; `None` before it.
    begin: Option<(u64, usize)>,
    /// Bytes that may be read before the record must end.
    left: u64,
    /// Whether the end of the text was reached.
    is_at_end: bool,
}

impl Position {
    /// The beginning of a file.
    const START: Self = Self { line: 1, column: 1, begin: None, left: MAX_RECORD_BYTES, is_at_end: false };

    /// The position after `byte`. The first byte that is neither space, comma nor `[` begins a record.
    fn after(mut self, byte: u8) -> Self {
        if self.begin.is_none() && !byte.is_ascii_whitespace() && !matches!(byte, b',' | b'[') {
            self.begin = Some((self.line, self.column));
        }
        match byte {
            b'\n' => (self.line, self.column) = (self.line + 1, 1),
            // Bytes after the first of a character.
            0x80..=0xBF => {}
            _ => self.column += 1,
        }
        self.left = self.left.saturating_sub(1);
        self
    }
}

/// Reads a text and counts its lines and columns. Fails once the bytes that a record may have are used up. The reader
/// of records resets `left` after each record.
struct Following<'a, R> {
    reader: R,
    position: &'a Cell<Position>,
}

impl<R: BufRead> Read for Following<'_, R> {
    /// Reads at most the bytes that the record may still have, and moves the position past them. Fails with
    /// `FileTooLarge` once none is left.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.get();
        if position.left == 0 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let most = buffer.len().min(usize::try_from(position.left).unwrap_or(usize::MAX));
        let length = self.reader.read(&mut buffer[..most])?;
        position.is_at_end = length == 0;
        for byte in &buffer[..length] {
            position = position.after(*byte);
        }
        self.position.set(position);
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
