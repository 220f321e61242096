//! Helpers that the device branches of several operations share: checks of types, grids, sums over rows, and weights
//! converted for products.

use std::borrow::Cow;

use candle_core::{DType, Tensor};

use crate::accelerator::{Accelerator, Argument, Grid, arguments, extent, kernel};
use crate::error::{Error, Result};
use crate::fused::host;
use crate::fused::unpack::{Rows, unpack_on_device};
use crate::weight::WeightRef;

/// Threads of a block of most kernels.
const THREADS: u32 = 256;
/// Threads of a block that gathers rows.
const ROW_THREADS: u32 = 128;
/// Rows that one thread sums, in order; more if there would otherwise be more than [`MOST_PARTS`] parts.
const ROWS_OF_PART: usize = 64;
/// Blocks of a grid along its second axis, at most.
const MOST_PARTS: usize = 65_535;

/// Returns the type of an activation, f32 or bf16; for any other type an error that names the tensor `name`.
pub(super) fn expect_type(tensor: &Tensor, name: &str) -> Result<DType> {
    match tensor.dtype() {
        found @ (DType::F32 | DType::BF16) => Ok(found),
        other => Err(Error::dtype(format!("`{name}` is {}, f32 or bf16 is needed", other.as_str()))),
    }
}

/// Returns the type of the first activation, f32 or bf16, which all must have. Errors name the tensor that does not
/// fit.
pub(super) fn expect_one_type<const N: usize>(tensors: [(&Tensor, &str); N]) -> Result<DType> {
    let first = expect_type(tensors[0].0, tensors[0].1)?;
    let other = tensors.iter().find(|(tensor, _)| tensor.dtype() != first);
    other.map_or(Ok(first), |(tensor, name)| {
        let (found, wanted) = (tensor.dtype().as_str(), first.as_str());
        Err(Error::dtype(format!("`{name}` is {found}, `{}` is {wanted}; both need one type", tensors[0].1)))
    })
}

/// Returns a grid of blocks of [`THREADS`] threads for a kernel whose blocks loop over rows: at most one block a row.
pub(super) fn over_rows(device: &Accelerator, rows: usize) -> Grid {
    device.over_rows(rows, THREADS)
}

/// Computes sums over rows in two steps, in a fixed order, and returns them as `[columns]` f32. Cuts the rows into
/// parts of [`ROWS_OF_PART`], or of more so that there are at most [`MOST_PARTS`] parts; there is at least one. `fill`
/// launches the kernel that sums the rows of each part; it gets the tensor to write, `[parts, columns]` f32, the number
/// of rows of a part, and a grid with one block per part along its second axis. A second kernel adds the sums of the
/// parts in order.
pub(super) fn parts(
    device: &Accelerator,
    rows: usize,
    columns: usize,
    fill: impl FnOnce(&Tensor, Argument<'static>, Grid) -> Result<()>,
) -> Result<Tensor> {
    let of_part = ROWS_OF_PART.max(rows.div_ceil(MOST_PARTS));
    let number = rows.div_ceil(of_part).max(1);
    let (across, down) = (extent(columns.div_ceil(THREADS as usize))?, extent(number)?);
    // Checked because a thread counts in 32 bits to the end of its part, which may lie past the last row.
    extent(number * of_part)?;
    let (sums, result) = (device.empty(&[number, columns], DType::F32)?, device.empty(&[columns], DType::F32)?);
    fill(&sums, of_part.into(), Grid::square(across, down, THREADS))?;
    let arguments = arguments![&result, &sums, number, columns, 0f32, 1f32];
    device.launch(&kernel::ADD_PARTS, DType::F32, Grid::of(across, THREADS), &arguments)?;
    Ok(result)
}

/// Returns a weight as a matrix of type `act`: borrowed if it has that type, else a converted or unpacked copy.
pub(super) fn matrix<'a>(device: &Accelerator, weight: WeightRef<'a>, act: DType) -> Result<Cow<'a, Tensor>> {
    match weight {
        WeightRef::Tensor(tensor) if tensor.dtype() == act => Ok(Cow::Borrowed(tensor)),
        WeightRef::Tensor(tensor) => Ok(Cow::Owned(device.cast(tensor, act)?)),
        WeightRef::Packed(packed) => Ok(Cow::Owned(unpack_on_device(device, packed, Rows::All, 1.0, act)?)),
    }
}

/// Gathers rows of a matrix by index: row i of the result, `[count, columns]`, is `scale` times row `ids[i]`, in type
/// `dtype`. `ids` is `[count]` u32 on the device, and the host has checked that every id is a row. Returns
/// [`Error::Dtype`] for a tensor that is not f32, bf16 or f16; packed weights may have any quantized format.
pub(super) fn rows(
    device: &Accelerator,
    weight: WeightRef<'_>,
    ids: &Tensor,
    scale: f32,
    dtype: DType,
) -> Result<Tensor> {
    let table = match weight {
        WeightRef::Packed(packed) => return unpack_on_device(device, packed, Rows::Numbered(ids), scale, dtype),
        WeightRef::Tensor(tensor) => tensor,
    };
    let (known, width) = host::matrix_dims(table, "weight")?;
    let kernel = match table.dtype() {
        DType::F32 => &kernel::EMBED_F32,
        DType::BF16 => &kernel::EMBED_BF16,
        DType::F16 => &kernel::EMBED_F16,
        other => return Err(Error::dtype(format!("`weight` is {}; f32, bf16 or f16 is needed", other.as_str()))),
    };
    let number = ids.elem_count();
    let arguments = arguments![table, ids, number, width, known, scale, Argument::FaultWord];
    device.compute(kernel, dtype, device.over_rows(number, ROW_THREADS), &[number, width], &arguments)
}
