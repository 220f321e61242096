//! Reads the files of models up to a size limit, and writes files that appear whole or not at all. Writes safetensors
//! files one tensor after another, without a second copy of the model in memory.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use tunebox_compute::{DType, Tensor};
use tunebox_foundation::{bounded, files as foundation};

use crate::error::{Error, Result};

/// Name, shape and type of a tensor that is written to a file.
pub(crate) struct TensorSpec {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// `F32`, `BF16` or `F16`.
    pub(crate) dtype: DType,
}

impl TensorSpec {
    /// The bytes of the tensor's data in the file.
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size_in_bytes()
    }
}

/// The size limit of [`read`], in bytes. The largest files that it reads are vocabularies.
const LONGEST_FILE: u64 = 256 << 20;
/// The size limit of [`read_text`], in bytes. The parsed values of a text may take ten times as much memory.
const LONGEST_TEXT: u64 = 32 << 20;

/// Reads a whole file of at most [`LONGEST_FILE`] bytes. Errors: also if it is longer, or not a regular file, since a
/// model's folder is not trusted.
pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    bounded::read(path, LONGEST_FILE)
}

/// Reads a whole UTF-8 file of at most [`LONGEST_TEXT`] bytes. Errors: also if it is longer, or not a regular file.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    bounded::read_text(path, LONGEST_TEXT)
}

/// Reads and parses a JSON file of at most [`LONGEST_TEXT`] bytes.
///
/// # Errors
/// When the file cannot be read or is longer, or is not JSON.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let text = read_text(path).map_err(|error| Error::file(path, error))?;
    serde_json::from_str(&text).map_err(|error| Error::broken(path, format!("this is not JSON: {error}")))
}

/// Writes a file into an existing folder, and replaces one of this name, with the permissions 644. The file appears
/// whole or not at all.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    Ok(foundation::write(path, bytes.as_ref())?)
}

/// Writes a safetensors file that appears whole or not at all, and replaces one of this name. Its header holds
/// `metadata`, or `format: pt` if that is `None`. Calls `tensor` once for each tensor, with its index in `list`, in the
/// order of names, and writes the result converted to the listed type. Errors: also those of `tensor`, a tensor of
/// another shape than listed, or a listed type other than f32, bf16 and f16.
pub(crate) fn write_tensors(
    path: &Path,
    list: &[TensorSpec],
    metadata: Option<&BTreeMap<String, String>>,
    mut tensor: impl FnMut(usize) -> Result<Tensor>,
) -> Result<()> {
    // Sorted by name, so that the same numbers are the same bytes.
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by(|left, right| list[*left].name.cmp(&list[*right].name));
    let metadata = metadata.map_or_else(|| json!({ "format": "pt" }), |metadata| json!(metadata));
    let header = header(list, &order, metadata)?;
    let failed = |error| Error::file(path, error);
    foundation::write_with(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
        file.write_all(&header).map_err(failed)?;
        for number in &order {
            let (tensor, TensorSpec { name, shape, dtype }) = (tensor(*number)?, &list[*number]);
            if tensor.dims() != shape {
                let found = tensor.dims();
                return Err(Error::Argument(format!("`{name}` has shape {found:?} where {shape:?} was announced")));
            }
            tensor.to_dtype(*dtype)?.write_bytes(file).map_err(|error| match error {
                candle_core::Error::Io(error) => failed(error),
                error => error.into(),
            })?;
        }
        Ok(())
    })
}

/// The JSON header of a safetensors file, padded with spaces to a multiple of 8 bytes, without the length before it.
/// `order` is the order of the data, as indices into `list`. Errors: a type other than f32, bf16 and f16.
fn header(list: &[TensorSpec], order: &[usize], metadata: Value) -> Result<Vec<u8>> {
    let mut table = Map::new();
    table.insert("__metadata__".into(), metadata);
    let mut start = 0;
    for number in order {
        let stored = &list[*number];
        let end = start + stored.bytes();
        let entry = json!({ "dtype": dtype_name(stored)?, "shape": stored.shape, "data_offsets": [start, end] });
        table.insert(stored.name.clone(), entry);
        start = end;
    }
    let mut text = Value::Object(table).to_string().into_bytes();
    // The data starts at a multiple of eight.
    text.resize(text.len().div_ceil(8) * 8, b' ');
    Ok(text)
}

/// The type's name in safetensors. Errors: not f32, bf16 or f16.
fn dtype_name(stored: &TensorSpec) -> Result<&'static str> {
    match stored.dtype {
        DType::F32 => Ok("F32"),
        DType::BF16 => Ok("BF16"),
        DType::F16 => Ok("F16"),
        other => Err(Error::Unsupported(format!("weights cannot be written as `{other:?}`; f32, bf16 and f16 can"))),
    }
}
