//! Rows by number as one launch, and sums of rows by number, which the host sorts first.

use candle_core::{DType, Tensor};

use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Argument, Grid, arguments, extent};
use crate::error::Result;
use crate::fused::device::{expect_type, rows};
use crate::fused::host;
use crate::fused::indices::Indices;
use crate::fused::linear::device::sides;
use crate::weight::WeightRef;

const THREADS: u32 = 128;
/// Blocks side by side that walk over the numbers.
const BLOCKS: u32 = 65_535;

/// Looks up embeddings on a device: row i of the result is `scale · weight[ids[i]]`, in type `dtype`.
pub(super) fn embed(
    device: &Accelerator,
    ids: &Indices,
    weight: WeightRef<'_>,
    scale: f32,
    dtype: DType,
) -> Result<Tensor> {
    let [_, width] = sides(weight)?;
    if ids.is_empty() {
        return device.empty(&[0, width], dtype);
    }
    rows(device, weight, &ids.on(weight.device())?, scale, dtype)
}

/// Computes the gradient of the embedding table on a device: row `id` is `scale · Σ dy` over the tokens with that id.
pub(super) fn embed_gradient(
    device: &Accelerator,
    ids: &[u32],
    dy: &Tensor,
    scale: f32,
    rows: usize,
) -> Result<Tensor> {
    sums_by_number(device, &kernel::EMBED_GRADIENT, ids, dy, scale, (rows, DType::F32))
}

/// Sums rows by index: row n of the result, `[rows, width]` in type `dtype`, is `scale` times the sum of the rows i of
/// `dy` with `numbers[i] == n`, in order, and 0 if there are none. `kernel` is the one that sums into that type.
pub(in crate::fused) fn sums_by_number(
    device: &Accelerator,
    kernel: &'static Kernel,
    numbers: &[u32],
    dy: &Tensor,
    scale: f32,
    (rows, dtype): (usize, DType),
) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    let (given, width) = host::matrix(dy, "dy")?;
    let sum = device.zeros(&[rows, width], dtype)?;
    if given == 0 {
        return Ok(sum);
    }
    let runs = Runs::of(numbers)?;
    let place = |numbers: &[u32]| device.upload(numbers, &[numbers.len()]);
    let (order, starts, different) = (place(&runs.order)?, place(&runs.starts)?, place(&runs.numbers)?);
    let many = extent(runs.numbers.len())?;
    let arguments = arguments![
        &sum,
        dy,
        &order,
        &starts,
        &different,
        many,
        width,
        rows,
        given,
        scale,
        0f32,
        Argument::FaultWord,
        0u32
    ];
    let grid = Grid::square(many.min(BLOCKS), extent(width)?.div_ceil(THREADS), THREADS);
    device.launch(kernel, act, grid, &arguments)?;
    Ok(sum)
}

/// Places by the number that is there.
struct Runs {
    /// All places; those of one number stand together, in their order.
    order: Vec<u32>,
    /// Where in `order` each number's begin, and the end.
    starts: Vec<u32>,
    /// The numbers that occur, each once.
    numbers: Vec<u32>,
}

impl Runs {
    /// Groups the indices of `numbers` by the number there, numbers ascending. The indices of one number keep their
    /// order.
    fn of(numbers: &[u32]) -> Result<Self> {
        let end = extent(numbers.len())?;
        let mut order: Vec<u32> = (0..end).collect();
        order.sort_by_key(|place| numbers[*place as usize]);
        let (mut starts, mut different) = (Vec::new(), Vec::new());
        for (start, place) in (0u32..).zip(&order) {
            let number = numbers[*place as usize];
            if different.last() != Some(&number) {
                starts.push(start);
                different.push(number);
            }
        }
        starts.push(end);
        Ok(Self { order, starts, numbers: different })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_number_stand_together_in_their_order() {
        let runs = Runs::of(&[3, 0, 3, 10, 7, 3]).unwrap();
        assert_eq!(runs.order, [1, 0, 2, 5, 4, 3]);
        assert_eq!(runs.starts, [0, 1, 4, 5, 6]);
        assert_eq!(runs.numbers, [0, 3, 7, 10]);
    }
}
