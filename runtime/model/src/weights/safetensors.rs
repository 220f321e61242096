//! Finds the tensors in folders of safetensors files: one file, or several with an index. Reads only the headers, and
//! checks that the files are as long as these say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use tunebox_foundation::bounded;

use super::location::{Location, StoredFormat};
use crate::error::{Error, MODEL_FORMS, Result};
use crate::files;

/// The name of the weight file if there is only one.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The name of the index if there are several weight files.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The largest header in bytes: the limit of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The weight files of a folder, sorted by name: those of the index if there is one, else `model.safetensors`. Does not
/// check that files of the index exist.
///
/// # Errors
/// When there is neither, or the index cannot be read or names files outside the folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join(INDEX);
    if index.is_file() {
        return shards(folder, &index);
    }
    let single = folder.join(SINGLE);
    if single.is_file() {
        return Ok(vec![single]);
    }
    Err(Error::not_a_model(folder.display(), format!("it has neither `{SINGLE}` nor `{INDEX}`"), MODEL_FORMS))
}

/// The files that an index names, each once, sorted by name. Errors: an index that is not JSON or has no `weight_map`,
/// or a name that is not [`is_plain`].
fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let parsed = files::read_json(index)?;
    let map = parsed.get("weight_map").and_then(serde_json::Value::as_object);
    let Some(map) = map else {
        return Err(Error::broken(index, "the index has no `weight_map`"));
    };
    let mut names = BTreeSet::new();
    for name in map.values() {
        let name = name.as_str().filter(|name| is_plain(name));
        names.insert(name.ok_or_else(|| Error::broken(index, "the index names a file outside its folder"))?);
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Whether a name is a plain file name: not empty or hidden, and without separators, colons and zero bytes.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0', ':'])
}

/// The locations of all tensors in some files, by the names that the files use. Reads no tensor data.
///
/// # Errors
/// When a file cannot be read, is not safetensors or is shorter than its header says, or two files have the same
/// tensor.
pub(crate) fn locate(files: &[PathBuf]) -> Result<BTreeMap<String, Location>> {
    let mut found = BTreeMap::new();
    for path in files {
        let (start, length, header) = header(path)?;
        // In the order of the file, so that a broken file always gives the same error.
        let tensors = header.tensors();
        for name in header.offset_keys() {
            let Some(info) = tensors.get(&name) else { continue };
            let location = location(path, &name, info, start)?;
            location.check_end(length)?;
            if let Some(Location { path: other, .. }) = found.insert(name.clone(), location) {
                return Err(Error::broken(path, format!("tensor `{name}` is in `{}` as well", other.display())));
            }
        }
    }
    Ok(found)
}

/// Reads the metadata (`__metadata__`) of a safetensors file, as text by key; empty if it has none.
///
/// # Errors
/// When the file cannot be read or is not safetensors.
pub(crate) fn metadata(path: &Path) -> Result<BTreeMap<String, String>> {
    Ok(header(path)?.2.metadata().clone().unwrap_or_default().into_iter().collect())
}

/// Reads a file's header: its size as a little-endian `u64`, then its JSON. Returns the offset of the tensors' bytes,
/// the file's length in bytes, and the parsed header. Errors: the header is longer than [`MAX_HEADER_BYTES`] or than
/// the file, is not that of a safetensors file, or has a name twice.
fn header(path: &Path) -> Result<(u64, u64, Metadata)> {
    let failed = |error| Error::file(path, error);
    let mut file = bounded::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut size = [0; 8];
    if length < 8 {
        return Err(Error::broken(path, format!("the file has {length} bytes and no head")));
    }
    file.read_exact(&mut size).map_err(failed)?;
    let size = u64::from_le_bytes(size);
    if size > MAX_HEADER_BYTES || size > length - 8 {
        return Err(Error::broken(path, format!("the head should have {size} bytes, the whole file has {length}")));
    }
    let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact(&mut text).map_err(failed)?;
    let wrong =
        |error: serde_json::Error| Error::broken(path, format!("the head is not that of a safetensors file: {error}"));
    serde_json::Deserializer::from_slice(&text).deserialize_map(DistinctNames).map_err(wrong)?;
    let header = serde_json::from_slice(&text).map_err(wrong)?;
    Ok((8 + size, length, header))
}

/// The location of a tensor; `start` is the offset of all tensors' bytes in the file. A format that is not read is an
/// error only when the tensor is asked for. Errors: its size in bytes does not follow from its shape and type.
fn location(path: &Path, name: &str, info: &TensorInfo, start: u64) -> Result<Location> {
    let (from, to) = info.data_offsets;
    let values = info.shape.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
    let bytes = values.and_then(|values| values.checked_mul(info.dtype.bitsize())).map(|bits| bits.div_ceil(8));
    if from > to || bytes != Some(to - from) {
        return Err(Error::broken(path, format!("the head gives tensor `{name}` another size than its shape")));
    }
    Ok(Location {
        path: path.to_path_buf(),
        name: name.to_owned(),
        shape: info.shape.clone(),
        format: StoredFormat::plain(format!("{:?}", info.dtype)),
        offset: start.saturating_add(from as u64),
        bytes: to - from,
    })
}

/// Visits a header and checks that every name in it occurs once: readers differ in which of two they take.
struct DistinctNames;

impl<'de> Visitor<'de> for DistinctNames {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table of tensors")
    }

    /// Reads all names and skips their values. Errors: a name that occurs twice.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
            if names.contains(&name) {
                return Err(serde::de::Error::custom(format!("`{name}` occurs in it twice")));
            }
            names.insert(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
