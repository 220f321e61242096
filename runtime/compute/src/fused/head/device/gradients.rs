//! The gradients of the head on a device: slopes on the way forward, or the logits once more.

use candle_core::{DType, Tensor};

use super::sums::{Sums, wanted};
use super::{Head, Tile};
use crate::accelerator::{Accelerator, Argument, Grid, MatrixView, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::{expect_dtype, rows};
use crate::fused::head::{HeadTaps, Inputs, TapGradients};
use crate::fused::host;
use crate::fused::taps::Tap;

/// The taps, and the gradient of each row's log-probability by its hidden state, `[rows, width]` f32.
pub(in crate::fused::head) fn taps_and_slopes(device: &Accelerator, inputs: Inputs<'_>) -> Result<(HeadTaps, Tensor)> {
    let head = Head::of(device, inputs)?;
    let sums = Sums::new(&head)?;
    let slopes = device.empty(&[head.rows, head.width], DType::F32)?;
    head.for_each_tile(true, |tile| {
        let weighted_sums = slopes.narrow(0, tile.block.start, tile.block.len())?;
        accumulate_tile(&head, tile, &sums, &weighted_sums)?;
        device.multiply(&weighted_sums, MatrixView::plain(&tile.made), MatrixView::plain(tile.matrix), 1.0, true)
    })?;
    if head.rows > 0 {
        let own = rows(device, head.weight, &head.targets, 1.0, head.act)?;
        let (target, sum) = sums.target_and_sum();
        let arguments = arguments![
            &slopes,
            &own,
            target,
            sum,
            head.rows,
            head.width,
            head.options.height(),
            head.options.logit_slope()
        ];
        let grid = Grid::of(extent(head.rows)?, super::THREADS);
        device.launch(&kernel::HEAD_SLOPES, head.act, grid, &arguments)?;
    }
    Ok((sums.taps(&head)?, slopes))
}

/// Takes a tile into the sums, leaves the weights of its words, and brings what was pulled so far to their measure.
fn accumulate_tile(head: &Head<'_>, tile: &Tile<'_>, sums: &Sums, weighted_sums: &Tensor) -> Result<()> {
    let [largest, target, sum, square, weighted, plain] = &sums.of(&tile.block)?;
    let targets = head.targets.narrow(0, tile.block.start, tile.block.len())?;
    let arguments = arguments![
        &tile.made,
        &tile.products,
        &targets,
        weighted_sums,
        largest,
        target,
        sum,
        square,
        weighted,
        plain,
        tile.block.len(),
        tile.words.len(),
        tile.words.len(),
        tile.words.start,
        head.words,
        head.width,
        head.options.factor(),
        head.options.height(),
        wanted(head.options.taps),
        u32::from(tile.words.start == 0),
        Argument::FaultWord,
        0u32
    ];
    head.device.launch(&kernel::HEAD_ACCUMULATE, head.act, tile.grid()?, &arguments)
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
    let arguments = arguments![&result, slopes, &seeds, rows, width];
    device.launch(&kernel::SCALE_ROWS, dtype, device.over_rows(rows, 256), &arguments)?;
    Ok(result)
}

/// Computes the gradients by the hidden states and, if wanted, by the head. The caller has checked seeds and taps.
pub(in crate::fused::head) fn taps_backward(
    device: &Accelerator,
    inputs: Inputs<'_>,
    taps: &HeadTaps,
    seeds: TapGradients<'_>,
    want_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let head = Head::of(device, inputs)?;
    let given = RowInputs::of(&head, taps, seeds)?;
    let dhidden = sum_of(&head, [head.rows, head.width])?;
    let dweight = want_weight.then(|| sum_of(&head, [head.words, head.width])).transpose()?;
    head.for_each_tile(true, |tile| {
        gradient(&head, tile, &given)?;
        let here = dhidden.narrow(0, tile.block.start, tile.block.len())?;
        device.multiply(
            &here,
            MatrixView::plain(&tile.made),
            MatrixView::plain(tile.matrix),
            1.0,
            tile.words.start > 0,
        )?;
        let Some(dweight) = &dweight else { return Ok(()) };
        let here = dweight.narrow(0, tile.words.start, tile.words.len())?;
        device.multiply(
            &here,
            MatrixView::transposed(&tile.made),
            MatrixView::plain(&tile.hidden),
            1.0,
            tile.block.start > 0,
        )
    })?;
    Ok((device.cast(&dhidden, head.act)?, dweight))
}

/// Room for a sum in f32 that the first product writes; zeros where there is none to come.
fn sum_of(head: &Head<'_>, shape: [usize; 2]) -> Result<Tensor> {
    if head.rows == 0 { head.device.zeros(&shape, DType::F32) } else { head.device.empty(&shape, DType::F32) }
}

/// What the gradient of a row's logits needs besides them, uploaded together.
struct RowInputs {
    all: Tensor,
    /// Where each begins: log Σ exp, the entropy, the seeds of the log-probability, the entropy and the mean.
    starts: [Option<usize>; 5],
}

impl RowInputs {
    /// Uploads the log Σ exp, the entropy and the gradients by the taps in one copy.
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

    /// The numbers for a block of rows; none for an input that is absent.
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

/// Replaces the products of a tile by the gradients of the loss by them.
fn gradient(head: &Head<'_>, tile: &Tile<'_>, given: &RowInputs) -> Result<()> {
    let given = given.of_block(tile)?;
    let targets = head.targets.narrow(0, tile.block.start, tile.block.len())?;
    let mut arguments: Vec<Argument<'_>> = vec![(&tile.made).into(), (&tile.products).into(), (&targets).into()];
    arguments.extend(given.iter().map(|numbers| Argument::from(numbers.as_ref())));
    arguments.extend([
        Argument::Size(tile.block.len()),
        Argument::Size(tile.words.len()),
        Argument::Size(tile.words.len()),
        Argument::Size(tile.words.start),
        Argument::Size(head.words),
        head.options.factor().into(),
        head.options.height().into(),
        head.options.logit_slope().into(),
    ]);
    head.device.launch(&kernel::HEAD_GRADIENT, head.act, tile.grid()?, &arguments)
}
