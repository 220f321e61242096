//! The gradients of the head on a device: slopes on the way forward, or the logits once more.

use candle_core::{DType, Tensor};

use super::sums::{Sums, wanted};
use super::{Head, Tile};
use crate::accelerator::{Accelerator, Argument, Grid, Side, kernel};
use crate::error::Result;
use crate::fused::device::{count, expect_dtype, extent, rows};
use crate::fused::head::{HeadTaps, Inputs, TapGradients};
use crate::fused::host;
use crate::fused::taps::Tap;

/// The taps, and the gradient of each row's log-probability by its hidden state, `[rows, width]` f32.
pub(in crate::fused::head) fn taps_and_slopes(device: &Accelerator, inputs: Inputs<'_>) -> Result<(HeadTaps, Tensor)> {
    let head = Head::of(device, inputs)?;
    let sums = Sums::new(&head)?;
    let slopes = device.empty(&[head.rows, head.width], DType::F32)?;
    head.walk(true, |tile| {
        let pulls = slopes.narrow(0, tile.block.start, tile.block.len())?;
        absorb(&head, tile, &sums, &pulls)?;
        device.multiply(&pulls, Side::plain(&tile.made), Side::plain(tile.matrix), 1.0, true)
    })?;
    if head.rows > 0 {
        let own = rows(device, head.weight, &head.targets, 1.0, head.act)?;
        let (target, sum) = sums.target_and_sum();
        let arguments: [Argument<'_>; 8] = [
            (&slopes).into(),
            (&own).into(),
            target.into(),
            sum.into(),
            count(head.rows)?,
            count(head.width)?,
            head.options.height().into(),
            head.options.steepness().into(),
        ];
        let grid = Grid::of(extent(head.rows)?, super::THREADS);
        device.launch(&kernel::HEAD_SLOPES, head.act, grid, &arguments)?;
    }
    Ok((sums.taps(&head)?, slopes))
}

/// Takes a tile into the sums, leaves the weights of its words, and brings what was pulled so far to their measure.
fn absorb(head: &Head<'_>, tile: &Tile<'_>, sums: &Sums, pulls: &Tensor) -> Result<()> {
    let [largest, target, sum, square, weighted, plain] = &sums.of(&tile.block)?;
    let targets = head.targets.narrow(0, tile.block.start, tile.block.len())?;
    let arguments: [Argument<'_>; 22] = [
        (&tile.made).into(),
        (&tile.products).into(),
        (&targets).into(),
        pulls.into(),
        largest.into(),
        target.into(),
        sum.into(),
        square.into(),
        weighted.into(),
        plain.into(),
        count(tile.block.len())?,
        count(tile.words.len())?,
        count(tile.words.len())?,
        count(tile.words.start)?,
        count(head.words)?,
        count(head.width)?,
        head.options.factor().into(),
        head.options.height().into(),
        wanted(head.options.taps).into(),
        u32::from(tile.words.start == 0).into(),
        Argument::FaultWord,
        count(0)?,
    ];
    head.device.launch(&kernel::HEAD_ABSORB, head.act, tile.grid()?, &arguments)
}

/// Each row of `slopes` times its seed.
pub(in crate::fused::head) fn scaled(
    device: &Accelerator,
    slopes: &Tensor,
    seeds: &[f32],
    dtype: DType,
) -> Result<Tensor> {
    expect_dtype(slopes, "slopes", DType::F32)?;
    let (rows, width) = host::matrix(slopes, "slopes")?;
    let (result, seeds) = (device.empty(&[rows, width], dtype)?, device.upload(seeds, &[rows])?);
    let arguments = [(&result).into(), slopes.into(), (&seeds).into(), count(rows)?, count(width)?];
    device.launch(&kernel::SCALE_ROWS, dtype, device.over_rows(rows, 256), &arguments)?;
    Ok(result)
}

