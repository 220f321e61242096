//! Turns the stored tensors of a GGUF file into `f32`, block by block, on all cores.
//! The formats themselves are the tensor library's; sizes are checked here before it sees a byte.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use half::{bf16, f16};
use rayon::prelude::*;
use tunebox_compute::weight::Format;
use tunebox_compute::{DType, Device};

use super::Location;
use crate::error::{Error, Result};

/// Values that one task dequantises: large enough to be worth a task, small enough that the copies of the tensor
/// library stay in the processor's cache.
const TASK: usize = 1 << 17;

/// Formats that are read, for errors.
const FORMATS: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";

/// How a tensor lies in its file: its format, if products read it there, its first byte and its bytes.
///
/// # Errors
/// When the format is not read, or the file is shorter than the tensor.
pub(crate) fn locate_in_file(
    path: &Path,
    name: &str,
    location: &Location,
    length: u64,
) -> Result<Option<(Format, u64, usize)>> {
    let (format, _, bytes) = checked_sizes(path, name, location, length)?;
    Ok(native_format(format).map(|format| (format, location.offset, bytes)))
}

/// Bytes of a tensor as it is kept.
pub(crate) fn bytes(location: &Location) -> u64 {
    let values: u64 = location.shape.iter().map(|side| *side as u64).product();
    let sides = (location.shape.first(), location.shape.get(1));
    let packed = match (sides, matrix_format(location)) {
        ((Some(rows), Some(columns)), Some(format)) => format.bytes(*rows, *columns),
        _ => None,
    };
    packed.map_or(4 * values, |bytes| bytes as u64)
}

/// The element type that holds a tensor's values exactly as it is kept.
pub(crate) fn stored_dtype(location: &Location) -> DType {
    matrix_format(location).map_or(DType::F32, Format::dtype)
}

/// The format of a tensor whose numbers are quantized in its file, by its name; none of plain numbers.
pub(crate) fn quantized(location: &Location) -> Option<String> {
    let format = dtype_by_number(location.format)?;
    match (format, native_format(format)) {
        (GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16, _) => None,
        (GgmlDType::Q2K, _) => Some("Q2_K".into()),
        (GgmlDType::Q3K, _) => Some("Q3_K".into()),
        (_, Some(format)) => Some(format!("{format:?}")),
        (other, None) => Some(format!("{other:?}")),
    }
}

/// Whether a matrix stays in the blocks that it is quantized in.
pub(crate) fn in_blocks(location: &Location) -> bool {
    matrix_format(location).is_some_and(|format| format.block() > 1)
}

/// The format of a matrix that stays where it lies; vectors, and other formats, are read as `f32`.
fn matrix_format(location: &Location) -> Option<Format> {
    dtype_by_number(location.format).and_then(native_format).filter(|_| location.shape.len() == 2)
}

/// The values of a tensor, row by row, as `f32`.
///
/// # Errors
/// When the format is not read, or the file is shorter than the tensor.
pub(crate) fn read(path: &Path, name: &str, location: &Location, length: u64) -> Result<Vec<f32>> {
    let (format, values, _) = checked_sizes(path, name, location, length)?;
    let (block, size) = (format.block_size(), format.type_size());
    let mut output = vec![0f32; values];
    let task = TASK.next_multiple_of(block);
    output.par_chunks_mut(task).enumerate().try_for_each(|(index, part)| {
        let start = location.offset + (index * (task / block) * size) as u64;
        let raw = read_bytes(path, start, part.len() / block * size)?;
        widen(format, &raw, part)
    })?;
    Ok(output)
}

/// The format of a tensor, its values and its bytes, which are all in the file.
fn checked_sizes(path: &Path, name: &str, location: &Location, length: u64) -> Result<(GgmlDType, usize, usize)> {
    let format = known_dtype(path, name, location.format)?;
    let (block, size) = (format.block_size(), format.type_size());
    let width = location.shape.last().copied().unwrap_or(1);
    let values = location.shape.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
    let bytes = values.and_then(|values| (values / block).checked_mul(size));
    let (Some(values), Some(bytes)) = (values, bytes) else {
        return Err(Error::broken(path, format!("tensor `{name}` is larger than the file")));
    };
    if !width.is_multiple_of(block) {
        return Err(Error::broken(path, format!("rows of tensor `{name}` are not whole blocks of `{block}` values")));
    }
    if location.offset.checked_add(bytes as u64).is_none_or(|end| end > length) {
        let what = format!("tensor `{name}` needs {bytes} bytes at {}, the file has {length}", location.offset);
        return Err(Error::broken(path, what));
    }
    Ok((format, values, bytes))
}

fn read_bytes(path: &Path, start: u64, length: usize) -> Result<Vec<u8>> {
    let failed = |error| Error::file(path, error);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut raw = vec![0; length];
    file.read_exact(&mut raw).map_err(failed)?;
    Ok(raw)
}

fn widen(format: GgmlDType, raw: &[u8], output: &mut [f32]) -> Result<()> {
    match format {
        GgmlDType::F32 => {
            for (value, bytes) in output.iter_mut().zip(raw.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        GgmlDType::F16 => {
            for (value, bytes) in output.iter_mut().zip(raw.as_chunks::<2>().0) {
                *value = f16::from_le_bytes(*bytes).to_f32();
            }
        }
        GgmlDType::BF16 => {
            for (value, bytes) in output.iter_mut().zip(raw.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        _ => {
            let blocks = qtensor_from_ggml(format, raw, vec![output.len()], &Device::Cpu)?;
            output.copy_from_slice(&blocks.dequantize(&Device::Cpu)?.to_vec1::<f32>()?);
        }
    }
    Ok(())
}

fn known_dtype(path: &Path, name: &str, number: u32) -> Result<GgmlDType> {
    dtype_by_number(number).ok_or_else(|| Error::TensorType {
        name: name.into(),
        found: format!("GGML type {number}"),
        place: path.display().to_string(),
        allowed: FORMATS,
    })
}

/// The numbers are those of the GGUF specification.
fn dtype_by_number(number: u32) -> Option<GgmlDType> {
    Some(match number {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        _ => return None,
    })
}

/// The format in which products read a matrix where it lies; none for those that are widened when they are read.
fn native_format(format: GgmlDType) -> Option<Format> {
    Some(match format {
        GgmlDType::F32 => Format::F32,
        GgmlDType::F16 => Format::F16,
        GgmlDType::BF16 => Format::BF16,
        GgmlDType::Q4_0 => Format::Q4_0,
        GgmlDType::Q4_1 => Format::Q4_1,
        GgmlDType::Q5_0 => Format::Q5_0,
        GgmlDType::Q5_1 => Format::Q5_1,
        GgmlDType::Q8_0 => Format::Q8_0,
        GgmlDType::Q4K => Format::Q4_K,
        GgmlDType::Q5K => Format::Q5_K,
        GgmlDType::Q6K => Format::Q6_K,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
