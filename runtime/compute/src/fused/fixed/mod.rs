//! Products of quantized weights with a few tokens in whole numbers, for writing.
//!
//! The codes of a format are small whole numbers, so the tokens become whole numbers too: 16 bits for each, in steps of
//! 2⁻¹⁵ of the largest of 32 that share a scale. Sums of products inside such a part are exact; parts are added in f32
//! in their order. So nothing is widened, a token has the same bits alone and in a batch, and a dot product is off by
//! about 2·10⁻⁵ of its terms' root mean square, a hundredth of what rounding the tokens to bf16 costs.
//!
//! Needs dot products of bytes (AVX-512 VNNI). Elsewhere there is no [`Fixed`], and the numbers are widened.

#[cfg(target_arch = "x86_64")]
mod codes;
#[cfg(target_arch = "x86_64")]
mod numbers;
#[cfg(target_arch = "x86_64")]
mod reading;
#[cfg(target_arch = "x86_64")]
mod scaled;
#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tile;
#[cfg(target_arch = "x86_64")]
mod vnni;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use elsewhere::Fixed;
#[cfg(target_arch = "x86_64")]
pub(super) use here::Fixed;

#[cfg(target_arch = "x86_64")]
mod here {
    use std::marker::PhantomData;
    use std::ops::Range;

    use super::codes::{Layout, Q4One, Q4Zero, Q5One, Q5Zero, Q8Zero};
    use super::numbers::{Numbers, TOKENS};
    use super::reading::ROWS;
    use super::scaled::{Q4K, Q5K, Q6K};
    use super::tile::Sixteen;
    use super::vnni::Vnni;
    use crate::fused::host::View;
    use crate::fused::product::{Tile, steps};
    use crate::weight::Format;

    /// The formats whose codes are read here.
    const HERE: &[Format] = &[
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
    ];

    /// A quantized weight, and the tokens that it meets as whole numbers.
    pub(in crate::fused) struct Fixed<'a> {
        simd: Vnni,
        format: Format,
        /// The blocks of all rows, and the bytes of one.
        blocks: &'a [u8],
        row: usize,
        numbers: Vec<Numbers>,
    }

    impl<'a> Fixed<'a> {
        /// Nothing where the weight is not quantized or the processor lacks the instructions. `x` holds whole tokens.
        pub(in crate::fused) fn of(weight: &'a View<'a>, x: &[f32]) -> Option<Self> {
            let simd = Vnni::try_new()?;
            let (format, blocks) = weight.blocks(0..weight.rows).filter(|(format, _)| HERE.contains(format))?;
            let depth = weight.columns;
            let numbers = x.chunks(TOKENS * depth).map(|x| Numbers::of(x, depth)).collect();
            Some(Self { simd, format, blocks, row: blocks.len() / weight.rows.max(1), numbers })
        }

        /// Writes the dot products of some rows of the weight, the tile's columns, with every token.
        pub(in crate::fused) fn write(&self, rows: Range<usize>, tile: &mut Tile<'_>) {
            match self.format {
                Format::Q4_0 => self.rows::<Q4Zero, 18, 1>(rows, tile),
                Format::Q4_1 => self.rows::<Q4One, 20, 1>(rows, tile),
                Format::Q5_0 => self.rows::<Q5Zero, 22, 1>(rows, tile),
                Format::Q5_1 => self.rows::<Q5One, 24, 1>(rows, tile),
                Format::Q8_0 => self.rows::<Q8Zero, 34, 1>(rows, tile),
                Format::Q4_K => self.rows::<Q4K, 144, 2>(rows, tile),
                Format::Q5_K => self.rows::<Q5K, 176, 2>(rows, tile),
                Format::Q6_K => self.rows::<Q6K, 210, 4>(rows, tile),
                // `of` lets nothing else in.
                _ => {}
            }
        }

        fn rows<L: Layout<SIZE, PER>, const SIZE: usize, const PER: usize>(
            &self,
            rows: Range<usize>,
            tile: &mut Tile<'_>,
        ) {
            let (blocks, in_row) = (self.blocks.as_chunks::<SIZE>().0, self.row / SIZE);
            let mut found = [[0.0; ROWS]; TOKENS];
            for some in steps(rows.clone(), ROWS) {
                let row = |lane: usize| &blocks[(some.start + lane).min(some.end - 1) * in_row..][..in_row];
                let sixteen = std::array::from_fn(row);
                let next = (some.start + ROWS) * self.row..(some.end + ROWS) * self.row;
                let mut next = self.blocks.get(next).unwrap_or(&[]);
                let mut first = 0;
                for numbers in &self.numbers {
                    let (simd, layout) = (self.simd, PhantomData::<L>);
                    simd.vectorize(Sixteen { simd, rows: sixteen, next, numbers, found: &mut found, layout });
                    for (token, found) in (first..first + numbers.tokens).zip(&found) {
                        let to = &mut tile.row(token)[some.start - rows.start..some.end - rows.start];
                        to.copy_from_slice(&found[..some.len()]);
                    }
                    (first, next) = (first + numbers.tokens, &[]);
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use std::ops::Range;

    use crate::fused::host::View;
    use crate::fused::product::Tile;

    /// There is none.
    pub(in crate::fused) enum Fixed {}

    impl Fixed {
        pub(in crate::fused) fn of(_: &View<'_>, _: &[f32]) -> Option<Self> {
            None
        }

        pub(in crate::fused) fn write(&self, _: Range<usize>, _: &mut Tile<'_>) {
            match *self {}
        }
    }
}
