//! Numbers out of blocks on a device: in f32 with the bits of the CPU's, in 16 bits the nearest to them.

use std::ops::Range;

use candle_core::{DType, Tensor};

use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::{Error, Result};
use crate::weight::{Format, Packed};

/// Which rows of a matrix are read.
#[derive(Debug, Clone)]
pub(in crate::fused) enum Rows<'a> {
    /// All of them, in order.
    All,
    /// Some that follow one another.
    Between(Range<usize>),
    /// The rows of these indices, `[count]` u32 on the device. The host has checked that they are in range.
    Numbered(&'a Tensor),
}

/// Unpacks rows of a matrix on a device and multiplies them by `scale`: `[count, columns]` in type `act`. Returns an
/// error if the matrix is not on a device, its format is f32, f16 or bf16, or a range of rows ends past the matrix.
pub(in crate::fused) fn unpacked(
    device: &Accelerator,
    packed: &Packed,
    rows: Rows<'_>,
    scale: f32,
    act: DType,
) -> Result<Tensor> {
    let placed = packed.device_blocks()?;
    let [known, columns] = packed.sides();
    let (ids, first, number) = match rows {
        Rows::All => (None, 0, known),
        Rows::Between(range) if range.end <= known => (None, range.start, range.len()),
        Rows::Between(range) => {
            return Err(Error::argument(format!("there are rows 0 to {known}, and {range:?} were asked for")));
        }
        Rows::Numbered(ids) => (Some(ids), 0, ids.elem_count()),
    };
    let arguments = arguments![
        &placed.blocks,
        ids,
        number,
        columns,
        first,
        known,
        scale,
        placed.groups.as_ref(),
        placed.dynamic.as_ref(),
        placed.mean,
        Argument::FaultWord,
        0u32
    ];
    device.compute(kernel(packed.format())?, act, device.flat(number * columns), &[number, columns], &arguments)
}

/// Unpacks consecutive rows of a matrix on the matrix's device: `[rows, columns]` f32. Returns an error if the matrix
/// is on the CPU.
pub(crate) fn rows_on_device(packed: &Packed, rows: Range<usize>) -> Result<Tensor> {
    match Accelerator::of(packed.device())? {
        Some(device) => unpacked(&device, packed, Rows::Between(rows), 1.0, DType::F32),
        None => Err(Error::argument("the matrix is not on a device")),
    }
}

/// Returns the kernel that unpacks a format into the type of activations.
///
/// # Errors
/// [`Error::Dtype`] for f32, f16 and bf16, which have no blocks.
fn kernel(format: Format) -> Result<&'static kernel::Kernel> {
    Ok(match format {
        Format::Q4_0 => &kernel::UNPACK_Q4_0,
        Format::Q4_1 => &kernel::UNPACK_Q4_1,
        Format::Q5_0 => &kernel::UNPACK_Q5_0,
        Format::Q5_1 => &kernel::UNPACK_Q5_1,
        Format::Q8_0 => &kernel::UNPACK_Q8_0,
        Format::Q4_K => &kernel::UNPACK_Q4_K,
        Format::Q5_K => &kernel::UNPACK_Q5_K,
        Format::Q6_K => &kernel::UNPACK_Q6_K,
        Format::NF4 => &kernel::UNPACK_NF4,
        Format::F32 | Format::F16 | Format::BF16 => {
            return Err(Error::dtype(format!("numbers in {format:?} are no blocks")));
        }
    })
}
