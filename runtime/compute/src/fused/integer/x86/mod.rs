//! The integer products of x86-64: a vector has a lane for each of sixteen rows of a weight.

mod avx2;
mod avx512;
mod codes;
mod lanes;
mod numbers;
mod reading;
mod scaled;
#[cfg(test)]
mod tests;
mod tile;

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::ops::Range;

use avx2::Avx2;
use avx512::Vnni;
use codes::Layout;
use lanes::{Lanes, ROWS};
use numbers::{Numbers, TOKENS};
use tile::RowPanel;

use crate::fused::product::{Tile, steps};
use crate::fused::stored::View;
use crate::fused::unpack::formats::{Nibbles, Q6K, Q8Zero, ScaledNibbles};
use crate::weight::Format;

/// Writes the dot products of some rows of the weight with every token into a tile.
type Write<'a> = Box<dyn Fn(Range<usize>, &mut Tile<'_>) + Sync + 'a>;

/// Tokens rounded to integers; empty until the first quantized weight is multiplied with them.
#[derive(Default)]
pub(in crate::fused) struct IntegerTokens(OnceCell<Vec<Numbers>>);

/// A quantized weight, and the tokens as integers that it is multiplied with.
pub(in crate::fused) struct IntegerProduct<'a>(Write<'a>);

impl<'a> IntegerProduct<'a> {
    /// Prepares the product of a weight with tokens. `x` holds whole tokens, `[tokens, columns]`. Rounds them to
    /// integers and keeps these in `whole`; if `whole` has integers already, uses these and ignores `x`. Returns
    /// `None`, and rounds nothing, for a weight in f32, f16, bf16 or NF4, or if the processor lacks the instructions.
    pub(in crate::fused) fn of(weight: &'a View<'a>, x: &[f32], whole: &'a IntegerTokens) -> Option<Self> {
        match Vnni::try_new() {
            Some(lanes) => Self::with(lanes, weight, x, whole),
            None => Self::with(Avx2::try_new()?, weight, x, whole),
        }
    }

    /// Prepares the product as [`of`](Self::of) does, for a kind of processor.
    fn with<L: Lanes + 'a>(lanes: L, weight: &'a View<'a>, x: &[f32], whole: &'a IntegerTokens) -> Option<Self> {
        let (format, blocks) = weight.blocks(0..weight.rows)?;
        let row = blocks.len() / weight.rows.max(1);
        let depth = weight.columns;
        let round = || x.chunks(TOKENS * depth).map(|x| Numbers::of::<L>(x, depth)).collect();
        let operands = || Operands { lanes, blocks, row, numbers: whole.0.get_or_init(round) };
        Some(match format {
            Format::Q4_0 => operands().product::<Nibbles<false, false>, 18, 1>(),
            Format::Q4_1 => operands().product::<Nibbles<true, false>, 20, 1>(),
            Format::Q5_0 => operands().product::<Nibbles<false, true>, 22, 1>(),
            Format::Q5_1 => operands().product::<Nibbles<true, true>, 24, 1>(),
            Format::Q8_0 => operands().product::<Q8Zero, 34, 1>(),
            Format::Q4_K => operands().product::<ScaledNibbles<false>, 144, 2>(),
            Format::Q5_K => operands().product::<ScaledNibbles<true>, 176, 2>(),
            Format::Q6_K => operands().product::<Q6K, 210, 4>(),
            _ => return None,
        })
    }

    /// Writes the dot products of the weight's rows `rows` with every token to a tile, with a row for each token and a
    /// column for each row of the weight.
    pub(in crate::fused) fn write(&self, rows: Range<usize>, tile: &mut Tile<'_>) {
        (self.0)(rows, tile);
    }
}

/// What a product multiplies, and with which vectors.
struct Operands<'a, L> {
    lanes: L,
    /// The blocks of all rows.
    blocks: &'a [u8],
    /// The bytes of one row.
    row: usize,
    /// The tokens as integers, [`TOKENS`] at a time.
    numbers: &'a [Numbers],
}

impl<'a, L: Lanes + 'a> Operands<'a, L> {
    /// Makes the product of a weight in layout `F`.
    fn product<F: Layout<SIZE, PER>, const SIZE: usize, const PER: usize>(self) -> IntegerProduct<'a> {
        IntegerProduct(Box::new(move |rows, tile| self.write_rows::<F, SIZE, PER>(rows, tile)))
    }

    /// Writes a tile as [`IntegerProduct::write`] does, for 16 rows of the weight in layout `F` at a time; column 0 of
    /// the tile is the row `rows.start`. If fewer rows remain, repeats the last one and drops its surplus results.
    fn write_rows<F: Layout<SIZE, PER>, const SIZE: usize, const PER: usize>(
        &self,
        rows: Range<usize>,
        tile: &mut Tile<'_>,
    ) {
        let (blocks, in_row) = (self.blocks.as_chunks::<SIZE>().0, self.row / SIZE);
        let mut found = [[0.0; ROWS]; TOKENS];
        for some in steps(rows.clone(), ROWS) {
            let row = |lane: usize| &blocks[(some.start + lane).min(some.end - 1) * in_row..][..in_row];
            let sixteen = std::array::from_fn(row);
            let mut bytes = &self.blocks[some.start * self.row..];
            let mut first = 0;
            for numbers in self.numbers {
                let (lanes, layout) = (self.lanes, PhantomData::<F>);
                lanes.vectorize(RowPanel { lanes, rows: sixteen, bytes, numbers, found: &mut found, layout });
                for (token, found) in (first..first + numbers.tokens).zip(&found) {
                    let to = &mut tile.row(token)[some.start - rows.start..some.end - rows.start];
                    to.copy_from_slice(&found[..some.len()]);
                }
                (first, bytes) = (first + numbers.tokens, &[]);
            }
        }
    }
}
