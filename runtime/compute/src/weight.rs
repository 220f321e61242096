//! A matrix of a model as it is kept: a tensor, or bytes in the format of the file that they came from.
//!
//! Bytes are never widened as a whole: products widen a block when they need it, so a model takes the memory of its
//! file. Who owns the bytes (a mapped file, a buffer) and where a matrix lies in them is the caller's business.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};

use crate::error::{Error, Result};
use crate::fused;

/// Bytes that somebody else owns, shared.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Bytes {
    /// A part of what `owner` holds, which must answer alike each time.
    ///
    /// # Errors
    /// When the part reaches past its end.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Result<Self> {
        let length = (*owner).as_ref().len();
        if range.start > range.end || range.end > length {
            return Err(Error::argument(format!("bytes {range:?} of {length} are not there")));
        }
        Ok(Self { owner, range })
    }

    fn slice(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or(&[])
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Arc::new(bytes), range }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.range.len())
    }
}

/// How numbers lie in bytes. The quantized ones are those of GGML: blocks of 32 or 256 numbers of one row that share
/// a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "the names that the field gives the formats")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl Format {
    /// Numbers of a block, which is the least that can be read.
    #[must_use]
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// The tensor type that holds its numbers exactly.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            _ => DType::F32,
        }
    }

    /// Bytes of some rows, if they are whole blocks and can be counted.
    #[must_use]
    pub fn bytes(self, rows: usize, columns: usize) -> Option<usize> {
        let blocks = columns.is_multiple_of(self.block()).then_some(columns / self.block())?;
        rows.checked_mul(blocks)?.checked_mul(self.block_bytes())
    }
}

/// A matrix in bytes, row by row.
#[derive(Debug)]
pub struct Packed {
    bytes: Bytes,
    format: Format,
    rows: usize,
    columns: usize,
}

impl Packed {
    /// A matrix of `rows × columns` numbers.
    ///
    /// # Errors
    /// When a row is not whole blocks, the bytes are not exactly those of the matrix, or plain numbers do not lie
    /// where the processor can read them.
    pub fn new(bytes: Bytes, format: Format, rows: usize, columns: usize) -> Result<Self> {
        let found = bytes.slice();
        if format.bytes(rows, columns) != Some(found.len()) {
            let length = found.len();
            return Err(Error::shape(format!("{length} bytes are not {rows} × {columns} numbers in {format:?}")));
        }
        let packed = Self { bytes, format, rows, columns };
        let readable = match format {
            Format::F32 => packed.plain::<f32>().is_some(),
            Format::F16 => packed.plain::<f16>().is_some(),
            Format::BF16 => packed.plain::<bf16>().is_some(),
            _ => true,
        };
        if !readable || cfg!(target_endian = "big") {
            return Err(Error::argument(format!("numbers in {format:?} do not lie where this processor reads them")));
        }
        Ok(packed)
    }

    /// Plain numbers as what they are; none if the bytes do not lie on their boundaries.
    pub(crate) fn plain<N: bytemuck::Pod>(&self) -> Option<&[N]> {
        bytemuck::try_cast_slice(self.bytes.slice()).ok()
    }

    /// The bytes as they are.
    pub(crate) fn raw(&self) -> &[u8] {
        self.bytes.slice()
    }

    /// Numbers of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// How the numbers lie.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The same matrix with its rows in another order: row `i` is what `order[i]` was.
    ///
    /// # Errors
    /// When the order names a row that is not there.
    pub fn reordered(&self, order: &[usize]) -> Result<Self> {
        let size = self.raw().len() / self.rows.max(1);
        let mut bytes = Vec::with_capacity(order.len() * size);
        for row in order {
            let from = self.raw().get(row * size..(row + 1) * size).filter(|_| *row < self.rows);
            bytes.extend_from_slice(from.ok_or_else(|| Error::argument(format!("there is no row {row}")))?);
        }
        Self::new(bytes.into(), self.format, order.len(), self.columns)
    }
}

/// A matrix `[rows, columns]` of a model.
#[derive(Debug, Clone)]
pub enum Weight {
    /// Numbers of the tensor library, in f32, bf16 or f16.
    Tensor(Tensor),
    /// Bytes in the format of a file, frozen.
    Packed(Arc<Packed>),
}

