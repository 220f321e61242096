//! Reads the header of a GGUF file (versions 2 and 3), which is not trusted: no length in it allocates more than the
//! size of the file allows, and nothing panics.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use tunebox_foundation::bounded;

use super::{Metadata, Value};
use crate::error::{Error, Result};
use crate::weights::location::Location;

const MAGIC: [u8; 4] = *b"GGUF";
/// The most tensors, and the most metadata entries: more than any real file has.
const MOST_ENTRIES: u64 = 1 << 20;
/// The longest key or tensor name, in bytes.
const LONGEST_NAME: u64 = 1 << 16;
const MOST_DIMENSIONS: u32 = 4;
/// The most lists around a list.
const DEEPEST_LIST: u32 = 4;
/// The most bytes of a header: several times those of the largest vocabularies. In memory, a number takes eight bytes.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// The header of a GGUF file.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) metadata: Metadata,
    /// The tensors by their names in the file.
    pub(crate) tensors: BTreeMap<String, Location>,
}

impl Header {
    /// Reads metadata and tensor locations of a GGUF file, and no tensor data. Errors: the file cannot be read, or its
    /// header is none of GGUF version 2 or 3, is longer than [`MAX_HEADER_BYTES`], or contradicts itself or the length
    /// of the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = bounded::open(path).map_err(|error| Error::file(path, error))?;
        let length = file.metadata().map_err(|error| Error::file(path, error))?.len();
        let mut cursor = Cursor { path: path.to_path_buf(), input: BufReader::new(file), at: 0, length };
        cursor.header()
    }
}

/// Reads a file from its start and counts what is left of it.
struct Cursor<R> {
    path: PathBuf,
    input: R,
    /// The bytes read so far.
    at: u64,
    /// The length of the whole file in bytes.
    length: u64,
}

