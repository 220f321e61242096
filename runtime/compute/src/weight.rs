//! A matrix of a model as it is stored: a tensor, or bytes in the format of the file that they came from.
//!
//! Bytes are never widened as a whole: products widen a block when they need it, so a model takes the memory of its
//! file. The caller decides who owns the bytes (a mapped file, a buffer) and where a matrix lies in them. On an
//! accelerator blocks are the same bytes, and plain numbers have the one type that its products take.

mod bytes;
mod device;
mod format;
mod nf4;
mod q8_0;

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};

use crate::error::{Error, Result};
use crate::fused;

pub use bytes::Bytes;
pub(crate) use device::DeviceBlocks;
pub use format::Format;
pub(crate) use nf4::{Scales, unpack as unpack_nf4};

/// A matrix stored as bytes of a [`Format`], row by row, on the CPU or on an accelerator.
#[derive(Debug)]
pub struct Packed {
    numbers: Numbers,
    format: Format,
    rows: usize,
    columns: usize,
}

/// Where the bytes of a matrix are.
#[derive(Debug)]
enum Numbers {
    /// In the memory of the CPU; `scales` are those that the blocks of `NF4` share.
    Host { bytes: Bytes, scales: Option<Scales> },
    /// On an accelerator, which has only quantized formats as bytes.
    Device(DeviceBlocks),
}

impl Packed {
    /// Creates a packed matrix of `rows × columns` numbers on the CPU from its bytes, row by row.
    ///
    /// # Errors
    /// When a row is not whole blocks, the bytes are not exactly those of the matrix, plain numbers are not aligned,
    /// the format is `NF4` (made by [`Weight::to_nf4`] alone), or the processor is big-endian.
    pub fn new(bytes: Bytes, format: Format, rows: usize, columns: usize) -> Result<Self> {
        let found = bytes.slice();
        if format.bytes(rows, columns) != Some(found.len()) {
            let length = found.len();
            return Err(Error::shape(format!("{length} bytes are not {rows} × {columns} numbers in {format:?}")));
        }
        let packed = Self { numbers: Numbers::Host { bytes, scales: None }, format, rows, columns };
        let readable = match format {
            Format::F32 => packed.plain::<f32>().is_some(),
            Format::F16 => packed.plain::<f16>().is_some(),
            Format::BF16 => packed.plain::<bf16>().is_some(),
            // The scales of NF4 are not part of the bytes, so bytes alone are no matrix.
            Format::NF4 => false,
            _ => true,
        };
        if !readable || cfg!(target_endian = "big") {
            return Err(Error::argument(format!("numbers in {format:?} do not lie where this processor reads them")));
        }
        Ok(packed)
    }

    /// Returns the bytes of the matrix reinterpreted as plain numbers of type `N`, whatever the format; the caller
    /// checks that. `None` if the bytes are not aligned for `N` or not a whole number of `N`. Empty if the matrix is on
    /// an accelerator.
    pub(crate) fn plain<N: bytemuck::Pod>(&self) -> Option<&[N]> {
        bytemuck::try_cast_slice(self.raw()).ok()
    }

    /// The bytes of the matrix on the CPU. Empty if the matrix is on an accelerator.
    pub(crate) fn raw(&self) -> &[u8] {
        match &self.numbers {
            Numbers::Host { bytes, .. } => bytes.slice(),
            Numbers::Device(_) => &[],
        }
    }

    /// The number of columns, which is the length of a row in numbers.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// `[rows, columns]`.
    pub(crate) fn sides(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// The format of the bytes.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The scales that the blocks of an `NF4` matrix share. `None` for other formats, and on an accelerator.
    pub(crate) fn scales(&self) -> Option<&Scales> {
        match &self.numbers {
            Numbers::Host { scales, .. } => scales.as_ref(),
            Numbers::Device(_) => None,
        }
    }

    /// Copies rows of the matrix to a new one of `order.len()` rows: row `i` of the result is row `order[i]`. Rows may
    /// repeat or be left out.
    ///
    /// # Errors
    /// When the order names a row that is not there, the format is `NF4`, whose blocks share scales across rows, or the
    /// bytes are on an accelerator.
    pub fn permute_rows(&self, order: &[usize]) -> Result<Self> {
        if self.is_on_device() {
            return Err(Error::argument("rows are put in order before a matrix is placed on a device"));
        }
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
    /// The device that holds the weight.
    #[must_use]
    pub fn device(&self) -> &Device {
        WeightRef::from(self).device()
    }

    /// Returns the numbers exactly, as a tensor of the CPU: in f16 or bf16 if they are stored so, else in f32.
    /// Quantized blocks are widened to f32. A tensor of the CPU is returned as it is. A weight of an accelerator is
    /// copied, for which this waits.
    ///
    /// # Errors
    /// When the device fails, or a tensor of an accelerator is not contiguous.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let packed = match self {
            Self::Tensor(tensor) => return device::to_cpu(tensor),
            Self::Packed(packed) => packed,
        };
        if packed.is_on_device() {
            return self.rows(0, packed.rows);
        }
        let shape = (packed.rows, packed.columns);
        Ok(match packed.format {
            Format::F16 => Tensor::from_slice(packed.plain::<f16>().unwrap_or(&[]), shape, &Device::Cpu)?,
            Format::BF16 => Tensor::from_slice(packed.plain::<bf16>().unwrap_or(&[]), shape, &Device::Cpu)?,
            _ => Tensor::from_vec(fused::unpack_rows(packed, 0..packed.rows), shape, &Device::Cpu)?,
        })
    }

