//! Writes GGUF files (version 3) one tensor after another, without a second copy of the model in memory.

use std::io::Write;
use std::path::Path;

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use rayon::prelude::*;
use tunebox_compute::{Device, Tensor};
use tunebox_foundation::files as foundation;

use crate::error::{Error, Result};
use crate::weights::location::ggml_number;

/// The multiple of bytes at which the data of each tensor begins: GGUF's default.
const ALIGNMENT: usize = 32;

/// Values that one task quantizes: whole blocks of every format.
const TASK: usize = 1 << 17;

/// Keys of a file's metadata with their typed values, in the order in which they are written.
pub(crate) type TypedMetadata = Vec<(String, Value)>;

/// Name, shape and format of a tensor that is written to a file.
#[derive(Debug, Clone)]
pub(crate) struct TensorSpec {
    pub(crate) name: String,
    /// The outermost dimension first, `[out, in]` for a matrix.
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: GgmlDType,
}

impl TensorSpec {
    /// The bytes of the tensor's data.
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() / self.dtype.block_size() * self.dtype.type_size()
    }
}

/// Writes a GGUF file that appears whole or not at all, and replaces one of this name. Calls `data` once for each
/// tensor, with its index in `list`, in order, for its bytes in the listed format. Errors: also those of `data`,
/// another number of bytes than announced, a tensor format that GGUF files do not have, or a metadata list with values
/// of several types.
pub(crate) fn write(
    path: &Path,
    metadata: &TypedMetadata,
    list: &[TensorSpec],
    mut data: impl FnMut(usize) -> Result<Vec<u8>>,
) -> Result<()> {
    let header = header(metadata, list)?;
    let failed = |error| Error::file(path, error);
    foundation::write_with(path, |file| {
        file.write_all(&header).map_err(failed)?;
        for (number, tensor) in list.iter().enumerate() {
            let bytes = data(number)?;
            if bytes.len() != tensor.bytes() {
                let (name, found, wanted) = (&tensor.name, bytes.len(), tensor.bytes());
                return Err(Error::Argument(format!("`{name}` has {found} bytes where {wanted} were announced")));
            }
            file.write_all(&bytes).map_err(failed)?;
            file.write_all(&padding(bytes.len())).map_err(failed)?;
        }
        Ok(())
    })
}

/// Quantizes values, in row-major order, to the bytes of a format with candle's quantizers, on all cores. The number of
/// values is a multiple of the format's block. Plain formats round to nearest.
pub(crate) fn quantize(values: &[f32], dtype: GgmlDType) -> Result<Vec<u8>> {
    let pieces: Vec<Vec<u8>> = values
        .par_chunks(TASK)
        .map(|piece| {
            let tensor = Tensor::from_slice(piece, piece.len(), &Device::Cpu)?;
            Ok(QTensor::quantize(&tensor, dtype)?.data()?.into_owned())
        })
        .collect::<Result<_>>()?;
    Ok(pieces.concat())
}

/// The header of a file, up to the padded start of the data. Errors: a tensor format that GGUF files do not have, or a
/// metadata list with values of several types.
fn header(metadata: &TypedMetadata, list: &[TensorSpec]) -> Result<Vec<u8>> {
    let mut out = b"GGUF".to_vec();
    put(&mut out, &3_u32.to_le_bytes());
    put(&mut out, &(list.len() as u64).to_le_bytes());
    put(&mut out, &(metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut out, key);
        put(&mut out, &type_number(value)?.to_le_bytes());
        put_value(&mut out, value)?;
    }
    let mut offset = 0_u64;
    for tensor in list {
        put_text(&mut out, &tensor.name);
        put(&mut out, &(tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|side| put(&mut out, &(*side as u64).to_le_bytes()));
        let unknown = || Error::Unsupported(format!("GGUF files are not written in `{:?}`", tensor.dtype));
        put(&mut out, &ggml_number(tensor.dtype).ok_or_else(unknown)?.to_le_bytes());
        put(&mut out, &offset.to_le_bytes());
        offset += tensor.bytes().next_multiple_of(ALIGNMENT) as u64;
    }
    let gap = padding(out.len());
    put(&mut out, &gap);
    Ok(out)
}

/// The zero bytes after `length` bytes up to the next multiple of [`ALIGNMENT`].
fn padding(length: usize) -> Vec<u8> {
    vec![0; length.next_multiple_of(ALIGNMENT) - length]
}

/// Appends bytes as they are.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

/// Appends a text's length in bytes as `u64`, then the text.
fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, &(text.len() as u64).to_le_bytes());
    put(out, text.as_bytes());
}