impl<R: Read> Cursor<R> {
    /// Reads the whole header from the start of the file. The tensor data begins at the next multiple of
    /// `general.alignment`, 32 by default. Errors: also another version than 2 and 3, more than [`MOST_ENTRIES`], an
    /// alignment that is not a power of two up to 2^20, a key or tensor that is there twice, or a tensor that ends past
    /// the file.
    fn header(&mut self) -> Result<Header> {
        if self.bytes::<4>()? != MAGIC {
            return Err(self.broken("this is not a GGUF file: it does not start with `GGUF`"));
        }
        let version = self.u32()?;
        if !(2..=3).contains(&version) {
            return Err(self.broken(format!("GGUF version `{version}` is not read, only 2 and 3")));
        }
        let (tensors, values) = (self.count("tensors")?, self.count("metadata entries")?);
        let mut metadata = HashMap::new();
        for _ in 0..values {
            let key = self.read_text(LONGEST_NAME)?;
            let kind = self.u32()?;
            let value = self.read_value(kind)?;
            // Readers differ in which of two they take.
            if metadata.contains_key(&key) {
                return Err(self.broken(format!("`{}` is there twice", key.escape_debug())));
            }
            metadata.insert(key, value);
        }
        let alignment: u64 = metadata.get("general.alignment").map_or(32, |value| value.whole().unwrap_or(0));
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(self.broken(format!("`general.alignment` is `{alignment}`, not a small power of two")));
        }
        let mut found = BTreeMap::new();
        for _ in 0..tensors {
            let name = self.read_text(LONGEST_NAME)?;
            let location = self.read_location(&name)?;
            if found.contains_key(&name) {
                return Err(self.broken(format!("tensor `{}` is there twice", name.escape_debug())));
            }
            found.insert(name, location);
        }
        let start = self.at.next_multiple_of(alignment);
        for location in found.values_mut() {
            location.offset = location.offset.saturating_add(start);
            location.check_end(self.length)?;
        }
        let metadata = Metadata { path: self.path.clone(), values: metadata };
        Ok(Header { metadata, tensors: found })
    }

    /// Reads the dimensions, format and offset of a tensor, whose name is read already. Reverses the dimensions to
    /// outermost first. The offset of the result is still relative to the start of all tensor data. Errors: more than
    /// [`MOST_DIMENSIONS`], or a size that the file cannot hold.
    fn read_location(&mut self, name: &str) -> Result<Location> {
        let dimensions = self.u32()?;
        if dimensions > MOST_DIMENSIONS {
            return Err(self.broken(format!("tensor `{name}` has `{dimensions}` dimensions, at most 4 are read")));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let side = self.u64()?;
            // Every value takes at least a quarter of a byte in any format.
            let side = usize::try_from(side).ok().filter(|_| side / 4 <= self.length);
            shape.push(side.ok_or_else(|| self.broken(format!("tensor `{name}` is larger than the file")))?);
        }
        shape.reverse();
        let (format, offset) = (self.u32()?, self.u64()?);
        Location::of_gguf(&self.path, name, shape, format, offset)
    }

    /// Reads a metadata value of this GGUF type; `kind` is the type's number. An `f32` becomes the `f64` with the same
    /// shortest decimal form. Errors: an unknown type.
    fn read_value(&mut self, kind: u32) -> Result<Value> {
        Ok(match kind {
            7 => Value::Boolean(self.bytes::<1>()? != [0]),
            8 => Value::Text(self.read_text(u64::MAX)?),
            9 => self.list(0)?,
            // In decimal the shortest number that has these 32 bits is what was meant.
            6 => Value::Number(f32::from_le_bytes(self.bytes()?).to_string().parse().unwrap_or(f64::NAN)),
            _ => Value::Number(self.read_number(kind)?),
        })
    }

    /// Reads a number or boolean of this GGUF type and converts it to the nearest `f64`. Errors: a type that is
    /// neither.
    fn read_number(&mut self, kind: u32) -> Result<f64> {
        Ok(match kind {
            0 | 7 => u8::from_le_bytes(self.bytes()?).into(),
            1 => i8::from_le_bytes(self.bytes()?).into(),
            2 => u16::from_le_bytes(self.bytes()?).into(),
            3 => i16::from_le_bytes(self.bytes()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.bytes()?).into(),
            6 => f32::from_le_bytes(self.bytes()?).into(),
            10 => self.u64()? as f64,
            11 => i64::from_le_bytes(self.bytes()?) as f64,
            12 => f64::from_le_bytes(self.bytes()?),
            _ => return Err(self.broken(format!("value kind `{kind}` is not one of GGUF's"))),
        })
    }

    /// Reads a list: the type of its elements, their count, then the elements. `depth` is the number of lists around
    /// it. A list of lists is skipped and gives an empty list of texts. Errors: more elements than the header has bytes
    /// left, or more than [`DEEPEST_LIST`] lists around one.
    fn list(&mut self, depth: u32) -> Result<Value> {
        let kind = self.u32()?;
        let count = self.u64()?;
        if count > self.left() {
            return Err(self.broken(format!("a list of `{count}` values is longer than what is left of the head")));
        }
        // The lists grow with what is read, so a false count costs no memory.
        match kind {
            8 => Ok(Value::Texts((0..count).map(|_| self.read_text(u64::MAX)).collect::<Result<_>>()?)),
            9 if depth < DEEPEST_LIST => {
                (0..count).try_for_each(|_| self.list(depth + 1).map(drop))?;
                Ok(Value::Texts(Vec::new()))
            }
            9 => Err(self.broken("lists lie too deep in one another")),
            _ => Ok(Value::Numbers((0..count).map(|_| self.read_number(kind)).collect::<Result<_>>()?)),
        }
    }

    /// Reads a number of entries as `u64`. Errors: more than [`MOST_ENTRIES`]; `what` names the entries in the message.
    fn count(&mut self, what: &str) -> Result<u64> {
        let count = self.u64()?;
        if count > MOST_ENTRIES {
            return Err(self.broken(format!("the head announces `{count}` {what}")));
        }
        Ok(count)
    }

    /// Reads a `u64` length and a text of as many bytes. Removes trailing zero bytes; replaces invalid UTF-8. Errors:
    /// longer than `longest` bytes or than the rest of the header.
    fn read_text(&mut self, longest: u64) -> Result<String> {
        let length = self.u64()?;
        if length > longest || length > self.left() {
            return Err(self.broken(format!("a text of `{length}` bytes is longer than what is left of the head")));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes)?;
        // Some writers count the closing zero of C.
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The bytes that the header may still have: up to [`MAX_HEADER_BYTES`] or the end of the file.
    fn left(&self) -> u64 {
        self.length.min(MAX_HEADER_BYTES).saturating_sub(self.at)
    }

    /// Reads 4 bytes as a little-endian integer.
    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    /// Reads 8 bytes as a little-endian integer.
    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// Reads the next `N` bytes.
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills a buffer with the next bytes. Errors: the file or the limit of the header ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() as u64 > self.left() {
            return Err(self.broken(match self.length {
                0..=MAX_HEADER_BYTES => format!("the file ends inside its head, after {} bytes", self.length),
                _ => format!("the head has more than {MAX_HEADER_BYTES} bytes"),
            }));
        }
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.broken("the file became shorter while it was read"))
            }
            Err(error) => Err(Error::file(&self.path, error)),
        }
    }

    /// An error about this file's contents.
    fn broken(&self, what: impl Into<String>) -> Error {
        Error::broken(&self.path, what)
    }
}

#[cfg(test)]
mod tests;