    /// Returns rows `first` … `first + count − 1` as a contiguous CPU tensor in f32, `[count, columns]`. The other rows
    /// are not read. For a weight of an accelerator this waits.
    ///
    /// # Errors
    /// When the weight has no such rows, or the device fails.
    pub fn rows(&self, first: usize, count: usize) -> Result<Tensor> {
        match self {
            Self::Tensor(tensor) => {
                Ok(device::to_cpu(&tensor.narrow(0, first, count)?)?.to_dtype(DType::F32)?.contiguous()?)
            }
            Self::Packed(packed) if first.checked_add(count).is_some_and(|end| end <= packed.rows) => {
                if packed.is_on_device() {
                    return device::to_cpu(&fused::rows_on_device(packed, first..first + count)?);
                }
                let numbers = fused::unpack_rows(packed, first..first + count);
                Ok(Tensor::from_vec(numbers, (count, packed.columns), &Device::Cpu)?)
            }
            Self::Packed(packed) => Err(Error::argument(format!("there are rows 0 to {}", packed.rows))),
        }
    }

    /// Quantizes a matrix of the CPU to a new one in `format`, `NF4` or `Q8_0`: see [`to_nf4`](Self::to_nf4) and
    /// [`to_q8_0`](Self::to_q8_0).
    ///
    /// # Errors
    /// Those of these two, and another format.
    pub fn quantize(&self, format: Format) -> Result<Self> {
        match format {
            Format::NF4 => self.to_nf4(),
            Format::Q8_0 => self.to_q8_0(),
            _ => Err(Error::argument(format!("no model is quantized to {format:?} while it is read"))),
        }
    }

    /// Quantizes a matrix of the CPU to a new one in GGML's Q8_0: 8 bits for each number, 16 for the scale of 32
    /// numbers. Reads some rows at a time, so the matrix is never widened as a whole.
    ///
    /// # Errors
    /// When it is no matrix, its rows are not whole blocks of 32, a number is not finite or too large, or it is on an
    /// accelerator.
    pub fn to_q8_0(&self) -> Result<Self> {
        let (rows, columns) = self.matrix_sides(Format::Q8_0)?;
        let bytes = q8_0::quantize(self.into(), rows, columns)?;
        Ok(Self::Packed(Arc::new(Packed::new(bytes.into(), Format::Q8_0, rows, columns)?)))
    }

    /// Quantizes a matrix of the CPU to a new one in NF4 with double quantization (arXiv:2305.14314): 4 bits for each
    /// number, 8 for the scale of 64 numbers, 32 for the scale of 256 such scales. Reads some rows at a time, so the
    /// matrix is never widened as a whole.
    ///
    /// # Errors
    /// When it is no matrix, its rows are not whole blocks of 64, a number is not finite, or it is on an accelerator.
    pub fn to_nf4(&self) -> Result<Self> {
        let (rows, columns) = self.matrix_sides(Format::NF4)?;
        let (bytes, scales) = nf4::quantize(self.into(), rows, columns)?;
        let numbers = Numbers::Host { bytes: bytes.into(), scales: Some(scales) };
        Ok(Self::Packed(Arc::new(Packed { numbers, format: Format::NF4, rows, columns })))
    }

    /// The rows and columns of a matrix that is to be quantized to `format`. Fails for another shape.
    fn matrix_sides(&self, format: Format) -> Result<(usize, usize)> {
        let sides = WeightRef::from(self).sides();
        let &[rows, columns] = sides.as_slice() else {
            return Err(Error::shape(format!(
                "a weight of shape {sides:?} is no matrix, and {format:?} holds matrices"
            )));
        };
        Ok((rows, columns))
    }

    /// Bytes that a `rows × columns` matrix takes in a format, with the scales that blocks of `NF4` share. `None` if a
    /// row is not whole blocks, or the number of bytes overflows.
    #[must_use]
    pub fn bytes_in(format: Format, rows: usize, columns: usize) -> Option<usize> {
        let blocks = format.bytes(rows, columns)?;
        let scales = if format == Format::NF4 { Scales::bytes_of(rows * (columns / format.block())) } else { 0 };
        Some(blocks + scales)
    }

    /// Bytes that the weight takes where it is, including the scales that blocks of `NF4` share. For a tensor: its
    /// elements times the size of its type.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.elem_count() * tensor.dtype().size_in_bytes(),
            Self::Packed(packed) => match &packed.numbers {
                Numbers::Host { bytes, scales } => bytes.len() + scales.as_ref().map_or(0, Scales::bytes),
                Numbers::Device(placed) => placed.bytes(),
            },
        }
    }
}

impl From<Tensor> for Weight {
    /// Wraps the tensor; copies and checks nothing.
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

impl<'a> WeightRef<'a> {
    /// The shape of the weight: of a tensor all its dimensions, else `[rows, columns]`.
    #[must_use]
    pub fn sides(&self) -> Vec<usize> {
        match self {
            Self::Tensor(tensor) => tensor.dims().to_vec(),
            Self::Packed(packed) => packed.sides().to_vec(),
        }
    }

    /// The device that holds the numbers.
    pub(crate) fn device(&self) -> &'a Device {
        match self {
            Self::Tensor(tensor) => tensor.device(),
            Self::Packed(packed) => packed.device(),
        }
    }
}

impl<'a> From<&'a Tensor> for WeightRef<'a> {
    /// Borrows the tensor; checks nothing.
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'a> From<&'a Weight> for WeightRef<'a> {
    /// Borrows the tensor or the packed bytes of the weight.
    fn from(weight: &'a Weight) -> Self {
        match weight {
            Weight::Tensor(tensor) => Self::Tensor(tensor),
            Weight::Packed(packed) => Self::Packed(packed),
        }
    }
}

#[cfg(test)]
mod tests;