/// The gradients by the hidden states and, if wanted, by the head; seeds and taps are checked by who calls.
pub(in crate::fused::head) fn taps_backward(
    device: &Accelerator,
    inputs: Inputs<'_>,
    taps: &HeadTaps,
    seeds: TapGradients<'_>,
    want_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let head = Head::of(device, inputs)?;
    let given = Given::of(&head, taps, seeds)?;
    let dhidden = sum_of(&head, [head.rows, head.width])?;
    let dweight = want_weight.then(|| sum_of(&head, [head.words, head.width])).transpose()?;
    head.walk(true, |tile| {
        gradient(&head, tile, &given)?;
        let here = dhidden.narrow(0, tile.block.start, tile.block.len())?;
        device.multiply(&here, Side::plain(&tile.made), Side::plain(tile.matrix), 1.0, tile.words.start > 0)?;
        let Some(dweight) = &dweight else { return Ok(()) };
        let here = dweight.narrow(0, tile.words.start, tile.words.len())?;
        device.multiply(&here, Side::transposed(&tile.made), Side::plain(&tile.hidden), 1.0, tile.block.start > 0)
    })?;
    Ok((device.cast(&dhidden, head.act)?, dweight))
}

/// Room for a sum in f32 that the first product writes; zeros where there is none to come.
fn sum_of(head: &Head<'_>, shape: [usize; 2]) -> Result<Tensor> {
    if head.rows == 0 { head.device.zeros(&shape, DType::F32) } else { head.device.empty(&shape, DType::F32) }
}

/// What the gradient of a row's logits needs besides them, uploaded together.
struct Given {
    all: Tensor,
    /// Where each begins: log Σ exp, the entropy, the seeds of the log-probability, the entropy and the mean.
    starts: [Option<usize>; 5],
}

impl Given {
    fn of(head: &Head<'_>, taps: &HeadTaps, seeds: TapGradients<'_>) -> Result<Self> {
        let entropy = taps.values.get(Tap::Entropy).filter(|_| seeds.get(Tap::Entropy).is_some());
        let [logprob, by_entropy, mean] =
            [Tap::Logprob, Tap::Entropy, Tap::MeanLogprob].map(|tap| seeds.get(tap).copied());
        let parts = [Some(taps.log_sum_exp.as_slice()), entropy.map(Vec::as_slice), logprob, by_entropy, mean];
        let mut numbers = Vec::with_capacity(parts.len() * head.rows);
        let starts = parts.map(|part| {
            let start = numbers.len();
            numbers.extend_from_slice(part?);
            Some(start)
        });
        Ok(Self { all: head.device.upload(&numbers, &[numbers.len()])?, starts })
    }

    /// Those of a block of rows.
    fn of_block(&self, tile: &Tile<'_>) -> Result<[Option<Tensor>; 5]> {
        let mut found = [const { None }; 5];
        for (found, start) in found.iter_mut().zip(self.starts) {
            if let Some(start) = start {
                *found = Some(self.all.narrow(0, start + tile.block.start, tile.block.len())?);
            }
        }
        Ok(found)
    }
}

/// Makes of the products the gradients by them.
fn gradient(head: &Head<'_>, tile: &Tile<'_>, given: &Given) -> Result<()> {
    let given = given.of_block(tile)?;
    let targets = head.targets.narrow(0, tile.block.start, tile.block.len())?;
    let mut arguments: Vec<Argument<'_>> = vec![(&tile.made).into(), (&tile.products).into(), (&targets).into()];
    arguments.extend(given.iter().map(|numbers| Argument::from(numbers.as_ref())));
    arguments.extend([
        count(tile.block.len())?,
        count(tile.words.len())?,
        count(tile.words.len())?,
        count(tile.words.start)?,
        count(head.words)?,
        head.options.factor().into(),
        head.options.height().into(),
        head.options.steepness().into(),
    ]);
    head.device.launch(&kernel::HEAD_GRADIENT, head.act, tile.grid()?, &arguments)
}
