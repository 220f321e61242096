//! The output head on a device: the vocabulary in tiles of entries (words), each multiplied with blocks of rows.
//!
//! The weight's rows of a tile are converted to the type of activations once, whatever format they are stored in. A
//! product writes the logits of a tile and a block of rows, a kernel adds them to the running sums of the rows, and the
//! next product overwrites them. The taps of all rows are copied to the host together.

mod gradients;
mod sums;

use std::ops::Range;

use candle_core::{DType, Tensor};

use super::{HeadOptions, HeadTaps, Inputs};
use crate::accelerator::{Accelerator, Argument, Grid, MatrixView, arguments, extent, kernel};
use crate::error::Result;
use crate::fused::device::expect_type;
use crate::fused::host;
use crate::fused::product::steps;
use crate::fused::unpack::{Rows, unpack_on_device};
use crate::weight::WeightRef;
pub(super) use gradients::{scaled, taps_and_logprob_gradients, taps_backward};
use sums::Sums;

/// Vocabulary entries of a tile. With [`ROWS`] it takes 32 MiB in f32, and both products of a tile are large. Twice as
/// many are no faster on an H200.
const WORDS: usize = 8192;
/// Rows of hidden states that are multiplied with a tile at once.
const ROWS: usize = 1024;
/// The most rows and the most vocabulary entries whose logits are in memory at once.
pub const TILE: (usize, usize) = (ROWS, WORDS);
/// Vocabulary entries of one vector load: tiles are multiples of it where possible, since their products are faster.
const EIGHT: usize = 8;
/// Threads of the block that handles a row.
const THREADS: u32 = 512;

/// Computes the taps of all rows on a device and copies them to the host. Waits for the device, unless there are no
/// rows. Ignores the deadline. The caller has checked the shapes.
pub(super) fn taps(device: &Accelerator, inputs: Inputs<'_>) -> Result<HeadTaps> {
    let head = Head::of(device, inputs)?;
    let sums = Sums::new(&head)?;
    head.for_each_tile(false, |tile| head.accumulate(tile, &sums, None))?;
    sums.taps(&head)
}

/// Queues computing whole logits on a device, `[rows, vocabulary]` f32, after scale, soft cap and temperature. A weight
/// of another type than `hidden` is converted in tiles of [`WORDS`] rows.
pub(super) fn logits(
    device: &Accelerator,
    hidden: &Tensor,
    weight: WeightRef<'_>,
    options: &HeadOptions,
) -> Result<Tensor> {
    let act = expect_type(hidden, "hidden")?;
    let (rows, _) = host::matrix_dims(hidden, "hidden")?;
    let words = weight.sides().first().copied().unwrap_or(0);
    let logits = device.empty(&[rows, words], DType::F32)?;
    let at_once = matches!(weight, WeightRef::Tensor(tensor) if tensor.dtype() == act);
    for tile in steps(0..words, if at_once { words } else { WORDS }) {
        let (into, matrix) = (logits.narrow(1, tile.start, tile.len())?, weight_rows(device, weight, tile, act)?);
        device.multiply(&into, MatrixView::plain(hidden), MatrixView::transposed(&matrix), 1.0, false)?;
    }
    if options.factor() == 1.0 && options.soft_cap.is_none() {
        return Ok(logits);
    }
    let (bend, pitch) = ([options.factor(), options.height()], Argument::Size(words));
    let arguments = arguments![&logits, rows, pitch, pitch, bend[0], bend[1]];
    device.launch(&kernel::HEAD_SOFT_CAP, act, Grid::of(extent(rows)?, THREADS), &arguments)?;
    Ok(logits)
}

/// Returns consecutive rows of a weight in type `act`: a view if the weight has that type, else a converted or unpacked
/// copy.
fn weight_rows(device: &Accelerator, weight: WeightRef<'_>, rows: Range<usize>, act: DType) -> Result<Tensor> {
    match weight {
        WeightRef::Tensor(tensor) => device.cast(&tensor.narrow(0, rows.start, rows.len())?, act),
        WeightRef::Packed(packed) => unpack_on_device(device, packed, Rows::Between(rows), 1.0, act),
    }
}

/// The operands of one operation of the head.
struct Head<'a> {
    device: &'a Accelerator,
    hidden: &'a Tensor,
    weight: WeightRef<'a>,
    options: &'a HeadOptions,
    /// `[rows]` u32.
    targets: Tensor,
    act: DType,
    rows: usize,
    /// The hidden size.
    width: usize,
    /// The vocabulary.
    words: usize,
}

/// A tile of vocabulary entries, a block of rows, and their products.
struct Tile<'a> {
    words: Range<usize>,
    block: Range<usize>,
    /// `[words, width]` in the type of activations.
    matrix: &'a Tensor,
    /// `[block, width]`.
    hidden: Tensor,
    /// `[block, words]` f32.
    products: Tensor,
    /// `[block, words]` in the type of activations, computed from the products by a kernel, for a second product:
    /// gradients with respect to the products, or factors of the weight's rows. Shares the buffer of `products` if
    /// activations are f32 or no kernel writes it.
    made: Tensor,
}

