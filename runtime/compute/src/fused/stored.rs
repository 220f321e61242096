//! Stored matrices: weights in the format they are kept in, of which [`View`] converts a block when a product needs it,
//! never the whole.

use std::ops::Range;

use candle_core::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::host::{Locked, not_on_cpu, round_all, widen_all};
use super::product::{Data, Matrix, steps};
use super::scratch;
use super::unpack::{unpack, unpack_nested};
use crate::error::{Error, Result};
use crate::weight::{Format, Packed, Scales, WeightRef};

/// Rows or columns of a weight, along the axis that a product sums over, that are converted at once.
const BLOCK_DEPTH: usize = 512;

/// A stored matrix of `rows × columns`, borrowed from its tensor or from the bytes of a file.
pub(super) struct Stored<'a> {
    source: Source<'a>,
    rows: usize,
    columns: usize,
}

/// Where the numbers of a [`Stored`] matrix are.
enum Source<'a> {
    Tensor(Locked<'a>, DType),
    Packed(&'a Packed),
}

impl<'a> Stored<'a> {
    /// Borrows a weight for reading on the CPU; `name` is what error messages call it. Returns an error unless it is a
    /// contiguous matrix of the CPU, in f32, bf16, f16 or a packed format.
    pub(super) fn of(weight: impl Into<WeightRef<'a>>, name: &str) -> Result<Self> {
        let weight = weight.into();
        let [rows, columns] = sides(weight, name)?;
        let source = match weight {
            WeightRef::Packed(packed) if packed.is_on_device() => return Err(not_on_cpu(packed.device(), name)),
            WeightRef::Packed(packed) => Source::Packed(packed),
            WeightRef::Tensor(tensor) if matches!(tensor.dtype(), DType::F32 | DType::BF16 | DType::F16) => {
                Source::Tensor(Locked::of(tensor, name)?, tensor.dtype())
            }
            WeightRef::Tensor(tensor) => {
                let found = tensor.dtype().as_str();
                return Err(Error::dtype(format!("`{name}` is {found}; f32, bf16 or f16 is needed")));
            }
        };
        Ok(Self { source, rows, columns })
    }

    /// Returns the matrix as a copyable view that all tasks of an operation share.
    pub(super) fn view(&self) -> View<'_> {
        let numbers = match &self.source {
            Source::Packed(packed) => Numbers::of(packed),
            Source::Tensor(locked, DType::F32) => Numbers::F32(locked.slice()),
            Source::Tensor(locked, DType::BF16) => Numbers::Bf16(locked.slice()),
            Source::Tensor(locked, _) => Numbers::F16(locked.slice()),
        };
        View { numbers, rows: self.rows, columns: self.columns }
    }
}

/// Returns the rows and columns of a weight, or [`Error::Shape`], whose message calls it `name`, if it is no matrix.
pub(super) fn sides(weight: WeightRef<'_>, name: &str) -> Result<[usize; 2]> {
    <[usize; 2]>::try_from(weight.sides())
        .map_err(|sides| Error::shape(format!("`{name}` has shape {sides:?}, a matrix is needed")))
}

/// Numbers in one of the stored precisions.
#[derive(Clone, Copy)]
enum Numbers<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
    /// Blocks of a quantized format, with the scales that the blocks of NF4 share.
    Blocks(&'a [u8], Format, Option<&'a Scales>),
}

impl<'a> Numbers<'a> {
    /// Borrows the numbers or the blocks of a packed matrix on the host. Empty for a matrix on a device.
    fn of(packed: &'a Packed) -> Self {
        // `Packed::new` has checked that plain numbers can be read.
        match packed.format() {
            Format::F32 => Self::F32(packed.plain().unwrap_or(&[])),
            Format::BF16 => Self::Bf16(packed.plain().unwrap_or(&[])),
            Format::F16 => Self::F16(packed.plain().unwrap_or(&[])),
            format => Self::Blocks(packed.raw(), format, packed.scales()),
        }
    }

