//! One tensor in a file: the position and format of its bytes, and how they are read as numbers. Candle dequantizes;
//! sizes are checked here before it gets any bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use half::{bf16, f16};
use rayon::prelude::*;
use tunebox_compute::weight::Format;
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::explain::Explanation;

use crate::error::{Error, Result};

/// Values that one task dequantizes: large enough to be worth a task, small enough that the copies of the tensor
/// library stay in the processor's cache.
const TASK: usize = 1 << 17;
/// Bytes of unquantized values read at a time, so that memory never holds a whole tensor twice.
const PIECE: usize = 1 << 20;

/// A storage format of tensors that can be read.
#[derive(Debug)]
pub(crate) struct StoredFormat {
    /// Its GGML type number in GGUF files.
    number: u32,
    /// Its name in safetensors files, if they have it, and in messages.
    name: &'static str,
    /// The type with which candle reads it.
    pub(super) dtype: GgmlDType,
    /// The format in which matrix products read the stored bytes; `None` if a tensor of it is converted to `f32`.
    pub(super) native: Option<Format>,
}

/// Builds an entry of [`FORMATS`] from the format's GGML type number, its name, candle's type, and the format in which
/// matrix products read it (`None` if tensors of it are converted to `f32`).
const fn format(number: u32, name: &'static str, dtype: GgmlDType, native: Option<Format>) -> StoredFormat {
    StoredFormat { number, name, dtype, native }
}

/// The first three are plain numbers, the others are quantized in blocks.
static FORMATS: [StoredFormat; 13] = [
    format(0, "F32", GgmlDType::F32, Some(Format::F32)),
    format(1, "F16", GgmlDType::F16, Some(Format::F16)),
    format(30, "BF16", GgmlDType::BF16, Some(Format::BF16)),
    format(2, "Q4_0", GgmlDType::Q4_0, Some(Format::Q4_0)),
    format(3, "Q4_1", GgmlDType::Q4_1, Some(Format::Q4_1)),
    format(6, "Q5_0", GgmlDType::Q5_0, Some(Format::Q5_0)),
    format(7, "Q5_1", GgmlDType::Q5_1, Some(Format::Q5_1)),
    format(8, "Q8_0", GgmlDType::Q8_0, Some(Format::Q8_0)),
    format(10, "Q2_K", GgmlDType::Q2K, None),
    format(11, "Q3_K", GgmlDType::Q3K, None),
    format(12, "Q4_K", GgmlDType::Q4K, Some(Format::Q4_K)),
    format(13, "Q5_K", GgmlDType::Q5K, Some(Format::Q5_K)),
    format(14, "Q6_K", GgmlDType::Q6K, Some(Format::Q6_K)),
];

/// The GGML type number of a format in GGUF files; `None` for a format that is none of [`FORMATS`].
pub(crate) fn ggml_number(dtype: GgmlDType) -> Option<u32> {
    FORMATS.iter().find(|format| format.dtype == dtype).map(|format| format.number)
}

impl StoredFormat {
    /// The unquantized format with this safetensors name: `F32`, `F16` or `BF16`. For any other, the name as the error.
    pub(super) fn plain(name: String) -> std::result::Result<&'static Self, String> {
        FORMATS[..3].iter().find(|format| format.name == name).ok_or(name)
    }

    /// Whether values are quantized in blocks.
    fn is_quantized(&self) -> bool {
        self.dtype.block_size() > 1
    }
}

/// Where a tensor lies and how it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// The outermost dimension first, `[out, in]` for a matrix; GGUF files have the reverse order.
    pub(crate) shape: Vec<usize>,
    /// The format, or the file's name for one that cannot be read.
    pub(super) format: std::result::Result<&'static StoredFormat, String>,
    /// The position of the data in bytes, from the start of the file.
    pub(super) offset: u64,
    /// The length of the data in bytes; 0 for a GGUF format that cannot be read.
    pub(super) bytes: usize,
}

impl Location {
    /// The location of a GGUF tensor, by the GGML type number of its format and its offset in bytes; `shape` has the
    /// outermost dimension first. A format that is not read is an error only when the tensor is asked for.
    ///
    /// # Errors
    /// When its rows are not whole blocks, or its size overflows.
    pub(super) fn of_gguf(path: &Path, name: &str, shape: Vec<usize>, number: u32, offset: u64) -> Result<Self> {
        let format = FORMATS.iter().find(|format| format.number == number);
        let (block, size) = format.map_or((1, 0), |format| (format.dtype.block_size(), format.dtype.type_size()));
        if !shape.last().copied().unwrap_or(1).is_multiple_of(block) {
            let what = format!("rows of tensor `{name}` are not whole blocks of `{block}` values");
            return Err(Error::broken(path, what));
        }
        let values = shape.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
        let Some(bytes) = values.and_then(|values| (values / block).checked_mul(size)) else {
            return Err(Error::broken(path, format!("tensor `{name}` is larger than the file")));
        };
        let format = format.ok_or_else(|| format!("GGML type {number}"));
        Ok(Self { path: path.to_path_buf(), name: name.to_owned(), shape, format, offset, bytes })
    }

    /// The location of one of the `count` matrices of a tensor `[count, out, in]`: that with this index.
    ///
    /// # Errors
    /// When the tensor has another shape, or no such matrix.
    pub(crate) fn matrix(&self, index: usize, count: usize) -> Result<Self> {
        match *self.shape.as_slice() {
            [found, rows, columns] if found == count && index < count => {
                let bytes = self.bytes / count;
                let offset = self.offset + (index * bytes) as u64;
                Ok(Self { shape: vec![rows, columns], offset, bytes, ..self.clone() })
            }
            _ => {
                let what = format!("tensor `{}` is {:?}, {count} matrices are needed", self.name, self.shape);
                Err(Error::broken(&self.path, what))
            }
        }
    }