impl Weight {
    /// Its numbers as a tensor of the CPU, exactly: f32 where the format is none of the tensor library's.
    ///
    /// # Errors
    /// When the tensor library has no memory for them.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let packed = match self {
            Self::Tensor(tensor) => return Ok(tensor.clone()),
            Self::Packed(packed) => packed,
        };
        let shape = (packed.rows, packed.columns);
        Ok(match packed.format {
            Format::F16 => Tensor::from_slice(packed.plain::<f16>().unwrap_or(&[]), shape, &Device::Cpu)?,
            Format::BF16 => Tensor::from_slice(packed.plain::<bf16>().unwrap_or(&[]), shape, &Device::Cpu)?,
            _ => Tensor::from_vec(fused::unpacked(packed, 0..packed.rows), shape, &Device::Cpu)?,
        })
    }

    /// Some of its rows as a tensor of f32, `[count, columns]`; the others are not touched.
    ///
    /// # Errors
    /// When it is no matrix or has no such rows.
    pub fn rows(&self, first: usize, count: usize) -> Result<Tensor> {
        match self {
            Self::Tensor(tensor) => Ok(tensor.narrow(0, first, count)?.to_dtype(DType::F32)?.contiguous()?),
            Self::Packed(packed) if first.checked_add(count).is_some_and(|end| end <= packed.rows) => {
                let numbers = fused::unpacked(packed, first..first + count);
                Ok(Tensor::from_vec(numbers, (count, packed.columns), &Device::Cpu)?)
            }
            Self::Packed(packed) => Err(Error::argument(format!("there are rows 0 to {}", packed.rows))),
        }
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.elem_count() * tensor.dtype().size_in_bytes(),
            Self::Packed(packed) => packed.bytes.range.len(),
        }
    }
}

impl From<Tensor> for Weight {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

/// A matrix that an operation only reads: a tensor or a [`Weight`].
#[derive(Debug, Clone, Copy)]
pub enum WeightRef<'a> {
    /// Numbers of the tensor library.
    Tensor(&'a Tensor),
    /// Bytes in the format of a file.
    Packed(&'a Packed),
}

impl WeightRef<'_> {
    /// Its sides, however many a tensor has.
    #[must_use]
    pub fn sides(&self) -> Vec<usize> {
        match self {
            Self::Tensor(tensor) => tensor.dims().to_vec(),
            Self::Packed(packed) => vec![packed.rows, packed.columns],
        }
    }
}

impl<'a> From<&'a Tensor> for WeightRef<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'a> From<&'a Weight> for WeightRef<'a> {
    fn from(weight: &'a Weight) -> Self {
        match weight {
            Weight::Tensor(tensor) => Self::Tensor(tensor),
            Weight::Packed(packed) => Self::Packed(packed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_the_matrix_are_refused() {
        let of = |length: usize, format, rows, columns| Packed::new(vec![0; length].into(), format, rows, columns);
        assert!(of(34 * 6, Format::Q8_0, 3, 64).is_ok());
        assert!(of(34 * 6 - 1, Format::Q8_0, 3, 64).is_err());
        assert!(of(34 * 6, Format::Q8_0, 6, 33).is_err());
        assert!(of(0, Format::Q6_K, usize::MAX, 1 << 40).is_err());
        assert!(Bytes::new(Arc::new(vec![0u8; 4]), 2..5).is_err());
    }

    #[test]
    fn rows_in_another_order_keep_their_bytes() {
        let bytes: Vec<u8> = (0..34 * 3).collect();
        let packed = Packed::new(bytes.into(), Format::Q8_0, 3, 32).unwrap();
        let turned = packed.reordered(&[2, 0, 1]).unwrap();
        assert_eq!((turned.raw()[0], turned.raw()[34], turned.raw()[68]), (68, 0, 34));
        assert!(packed.reordered(&[3]).is_err());
    }

    #[test]
    fn some_rows_are_those_of_the_whole() {
        let bytes: Vec<u8> = (0..34 * 6).map(|byte| byte as u8 & 0x3b).collect();
        let weight = Weight::Packed(Packed::new(bytes.into(), Format::Q8_0, 3, 64).unwrap().into());
        let numbers = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let whole = numbers(weight.to_tensor().unwrap());
        assert_eq!(numbers(weight.rows(1, 2).unwrap()), whole[64..]);
        assert!(weight.rows(2, 2).is_err() && weight.rows(usize::MAX, 2).is_err());
    }
}
