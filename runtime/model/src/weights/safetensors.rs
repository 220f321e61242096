//! Folders of safetensors files: one file, or several with an index.
//! Reads heads first and checks that every byte they announce is there; a tensor's bytes only when it is asked for.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata};
use tunebox_compute::weight::Format;
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::bounded;

use self::names::Distinct;
use crate::error::{Error, Result};
use crate::files;

/// The name of the one file, when there is one.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The name of the index over several files.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// As large as the format allows.
const LARGEST_HEAD: u64 = 100_000_000;
/// Bytes read at a time: the file's and the tensor's whole bytes never lie beside each other.
const PIECE: usize = 1 << 20;

/// Where a tensor lies and how it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    /// From the start of the file.
    offset: u64,
    pub(super) bytes: u64,
}

/// The weight files of a folder, in the order of their names.
///
/// # Errors
/// When there are none, or the index cannot be read or names files outside the folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join(INDEX);
    if index.is_file() {
        return shards(folder, &index);
    }
    let single = folder.join(SINGLE);
    if single.is_file() {
        return Ok(vec![single]);
    }
    Err(Error::NotAModel {
        name: folder.display().to_string(),
        why: format!("it has neither `{SINGLE}` nor `{INDEX}`"),
        hint: "a model is a folder with `config.json` and safetensors weights, a GGUF file, or a hub name".into(),
    })
}

fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let text = files::read_text(index).map_err(|error| Error::file(index, error))?;
    let parsed: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Error::broken(index, format!("the index is not JSON: {error}")))?;
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

/// Whether a name is of a file in the folder itself.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0', ':'])
}

/// All tensors of some files, by the names that the files use.
///
/// # Errors
/// When a file cannot be read, is not safetensors, or is shorter than its head says.
pub(crate) fn locate(files: &[PathBuf]) -> Result<BTreeMap<String, Location>> {
    let mut found = BTreeMap::new();
    for path in files {
        let (start, length, head) = head(path)?;
        // In the order of the file, so that the same broken file gets the same words.
        let tensors = head.tensors();
        for name in head.offset_keys() {
            let Some(info) = tensors.get(&name) else { continue };
            let location = location(path, &name, info, start, length)?;
            if let Some(Location { path: other, .. }) = found.insert(name.clone(), location) {
                return Err(Error::broken(path, format!("tensor `{name}` is in `{}` as well", other.display())));
            }
        }
    }
    Ok(found)
}

/// Where the tensors' bytes start, how long the file is, and what its head says.
fn head(path: &Path) -> Result<(u64, u64, Metadata)> {
    let failed = |error| Error::file(path, error);
    let mut file = bounded::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut size = [0; 8];
    if length < 8 {
        return Err(Error::broken(path, format!("the file has {length} bytes and no head")));
    }
    file.read_exact(&mut size).map_err(failed)?;
    let size = u64::from_le_bytes(size);
    if size > LARGEST_HEAD || size > length - 8 {
        return Err(Error::broken(path, format!("the head should have {size} bytes, the whole file has {length}")));
    }
    let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact(&mut text).map_err(failed)?;
    let wrong =
        |error: serde_json::Error| Error::broken(path, format!("the head is not that of a safetensors file: {error}"));
    let Distinct = serde_json::from_slice(&text).map_err(wrong)?;
    let head = serde_json::from_slice(&text).map_err(wrong)?;
    Ok((8 + size, length, head))
}

fn location(
    path: &Path,
    name: &str,
    info: &safetensors::tensor::TensorInfo,
    start: u64,
    length: u64,
) -> Result<Location> {
    let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
    let values = info.shape.iter().try_fold(1u64, |product, side| product.checked_mul(*side as u64));
    let bytes = values.and_then(|values| values.checked_mul(info.dtype.bitsize() as u64)).map(|bits| bits.div_ceil(8));
    if from > to || bytes != Some(to - from) {
        return Err(Error::broken(path, format!("the head gives tensor `{name}` another size than its shape")));
    }
    if start.checked_add(to).is_none_or(|end| end > length) {
        let what = format!("tensor `{name}` ends at byte {}, the file has {length}", start.saturating_add(to));
        return Err(Error::broken(path, what));
    }
    Ok(Location {
        path: path.to_path_buf(),
        shape: info.shape.clone(),
        dtype: info.dtype,
        offset: start + from,
        bytes: to - from,
    })
}

/// Refuses number formats that are not read.
///
/// # Errors
/// When the tensor is stored in another format than `f32`, `bf16` and `f16`.
pub(crate) fn check_type(name: &str, location: &Location) -> Result<()> {
    if format(location.dtype).is_some() {
        return Ok(());
    }
    Err(Error::TensorType {
        name: name.into(),
        found: format!("{:?}", location.dtype),
        place: location.path.display().to_string(),
        allowed: "F32, BF16 and F16",
    })
}

/// The element type that holds a tensor's numbers exactly.
pub(crate) fn stored_dtype(location: &Location) -> DType {
    format(location.dtype).map_or(DType::F32, Format::dtype)
}

/// How a tensor's numbers lie in its file: their format, first byte and bytes.
pub(super) fn locate_in_file(location: &Location) -> Option<(Format, u64, usize)> {
    Some((format(location.dtype)?, location.offset, usize::try_from(location.bytes).ok()?))
}

/// The number formats that are read.
fn format(dtype: Dtype) -> Option<Format> {
    match dtype {
        Dtype::F32 => Some(Format::F32),
        Dtype::BF16 => Some(Format::BF16),
        Dtype::F16 => Some(Format::F16),
        _ => None,
    }
}

/// Reads a tensor as it is stored.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read(name: &str, location: &Location, device: &Device) -> Result<Tensor> {
    check_type(name, location)?;
    let shape = location.shape.as_slice();
    Ok(match location.dtype {
        Dtype::BF16 => Tensor::from_vec(values(location, bf16::from_le_bytes)?, shape, device)?,
        Dtype::F16 => Tensor::from_vec(values(location, f16::from_le_bytes)?, shape, device)?,
        _ => Tensor::from_vec(values(location, f32::from_le_bytes)?, shape, device)?,
    })
}

fn values<const N: usize, T>(location: &Location, convert: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
    let failed = |error| Error::file(&location.path, error);
    let mut file = File::open(&location.path).map_err(failed)?;
    file.seek(SeekFrom::Start(location.offset)).map_err(failed)?;
    let mut left = usize::try_from(location.bytes).unwrap_or(usize::MAX);
    let mut output = Vec::with_capacity(left / N);
    let mut piece = vec![0; PIECE.min(left)];
    while left > 0 {
        let part = &mut piece[..PIECE.min(left)];
        file.read_exact(part).map_err(failed)?;
        output.extend(part.as_chunks::<N>().0.iter().map(|bytes| convert(*bytes)));
        left -= part.len();
    }
    Ok(output)
}

#[cfg(test)]
mod tests;