    /// Fills `into` with the numbers from index `start` on, converted to f32. In a quantized format both ends must be
    /// block boundaries.
    fn widen(self, start: usize, into: &mut [f32]) {
        let range = start..start + into.len();
        match self {
            Self::F32(numbers) => into.copy_from_slice(&numbers[range]),
            Self::Bf16(numbers) => widen_all(&numbers[range], into),
            Self::F16(numbers) => numbers[range].convert_to_f32_slice(into),
            Self::Blocks(bytes, format, None) => unpack(format, blocks_of(bytes, format, range), into),
            Self::Blocks(bytes, format, Some(scales)) => {
                unpack_nested(scales, start / format.block(), blocks_of(bytes, format, range), into);
            }
        }
    }
}

/// Returns the bytes of the blocks that hold some numbers. Panics unless the range begins and ends at block boundaries:
/// without a check, numbers of other blocks would be read.
fn blocks_of(bytes: &[u8], format: Format, numbers: Range<usize>) -> &[u8] {
    let are_whole = [numbers.start, numbers.end].iter().all(|end| end.is_multiple_of(format.block()));
    assert!(are_whole, "numbers {numbers:?} are no whole blocks of {}", format.block());
    let place = |number: usize| number / format.block() * format.block_bytes();
    &bytes[place(numbers.start)..place(numbers.end)]
}

/// A matrix of frozen numbers, read block by block.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    numbers: Numbers<'a>,
    /// Rows: the outputs of a linear layer, or the vocabulary.
    pub(super) rows: usize,
    /// Columns: the inputs of a linear layer, or the hidden size.
    pub(super) columns: usize,
}

