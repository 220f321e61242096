//! The gradients of the output head on a device: that of log-probabilities in the forward pass, or a backward pass for
//! all taps, which computes the logits again.

use candle_core::{DType, Tensor};

use super::sums::Sums;
use super::{Head, Tile};
use crate::accelerator::{Accelerator, Argument, Grid, MatrixView, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::rows;
use crate::fused::head::{HeadTaps, Inputs, TapGradients};
use crate::fused::host;
use crate::fused::taps::Tap;

/// Computes the taps, copied to the host, and the gradient of each row's log-probability with respect to its hidden
/// state, `[rows, width]` f32 on the device. Waits for the device. Ignores the deadline. The caller has checked the
/// shapes.
pub(in crate::fused::head) fn taps_and_logprob_gradients(
    device: &Accelerator,
    inputs: Inputs<'_>,
) -> Result<(HeadTaps, Tensor)> {
    let head = Head::of(device, inputs)?;
    let sums = Sums::new(&head)?;
    let logprob_gradients = device.empty(&[head.rows, head.width], DType::F32)?;
    head.for_each_tile(true, |tile| {
        let weighted_sums = logprob_gradients.narrow(0, tile.block.start, tile.block.len())?;
        head.accumulate(tile, &sums, Some(&weighted_sums))?;
        device.multiply(&weighted_sums, MatrixView::plain(&tile.made), MatrixView::plain(tile.matrix), 1.0, true)
    })?;
    if head.rows > 0 {
        let own = rows(device, head.weight, &head.targets, 1.0, head.act)?;
        let (target, sum) = sums.target_and_sum();
        let (height, slope) = (head.options.height(), head.options.logit_slope());
        let arguments = arguments![&logprob_gradients, &own, target, sum, head.rows, head.width, height, slope];
        let grid = Grid::of(extent(head.rows)?, super::THREADS);
        device.launch(&kernel::HEAD_LOGPROB_GRADIENTS, head.act, grid, &arguments)?;
    }
    Ok((sums.taps(&head)?, logprob_gradients))
}

/// Uploads the seeds and queues multiplying row i of `logprob_gradients`, `[rows, width]` f32, by `seeds[i]`. The
/// result, a new tensor, has type `dtype`.
pub(in crate::fused::head) fn scaled(
    device: &Accelerator,
    logprob_gradients: &Tensor,
    seeds: &[f32],
    dtype: DType,
) -> Result<Tensor> {
    let (rows, width) = host::matrix_dims(logprob_gradients, "logprob_gradients")?;
    let seeds = device.upload(seeds, &[rows])?;
    let arguments = arguments![logprob_gradients, &seeds, rows, width];
    device.compute(&kernel::SCALE_ROWS, dtype, device.over_rows(rows, 256), &[rows, width], &arguments)
}

/// Computes the gradient of a loss with respect to the hidden states, `[rows, hidden]` in their type, and, if
/// `want_weight`, with respect to the head's weight, `[vocabulary, hidden]` f32. `seeds` are the gradients of the loss
/// with respect to the taps, `taps` is the result of the forward pass. The caller has checked that both have as many
/// rows as the hidden states.
pub(in crate::fused::head) fn taps_backward(
    device: &Accelerator,
    inputs: Inputs<'_>,
    taps: &HeadTaps,
    seeds: TapGradients<'_>,
    want_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let head = Head::of(device, inputs)?;
    let given = RowInputs::of(&head, taps, seeds)?;
    let dhidden = allocate_sum(&head, [head.rows, head.width])?;
    let dweight = want_weight.then(|| allocate_sum(&head, [head.words, head.width])).transpose()?;
    head.for_each_tile(true, |tile| {
        launch_gradient(&head, tile, &given)?;
        let here = dhidden.narrow(0, tile.block.start, tile.block.len())?;
        let (made, more) = (MatrixView::plain(&tile.made), tile.words.start > 0);
        device.multiply(&here, made, MatrixView::plain(tile.matrix), 1.0, more)?;
        let Some(dweight) = &dweight else { return Ok(()) };
        let here = dweight.narrow(0, tile.words.start, tile.words.len())?;
        let (made, more) = (MatrixView::transposed(&tile.made), tile.block.start > 0);
        device.multiply(&here, made, MatrixView::plain(&tile.hidden), 1.0, more)
    })?;
    Ok((device.cast(&dhidden, head.act)?, dweight))
}

/// Allocates an f32 tensor for a sum. Its content is unspecified, since the first product overwrites it; it is zeros if
/// there are no rows and hence no product.
fn allocate_sum(head: &Head<'_>, shape: [usize; 2]) -> Result<Tensor> {
    if head.rows == 0 { head.device.zeros(&shape, DType::F32) } else { head.device.empty(&shape, DType::F32) }
}

/// The numbers of each row, besides its logits, that the gradient kernel needs, uploaded together.
struct RowInputs {
    all: Tensor,
    /// Where each list begins in `all`, `None` if it is absent: log Σ exp, the entropy, then the seeds of the
    /// log-probability, of the entropy and of the mean log-probability.
    starts: [Option<usize>; 5],
}

impl RowInputs {
    /// Uploads the log Σ exp, the entropy if it has a seed, and the seeds of the taps, all in one copy.
    fn of(head: &Head<'_>, taps: &HeadTaps, seeds: TapGradients<'_>) -> Result<Self> {
        let entropy = taps.values.get(Tap::Entropy).filter(|_| seeds.get(Tap::Entropy).is_some());
        let [logprob, by_entropy, mean] =
            [Tap::Logprob, Tap::Entropy, Tap::MeanLogprob].map(|tap| seeds.get(tap).copied());
        let parts = [Some(taps.logsumexp.as_slice()), entropy.map(Vec::as_slice), logprob, by_entropy, mean];
        let mut numbers = Vec::with_capacity(parts.len() * head.rows);
        let starts = parts.map(|part| {
            let start = numbers.len();
            numbers.extend_from_slice(part?);
            Some(start)
        });
        Ok(Self { all: head.device.upload(&numbers, &[numbers.len()])?, starts })
    }

    /// Returns the numbers for the rows of a tile's block, in the order of `starts`; `None` for an input that is
    /// absent.
    fn of_block(&self, tile: &Tile<'_>) -> Result<[Option<Tensor>; 5]> {
        let mut found = [const { None }; 5];
        for (found, start) in found.iter_mut().zip(self.starts) {
            let cut = |start: usize| self.all.narrow(0, start + tile.block.start, tile.block.len());
            *found = start.map(cut).transpose()?;
        }
        Ok(found)
    }
}

/// Queues the kernel that writes the gradients of the loss with respect to a tile's products, `[block, words]`, to
/// `tile.made`. Inputs of `row_inputs` that are absent count as 0.
fn launch_gradient(head: &Head<'_>, tile: &Tile<'_>, row_inputs: &RowInputs) -> Result<()> {
    let given = row_inputs.of_block(tile)?;
    let targets = head.targets.narrow(0, tile.block.start, tile.block.len())?;
    let mut arguments = arguments![&tile.made, &tile.products, &targets].to_vec();
    arguments.extend(given.iter().map(|numbers| Argument::from(numbers.as_ref())));
    arguments.extend(tile.sizes(head));
    arguments.extend(arguments![head.options.factor(), head.options.height(), head.options.logit_slope()]);
    head.device.launch(&kernel::HEAD_GRADIENT, head.act, tile.grid()?, &arguments)
}