    /// Returns an error if the tensor ends after `file_length`, the length of its file in bytes.
    pub(super) fn check_end(&self, file_length: u64) -> Result<()> {
        let end = self.offset.saturating_add(self.bytes as u64);
        if end > file_length {
            let what = format!("tensor `{}` ends at byte {end}, the file has {file_length}", self.name);
            return Err(Error::broken(&self.path, what));
        }
        Ok(())
    }

    /// The tensor's number format.
    ///
    /// # Errors
    /// When the format is none of [`FORMATS`].
    pub(super) fn format(&self) -> Result<&'static StoredFormat> {
        self.format.clone().map_err(|found| {
            let formats: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            Explanation::new("model", format!("tensor `{}` is stored as `{found}`", self.name))
                .with_location(self.path.display().to_string())
                .with_why(format!("weights are read from {}", formats.join(", ")))
                .with_hint("use the unquantized checkpoint, or its GGUF file")
                .into()
        })
    }

    /// The format in which the tensor is kept: the one in the file if matrix products can read it and the tensor is
    /// unquantized or a matrix; else `None`, and the tensor is converted to `f32`. Also `None` for a format that is not
    /// read.
    pub(super) fn kept_format(&self) -> Option<Format> {
        let format = self.format.as_ref().ok().filter(|format| !format.is_quantized() || self.shape.len() == 2)?;
        format.native
    }

    /// The name of the format if it is quantized, else `None`.
    pub(super) fn quantized_format(&self) -> Option<&'static str> {
        self.format.as_ref().ok().filter(|format| format.is_quantized()).map(|format| format.name)
    }

    /// The bytes of the tensor as it is kept: as in the file, or 4 for each value if it becomes `f32`.
    pub(super) fn kept_bytes(&self) -> u64 {
        match self.kept_format() {
            Some(_) => self.bytes as u64,
            None => 4 * self.shape.iter().map(|side| *side as u64).product::<u64>(),
        }
    }

    /// Reads the tensor onto the CPU: plain numbers in the type of the file, quantized ones as `f32`.
    ///
    /// # Errors
    /// When the format is none of [`FORMATS`], or the file cannot be read.
    pub(crate) fn read(&self) -> Result<Tensor> {
        let shape = self.shape.as_slice();
        Ok(match self.format()?.dtype {
            GgmlDType::F32 => Tensor::from_vec(self.read_plain(f32::from_le_bytes)?, shape, &Device::Cpu)?,
            GgmlDType::F16 => Tensor::from_vec(self.read_plain(f16::from_le_bytes)?, shape, &Device::Cpu)?,
            GgmlDType::BF16 => Tensor::from_vec(self.read_plain(bf16::from_le_bytes)?, shape, &Device::Cpu)?,
            quantized => Tensor::from_vec(self.dequantize(quantized)?, shape, &Device::Cpu)?,
        })
    }

    /// The bytes of the tensor as they are in the file, if its format is `dtype`; `None` for another format.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read_stored(&self, dtype: GgmlDType) -> Result<Option<Vec<u8>>> {
        let is_same = self.format.as_ref().is_ok_and(|format| format.dtype == dtype);
        is_same.then(|| self.read_bytes(0, self.bytes)).transpose()
    }

    /// The type with which candle reads the tensor.
    ///
    /// # Errors
    /// When the format is none of [`FORMATS`].
    pub(crate) fn dtype(&self) -> Result<GgmlDType> {
        Ok(self.format()?.dtype)
    }

    /// Reads the values as `f32`, in row-major order.
    ///
    /// # Errors
    /// When the format is none of [`FORMATS`], or the file cannot be read.
    pub(crate) fn read_f32(&self) -> Result<Vec<f32>> {
        Ok(self.read()?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
    }

    /// Reads all values of an unquantized tensor, [`PIECE`] bytes at a time. `convert` makes a value of its `N` bytes.
    fn read_plain<const N: usize, T>(&self, convert: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
        let mut output = Vec::with_capacity(self.bytes / N);
        for start in (0..self.bytes).step_by(PIECE) {
            let piece = self.read_bytes(start, PIECE.min(self.bytes - start))?;
            output.extend(piece.as_chunks::<N>().0.iter().map(|bytes| convert(*bytes)));
        }
        Ok(output)
    }

    /// Reads all blocks of a tensor that is quantized as `dtype` and converts them to `f32`, on all cores, in tasks of
    /// [`TASK`] values, rounded up to whole blocks.
    fn dequantize(&self, dtype: GgmlDType) -> Result<Vec<f32>> {
        let (block, size) = (dtype.block_size(), dtype.type_size());
        let task = TASK.next_multiple_of(block);
        let mut output = vec![0f32; self.bytes / size * block];
        output.par_chunks_mut(task).enumerate().try_for_each(|(number, values)| {
            let raw = self.read_bytes(number * (task / block) * size, values.len() / block * size)?;
            let blocks = qtensor_from_ggml(dtype, &raw, vec![values.len()], &Device::Cpu)?;
            values.copy_from_slice(&blocks.dequantize(&Device::Cpu)?.to_vec1::<f32>()?);
            Ok::<(), Error>(())
        })?;
        Ok(output)
    }

    /// Opens the file and reads `length` of the tensor's bytes, from byte `start` of the tensor on. Errors: the file
    /// cannot be read or is too short.
    fn read_bytes(&self, start: usize, length: usize) -> Result<Vec<u8>> {
        let failed = |error| Error::file(&self.path, error);
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.offset + start as u64)).map_err(failed)?;
        let mut raw = vec![0; length];
        file.read_exact(&mut raw).map_err(failed)?;
        Ok(raw)
    }
}

#[cfg(test)]
mod tests;
