//! The mask made where the numbers are, out of the key of its stream.

use candle_core::Tensor;

use crate::accelerator::{Accelerator, Grid, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::expect_type;

const THREADS: u32 = 256;
/// Numbers of one block: each thread has a block of the stream.
const NUMBERS: usize = 16 * THREADS as usize;

/// Applies dropout on a device, with a mask drawn from the stream that has this key: a share `rate` of the values
/// becomes 0, the others are multiplied by `widened`.
pub(super) fn apply(device: &Accelerator, values: &Tensor, key: [u32; 8], rate: f32, widened: f32) -> Result<Tensor> {
    let act = expect_type(values, "values")?;
    let (key, numbers) = (device.upload(&key, &[8])?, values.elem_count());
    let grid = Grid::of(extent(numbers.div_ceil(NUMBERS))?, THREADS);
    let arguments = arguments![values, &key, 0u64, numbers as u64, rate, widened];
    device.compute(&kernel::DROPOUT, act, grid, values.dims(), &arguments)
}