impl Tile<'_> {
    /// Returns the size arguments of the head's kernels: rows of the block, words of the tile, the row stride in words,
    /// the tile's first word, and the words of the vocabulary.
    fn sizes(&self, head: &Head<'_>) -> [Argument<'static>; 5] {
        let words = self.words.len();
        [self.block.len(), words, words, self.words.start, head.words].map(Argument::Size)
    }

    /// Returns a grid with one block of [`THREADS`] threads for each row.
    fn grid(&self) -> Result<Grid> {
        Ok(Grid::of(extent(self.block.len())?, THREADS))
    }
}

impl<'a> Head<'a> {
    /// Collects the operands of an operation and uploads the targets. Returns an error if the hidden states are not f32
    /// or bf16. The caller has checked the shapes.
    fn of(device: &'a Accelerator, inputs: Inputs<'a>) -> Result<Self> {
        let Inputs { hidden, weight, targets, options } = inputs;
        let act = expect_type(hidden, "hidden")?;
        let (rows, width) = host::matrix_dims(hidden, "hidden")?;
        let words = weight.sides().first().copied().unwrap_or(0);
        let targets = device.upload(targets, &[rows])?;
        Ok(Self { device, hidden, weight, options, targets, act, rows, width, words })
    }

    /// Splits the vocabulary, in order, into ranges of at most [`WORDS`] words. The length of each range is a multiple
    /// of [`EIGHT`]; the words that remain, fewer than [`EIGHT`], are a range of their own.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let whole = self.words / EIGHT * EIGHT;
        steps(0..whole, WORDS).chain(steps(whole..self.words, EIGHT))
    }

    /// Queues the kernel that adds a tile's logits to the running sums of its rows; for the first tile of the
    /// vocabulary, the kernel initializes the sums instead. `logprob_gradients`, if wanted, are the running gradients
    /// of these rows' log-probabilities, `[block, width]`: the kernel then also writes to `tile.made` the factors with
    /// which the caller has to add the tile's rows of the weight to `logprob_gradients`, and rescales
    /// `logprob_gradients` to the largest logit so far.
    fn accumulate(&self, tile: &Tile<'_>, sums: &Sums, logprob_gradients: Option<&Tensor>) -> Result<()> {
        let kernel = if logprob_gradients.is_some() { &kernel::HEAD_ACCUMULATE } else { &kernel::HEAD_STATISTICS };
        let targets = self.targets.narrow(0, tile.block.start, tile.block.len())?;
        let of_block = sums.of(&tile.block)?;
        let mut arguments: Vec<Argument<'_>> = logprob_gradients.iter().map(|_| Argument::from(&tile.made)).collect();
        arguments.extend(arguments![&tile.products, &targets]);
        arguments.extend(logprob_gradients.map(Argument::from));
        arguments.extend(of_block.iter().map(Argument::from));
        arguments.extend(tile.sizes(self));
        arguments.extend(logprob_gradients.map(|_| Argument::Size(self.width)));
        let (wanted, first) = (sums::wanted(self.options.taps), u32::from(tile.words.start == 0));
        let (factor, height) = (self.options.factor(), self.options.height());
        arguments.extend(arguments![factor, height, wanted, first, Argument::FaultWord]);
        self.device.launch(kernel, self.act, tile.grid()?, &arguments)
    }

    /// Multiplies every tile of words with every block of rows and calls `work` with each result: for the first tile
    /// all blocks in order, then for the second, and so on. All tiles share one buffer, so `work` must not keep the
    /// products. `fills_made` says whether `work` fills `tile.made`, which then has a buffer of its own unless
    /// activations are f32. Stops at the first error. Does nothing if there are no rows.
    fn for_each_tile(&self, fills_made: bool, mut work: impl FnMut(&Tile<'_>) -> Result<()>) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let numbers = self.rows.min(ROWS) * self.words.clamp(EIGHT, WORDS);
        let products = self.device.empty(&[numbers], DType::F32)?;
        let apart = fills_made && self.act != DType::F32;
        let made = if apart { self.device.empty(&[numbers], self.act)? } else { products.clone() };
        for words in self.tiles() {
            let matrix = weight_rows(self.device, self.weight, words.clone(), self.act)?;
            for block in steps(0..self.rows, ROWS) {
                let cut = |all: &Tensor| -> Result<Tensor> {
                    let shape = (block.len(), words.len());
                    Ok(all.narrow(0, 0, shape.0 * shape.1)?.reshape(shape)?)
                };
                let tile = Tile {
                    hidden: self.hidden.narrow(0, block.start, block.len())?,
                    products: cut(&products)?,
                    made: cut(&made)?,
                    matrix: &matrix,
                    words: words.clone(),
                    block: block.clone(),
                };
                let (left, right) = (MatrixView::plain(&tile.hidden), MatrixView::transposed(tile.matrix));
                self.device.multiply(&tile.products, left, right, 1.0, false)?;
                work(&tile)?;
            }
        }
        Ok(())
    }
}
