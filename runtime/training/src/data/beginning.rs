//! The first records of a data file, to propose a method for it.

use std::path::Path;

use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;

use super::files::find_files;
use super::layout::Conversion;
use super::parse::find_layout;
use super::shape::Shape;
use super::source::read_records;
use crate::error::Error;

/// The first records of a data file.
#[derive(Debug)]
pub struct Beginning {
    /// The shape of the first record, or that which its layout is converted to; `None` if it is of no known one.
    pub shape: Option<Shape>,
    /// The records, with the fields that they are converted to. Those that are no JSON objects or cannot be converted
    /// are left out.
    pub records: Vec<Map<String, Value>>,
}

/// Reads at most `count` records, from the first chunk of a data file that has readable lines. If `path` is a folder,
/// reads the first file of its training split. Fetches the files of data on a hub, unless `offline`.
///
/// # Errors
/// A file that cannot be read or is damaged, a folder without a file of the split, and data that cannot be fetched.
pub fn read_beginning(path: &Path, count: usize, offline: bool) -> Result<Beginning, Error> {
    let files = find_files(path, "train", offline)?;
    let (mut beginning, mut is_full) = (Beginning { shape: None, records: Vec::new() }, false);
    let wanted: Vec<Shape> = Shape::all().collect();
    let read = read_records(&files[0], &mut |format, lines| {
        let texts: Vec<&Vec<u8>> = lines.iter().filter_map(|line| line.text.as_ref().ok()).take(count).collect();
        let mut conversion = Conversion { is_untyped: format.is_untyped(), ..Conversion::default() };
        if let Some((shape, layout)) = texts.first().and_then(|text| find_layout(text, &wanted, &conversion, false)) {
            (beginning.shape, conversion.layout) = (Some(shape), layout);
        }
        let convert = |text: &&Vec<u8>| {
            let mut object: Map<String, Value> = serde_json::from_slice(text).ok()?;
            conversion.apply(&mut object).ok().map(|_| object)
        };
        beginning.records.extend(texts.iter().filter_map(convert));
        // The first chunk is enough: an error ends the reading.
        is_full = !texts.is_empty();
        if is_full { Err(Explanation::new("data", "enough records are read").into()) } else { Ok(()) }
    });
    match read {
        Err(error) if !is_full => Err(error),
        _ => Ok(beginning),
    }
}
