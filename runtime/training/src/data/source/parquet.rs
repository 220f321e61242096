//! The rows of a Parquet table.
//!
//! The library that reads them panics on some damaged files, and allocates a page of the size that its header declares.
//! Panics become errors here; the memory of the process is limited by its confinement.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde_json::{Map, Number, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::panics::catch_panic;

use super::{Chunks, MAX_COLUMNS};
use crate::error::Error;

/// The first and the last bytes of a file.
pub(super) const MAGIC: [u8; 4] = *b"PAR1";

/// The most bytes of the description of a table at the end of its file.
const MAX_DESCRIPTION_BYTES: u32 = 64 << 20;

/// The most levels of lists and structures in one another.
const MAX_DEPTH: usize = 32;

/// Reads every row as an object. Returns the number of rows. Binary values that are not UTF-8 become null; dates, times
/// and decimals become text.
///
/// # Errors
/// A file that is damaged or cut off, a description of more than 64 MiB, more than 1,000 columns, more than 32 levels,
/// and a sink that fails.
pub(super) fn read(mut file: File, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    check_end(&mut file).map_err(|why| damaged(chunks.name, &why))?;
    let name = chunks.name.to_owned();
    catch_panic(move || read_rows(file, chunks)).unwrap_or_else(|why| Err(damaged(&name, &why)))
}

/// Checks the last eight bytes of the file: the length of the description, and [`MAGIC`]. Returns what is wrong with
/// them. Moves the file back to its beginning first.
fn check_end(file: &mut File) -> Result<(), String> {
    let mut end = [0; 8];
    let read = file.seek(SeekFrom::End(-8)).and_then(|_| file.read_exact(&mut end)).and_then(|()| file.rewind());
    read.map_err(|error| error.to_string())?;
    let [length @ .., _, _, _, _] = end;
    let length = u32::from_le_bytes(length);
    if end[4..] != MAGIC {
        return Err("it does not end with `PAR1`: it is cut off".into());
    }
    if length > MAX_DESCRIPTION_BYTES {
        return Err(format!("its description has {length} bytes; at most {MAX_DESCRIPTION_BYTES} are read"));
    }
    Ok(())
}

/// Builds the error about a file that cannot be read as Parquet; `why` is the cause.
fn damaged(name: &str, why: &str) -> Error {
    let problem = Explanation::new("data", format!("`{name}` cannot be read as Parquet")).with_why(why);
    problem.with_hint("copy or download the file again").into()
}

/// Reads the rows of an opened file, as [`read`] does, but may panic.
fn read_rows(file: File, chunks: &mut Chunks<'_>) -> Result<u64, Error> {
    let name = chunks.name;
    let failed = |error: parquet::errors::ParquetError| damaged(name, &error.to_string());
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema_descr();
    if schema.num_columns() > MAX_COLUMNS || !is_shallow(schema.root_schema(), MAX_DEPTH) {
        let why = format!("it has more than {MAX_COLUMNS} columns, or more than {MAX_DEPTH} lists in one another");
        return Err(damaged(name, &why));
    }
    let mut number = 0;
    for row in reader.get_row_iter(None).map_err(failed)? {
        number += 1;
        let row = row.map_err(|error| damaged(name, &format!("row {number}: {error}")))?;
        chunks.push_row(number, Ok(read_row(&row)))?;
    }
    chunks.finish(number)
}

/// Whether a type has at most `depth` levels of groups and lists in one another.
fn is_shallow(kind: &Type, depth: usize) -> bool {
    kind.is_primitive() || (depth > 0 && kind.get_fields().iter().all(|field| is_shallow(field, depth - 1)))
}

/// Converts a row to a JSON object.
fn read_row(row: &Row) -> Map<String, Value> {
    row.get_column_iter().map(|(name, field)| (name.clone(), read_field(field))).collect()
}

/// Converts a value to JSON. Numbers that are not finite, and binary values that are not UTF-8, become null; keys of
/// maps and types that JSON lacks, such as dates, become text.
fn read_field(field: &Field) -> Value {
    let real = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match field {
        Field::Null => Value::Null,
        Field::Bool(truth) => (*truth).into(),
        Field::Byte(number) => (*number).into(),
        Field::Short(number) => (*number).into(),
        Field::Int(number) => (*number).into(),
        Field::Long(number) => (*number).into(),
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Float16(number) => real(f64::from(*number)),
        Field::Float(number) => real(f64::from(*number)),
        Field::Double(number) => real(*number),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).map_or(Value::Null, Value::from),
        Field::Group(row) => Value::Object(read_row(row)),
        Field::ListInternal(list) => list.elements().iter().map(read_field).collect(),
        Field::MapInternal(map) => {
            let name = |key: &Field| match read_field(key) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.entries().iter().map(|(key, value)| (name(key), read_field(value))).collect()
        }
        other => other.to_string().into(),
    }
}