/// Returns GGUF's number for the type of a metadata value. Knows all types, so it does not fail.
fn type_number(value: &Value) -> Result<u32> {
    Ok(match value {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    })
}

/// Appends a value without the number of its type; a list with the type of its first value, which all have. An empty
/// list is one of `u32`. Errors: a list of values of several types.
fn put_value(out: &mut Vec<u8>, value: &Value) -> Result<()> {
    match value {
        Value::U8(number) => put(out, &number.to_le_bytes()),
        Value::I8(number) => put(out, &number.to_le_bytes()),
        Value::U16(number) => put(out, &number.to_le_bytes()),
        Value::I16(number) => put(out, &number.to_le_bytes()),
        Value::U32(number) => put(out, &number.to_le_bytes()),
        Value::I32(number) => put(out, &number.to_le_bytes()),
        Value::U64(number) => put(out, &number.to_le_bytes()),
        Value::I64(number) => put(out, &number.to_le_bytes()),
        Value::F32(number) => put(out, &number.to_le_bytes()),
        Value::F64(number) => put(out, &number.to_le_bytes()),
        Value::Bool(truth) => out.push(u8::from(*truth)),
        Value::String(text) => put_text(out, text),
        Value::Array(list) => {
            let first = list.first().map_or(Ok(4), type_number)?;
            put(out, &first.to_le_bytes());
            put(out, &(list.len() as u64).to_le_bytes());
            for item in list {
                if type_number(item)? != first {
                    return Err(Error::Argument("a list of GGUF metadata has values of several types".into()));
                }
                put_value(out, item)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::gguf::{Header, Value as Read};

    #[test]
    fn a_written_file_is_read_back_with_its_metadata_and_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("two.gguf");
        let texts = Value::Array(vec![Value::String("a".into()), Value::String("b c".into())]);
        let metadata = vec![
            ("general.architecture".to_owned(), Value::String("llama".into())),
            ("llama.block_count".to_owned(), Value::U32(3)),
            ("list".to_owned(), texts),
            ("truth".to_owned(), Value::Bool(true)),
        ];
        let spec = |name: &str, shape: &[usize], dtype| TensorSpec { name: name.into(), shape: shape.to_vec(), dtype };
        let list = [spec("first", &[3], GgmlDType::F32), spec("second", &[2, 32], GgmlDType::Q8_0)];
        let values = [vec![1.0, -2.0, 0.5], (0..64).map(|at| at as f32).collect::<Vec<f32>>()];
        write(&path, &metadata, &list, |number| quantize(&values[number], list[number].dtype)).unwrap();

        let header = Header::read(&path).unwrap();
        assert_eq!(header.metadata.string("general.architecture"), Some("llama"));
        assert_eq!(header.metadata.u32("llama.block_count"), Some(3));
        assert_eq!(header.metadata.value("list"), Some(&Read::Texts(vec!["a".into(), "b c".into()])));
        assert_eq!(header.metadata.bool("truth"), Some(true));
        assert_eq!(header.tensors["first"].read_f32().unwrap(), values[0]);
        assert_eq!(header.tensors["second"].shape, [2, 32]);
        let read = header.tensors["second"].read_f32().unwrap();
        assert!(read.iter().zip(&values[1]).all(|(read, wrote)| (read - wrote).abs() < 0.3), "{read:?}");
    }

    #[test]
    fn a_tensor_of_another_size_than_announced_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.gguf");
        let list = [TensorSpec { name: "one".into(), shape: vec![2], dtype: GgmlDType::F32 }];
        let error = write(&path, &Vec::new(), &list, |_| Ok(vec![0; 4])).unwrap_err();
        assert_eq!(error.to_string(), "`one` has 4 bytes where 8 were announced");
        assert!(!path.exists());
    }
}
