//! Rows of an embedding by token id, and the gradient of the table.

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::backend::{accelerator_of, accelerator_with};
use super::device::{expect_type, rows};
use super::host::{self, Floats};
use super::indices::{Indices, check_below};
use super::linear::{FEATURES, par_tiles};
use super::product::Tile;
use super::simd::vectorize;
use super::stored::{Stored, sides};
use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Argument, Grid, arguments, extent};
use crate::error::Result;
use crate::weight::WeightRef;

/// Threads of a block of the kernel that sums rows.
const THREADS: u32 = 128;
/// The most blocks along the first axis of a grid; each loops over the distinct indices.
const BLOCKS: u32 = 65_535;
/// Tokens of one task.
const TOKENS: usize = 64;
/// The words for token ids in the message of [`check_below`]: "token 7 is past the 5 of the vocabulary".
pub(super) const TOKEN: [&str; 2] = ["token", "of the vocabulary"];

/// Looks up embeddings: row i of the result is `scale · weight[ids[i]]`. `weight` is `[vocabulary, hidden]` in any
/// stored format; the result is `[tokens, hidden]` in the type of activations, `dtype`, f32 or bf16, on the device of
/// the weight. Without ids, the result is `[0, hidden]`. Returns an error for an id past the vocabulary, and for
/// another `dtype`.
pub fn embed<'w>(ids: &Indices, weight: impl Into<WeightRef<'w>>, scale: f32, dtype: DType) -> Result<Tensor> {
    let weight = weight.into();
    check_below(ids, weight.sides().first().copied().unwrap_or(0), TOKEN)?;
    if let Some(device) = accelerator_with([], weight)? {
        let [_, width] = sides(weight, "weight")?;
        return match ids.is_empty() {
            true => device.empty(&[0, width], dtype),
            false => rows(&device, weight, &ids.on(weight.device())?, scale, dtype),
        };
    }
    let stored = Stored::of(weight, "weight")?;
    let weight = stored.view();
    let mut result = host::zeros(ids.len() * weight.columns);
    let width = weight.columns.max(1);
    result.par_chunks_mut(TOKENS * width).zip(ids.par_chunks(TOKENS)).for_each(|(rows, ids)| {
        for (row, id) in rows.chunks_exact_mut(width).zip(ids) {
            weight.copy_row(*id as usize, row);
            row.iter_mut().for_each(|number| *number *= scale);
        }
    });
    host::tensor_in(dtype, result, &[ids.len(), weight.columns])
}

/// Computes the gradient of the embedding table, `[rows, hidden]` f32, from that of the embeddings, `dy` `[tokens,
/// hidden]`: row `id` is `scale · Σ dy` over the tokens with that id, in order, and 0 if there are none. Returns an
/// error if `dy` has not one row for each id, or for an id of `rows` or more.
pub fn embed_gradient(ids: &Indices, dy: &Tensor, scale: f32, rows: usize) -> Result<Tensor> {
    let (_, hidden) = host::matrix_dims(dy, "dy")?;
    host::expect_shape(dy, "dy", &[ids.len(), hidden])?;
    check_below(ids, rows, TOKEN)?;
    if let Some(device) = accelerator_of([(dy, "dy")])? {
        return sum_rows_by_index(&device, &kernel::EMBED_GRADIENT, ids, dy, scale, (rows, DType::F32));
    }
    let dy = &*Floats::activations(dy, "dy")?;
    let mut result = host::zeros(rows * hidden);
    // A task has some columns of all rows, so that sums run in the order of the tokens.
    par_tiles(Tile::from_slice(&mut result, rows, hidden), [rows.max(1), FEATURES]).for_each(
        |(_, columns, mut tile)| {
            for (token, id) in ids.iter().enumerate() {
                let more = &dy[token * hidden..][columns.clone()];
                let row = tile.row(*id as usize);
                vectorize!(row.iter_mut().zip(more).for_each(|(sum, d)| *sum = d.mul_add(scale, *sum)));
            }
        },
    );
    host::tensor(result, &[rows, hidden])
}

/// Sums rows by index on a device: row n of the result, `[rows, width]` in type `dtype`, is `scale` times the sum of
/// the rows i of `dy` with `numbers[i] == n`, in order, and 0 if there are none. `kernel` must write sums of type
/// `dtype`. The caller has checked that `dy` has a row for each number and that every number is below `rows`.
pub(super) fn sum_rows_by_index(
    device: &Accelerator,
    kernel: &'static Kernel,
    numbers: &[u32],
    dy: &Tensor,
    scale: f32,
    (rows, dtype): (usize, DType),
) -> Result<Tensor> {
    let act = expect_type(dy, "dy")?;
    let (given, width) = host::matrix_dims(dy, "dy")?;
    let sum = device.zeros(&[rows, width], dtype)?;
    if given == 0 {
        return Ok(sum);
    }
    let runs = Runs::of(numbers)?;
    let place = |numbers: &[u32]| device.upload(numbers, &[numbers.len()]);
    let (order, starts, different) = (place(&runs.order)?, place(&runs.starts)?, place(&runs.numbers)?);
    let many = extent(runs.numbers.len())?;
    let arguments =
        arguments![&sum, dy, &order, &starts, &different, many, width, rows, given, scale, 0f32, Argument::FaultWord];
    let grid = Grid::square(many.min(BLOCKS), extent(width)?.div_ceil(THREADS), THREADS);
    device.launch(kernel, act, grid, &arguments)?;
    Ok(sum)
}

/// The positions in a list of numbers, grouped by the number at them.
struct Runs {
    /// All positions; those of one number are adjacent, in ascending order.
    order: Vec<u32>,
    /// Where the positions of each number begin in `order`, and the length of `order`.
    starts: Vec<u32>,
    /// The numbers that occur, each once.
    numbers: Vec<u32>,
}

impl Runs {
    /// Groups the positions in `numbers` by the number at them, numbers ascending. The positions of one number keep
    /// their order. Returns [`Error::Shape`](crate::error::Error::Shape) for 2³² numbers or more.
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
mod tests;