impl View<'_> {
    /// The numbers of a block: reading begins and ends between two of them. 1 for formats without blocks.
    pub(super) fn block(&self) -> usize {
        match self.numbers {
            Numbers::Blocks(_, format, _) => format.block(),
            _ => 1,
        }
    }

    /// Cuts a range of rows or columns into the pieces to read at once for a product with numbers like `like`: one for
    /// numbers stored in that type, which are not copied, else pieces of [`BLOCK_DEPTH`].
    pub(super) fn pieces(&self, range: Range<usize>, like: Data<'_>) -> impl Iterator<Item = Range<usize>> {
        let length = match (self.numbers, like) {
            (Numbers::F32(_), Data::F32(_)) | (Numbers::Bf16(_), Data::Bf16(_)) => range.len(),
            _ => BLOCK_DEPTH,
        };
        steps(range, length)
    }

    /// Writes the row with index `row` as f32 to the first `columns` numbers of `into`. Panics if the row does not
    /// exist or `into` is shorter.
    pub(super) fn copy_row(&self, row: usize, into: &mut [f32]) {
        self.numbers.widen(row * self.columns, &mut into[..self.columns]);
    }

    /// Calls `work` with the rows `rows` as f32 numbers, one row after another, and returns the result of `work`.
    /// Stored f32 is not copied; other formats are widened into a scratch buffer. Panics if the rows end past the
    /// matrix.
    pub(super) fn with_numbers<R>(&self, rows: Range<usize>, work: impl FnOnce(&[f32]) -> R) -> R {
        let (start, count) = (rows.start * self.columns, rows.len() * self.columns);
        if let Numbers::F32(numbers) = self.numbers {
            return work(&numbers[start..start + count]);
        }
        scratch::with(count, |buffer| {
            self.numbers.widen(start, buffer);
            work(buffer)
        })
    }

    /// Returns the stored bytes of whole rows; rows past the end of the matrix are left out.
    pub(super) fn bytes(&self, rows: Range<usize>) -> &[u8] {
        let size = |numbers: &[u8]| {
            let row = numbers.len() / self.rows.max(1);
            (rows.start.min(self.rows) * row)..(rows.end.min(self.rows) * row)
        };
        let bytes = match self.numbers {
            Numbers::F32(numbers) => bytemuck::cast_slice(numbers),
            Numbers::Bf16(numbers) => bytemuck::cast_slice(numbers),
            Numbers::F16(numbers) => bytemuck::cast_slice(numbers),
            Numbers::Blocks(bytes, ..) => bytes,
        };
        &bytes[size(bytes)]
    }

    /// Returns whole rows as a format and the blocks that [`dot_blocks`](super::unpack::dot_blocks) reads: the
    /// quantized GGML formats, and bf16 in rows of a multiple of 32 numbers. `None` for f32, f16, NF4, other bf16, and
    /// a matrix without columns.
    pub(super) fn blocks(&self, rows: Range<usize>) -> Option<(Format, &[u8])> {
        let (start, count) = (rows.start * self.columns, rows.len() * self.columns);
        match self.numbers {
            Numbers::Blocks(bytes, format, None) if self.columns > 0 => {
                Some((format, blocks_of(bytes, format, start..start + count)))
            }
            Numbers::Bf16(numbers)
                if self.columns > 0 && self.columns.is_multiple_of(32) && cfg!(target_endian = "little") =>
            {
                Some((Format::BF16, bytemuck::cast_slice(&numbers[start..start + count])))
            }
            _ => None,
        }
    }

    /// Calls `work` with the block `rows × columns` as one matrix in the type of `like`: numbers stored in that type
    /// without a copy, others converted into a scratch buffer.
    pub(super) fn with_block<R>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        like: Data<'_>,
        work: impl FnOnce(Matrix<'_>) -> R,
    ) -> R {
        let (count, width, start) = (rows.len(), columns.len(), rows.start * self.columns + columns.start);
        match (self.numbers, like) {
            (Numbers::F32(numbers), Data::F32(_)) => {
                work(Matrix::new(Data::F32(&numbers[start..]), count, width, self.columns))
            }
            (Numbers::Bf16(numbers), Data::Bf16(_)) => {
                work(Matrix::new(Data::Bf16(&numbers[start..]), count, width, self.columns))
            }
            (_, Data::F32(_)) => scratch::with(count * width, |buffer| {
                for (row, into) in buffer.chunks_exact_mut(width.max(1)).enumerate() {
                    self.numbers.widen(start + row * self.columns, into);
                }
                work(Matrix::packed(buffer, count, width))
            }),
            (_, Data::Bf16(_)) => scratch::with_parts([width, (count * width).div_ceil(2)], |[wide, rounded]| {
                let rounded: &mut [bf16] = bytemuck::cast_slice_mut(rounded);
                for (row, into) in rounded.chunks_exact_mut(width.max(1)).take(count).enumerate() {
                    self.numbers.widen(start + row * self.columns, wide);
                    round_all(wide, into);
                }
                work(Matrix::new(Data::Bf16(rounded), count, width, width))
            }),
        }
    }
}

impl WeightRef<'_> {
    /// Calls `work` with the rows `rows` as f32 numbers, one row after another, and returns the result of `work`.
    /// Passes f32 weights without a copy; converts other formats into a scratch buffer of this thread. Panics if the
    /// rows end past the matrix.
    ///
    /// # Errors
    /// If the weight is no contiguous matrix of the CPU in f32, bf16, f16 or a packed format.
    pub(crate) fn with_rows<R>(self, rows: Range<usize>, work: impl FnOnce(&[f32]) -> R) -> Result<R> {
        Ok(Stored::of(self, "weight")?.view().with_numbers(rows, work))
    }
}

/// Returns the rows `rows` of a packed matrix on the host as f32, one row after another. Unpacks on all threads. Panics
/// if the rows end past the matrix.
pub(crate) fn unpack_rows(packed: &Packed, rows: Range<usize>) -> Vec<f32> {
    /// Numbers of one task: whole blocks of every format.
    const TASK: usize = 1 << 16;
    let (numbers, start) = (Numbers::of(packed), rows.start * packed.columns());
    let mut result = vec![0.0; rows.len() * packed.columns()];
    result.par_chunks_mut(TASK).enumerate().for_each(|(task, into)| numbers.widen(start + task * TASK, into));
    result
}
