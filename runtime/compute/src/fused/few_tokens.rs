//! The linear layer for a few tokens, as decoding needs it: reading the weights is most of the work.
//!
//! Quantized weights are multiplied in integers where the processor can ([`integer`](super::integer)). Else a row of
//! weights is widened once, and its dot product with every token computed. The numbers of a dot product are summed in
//! one order whatever the batch, so either way a token has the same bits alone and in a batch. From some dozens of
//! tokens on, the products of `linear.rs` are faster; their sums have another order.

use std::ops::Range;

use candle_core::{DType, Tensor};

use super::backend::accelerator_with;
use super::dot_tile::{DotTile, ROWS, TOKENS};
use super::host::{self, Floats};
use super::integer::{IntegerProduct, IntegerTokens};
use super::linear::{Bias, expect_inner_dim, linear, tensor_of_tiles};
use super::low_rank::{LowRank, adapted_linear};
use super::prefetch::nth_chunk;
use super::product::{Tile, steps};
use super::scratch;
use super::simd::dispatch;
use super::stored::{Stored, View};
use super::unpack::dot_blocks;
use crate::error::Result;
use crate::weight::WeightRef;

/// Features of one task.
const FEATURES: usize = 16 * ROWS;
/// A product of fewer multiplications is one task: starting another thread would cost more.
const SMALL: usize = 1 << 17;

/// The input of one or several linear layers: a few tokens, `[tokens, in]`. For quantized weights they are rounded to
/// integers at the first layer that needs it, and these are reused by the others.
pub struct LinearInput<'x> {
    x: &'x Tensor,
    /// The tokens rounded to integers; empty until a quantized weight is multiplied with them.
    whole: IntegerTokens,
}

impl<'x> LinearInput<'x> {
    /// Wraps tokens, `[tokens, in]`, for one or several layers. Computes nothing yet.
    #[must_use]
    pub fn of(x: &'x Tensor) -> Self {
        Self { x, whole: IntegerTokens::default() }
    }

    /// Computes `x·Wᵀ + b`, plus `s·(x·Aᵀ)·Bᵀ` with an adapter (`low`): `[tokens, out]` in the type of the tokens.
    /// `weight` is `[out, in]` in any stored format, `bias` is `[out]` f32. On a CPU with AVX2 or AVX-512 VNNI, a quantized
    /// weight other than NF4 is multiplied with the tokens rounded to 16-bit integers; the first such call rounds them
    /// for all later ones.
    ///
    /// # Errors
    /// If the shapes do not fit each other, the operands are on different devices, or a weight that is a tensor is not
    /// f32, bf16 or f16.
    pub fn linear<'w>(
        &self,
        weight: impl Into<WeightRef<'w>>,
        bias: Option<&Tensor>,
        low: Option<&LowRank>,
    ) -> Result<Tensor> {
        let weight = weight.into();
        match (accelerator_with([(self.x, "x")], weight)?, low) {
            (None, low) => few_tokens_tiles(self, weight, bias, low, self.x.dtype(), |_| {}),
            // A device has one way for many tokens and for few.
            (Some(_), Some(low)) => Ok(adapted_linear(self.x, weight, bias, low, None)?.0),
            (Some(_), None) => linear(self.x, weight, bias),
        }
    }
}

/// Computes one linear layer without an adapter, `x·Wᵀ + b`, over a few tokens: `x` is `[tokens, in]`, `weight` is
/// `[out, in]` in any stored format, `bias` is `[out]` f32; the result is `[tokens, out]` in the type of `x`. Calls
/// [`LinearInput::linear`], whose errors it returns.
pub fn linear_few_tokens<'w>(x: &Tensor, weight: impl Into<WeightRef<'w>>, bias: Option<&Tensor>) -> Result<Tensor> {
    LinearInput::of(x).linear(weight, bias, None)
}

/// Computes a linear layer on the CPU with its bias and adapter (`low`), if any: `[tokens, out]` in type `dtype`. Calls
/// `on_tile` with each finished tile of the result (all tokens of some features, in f32), which `on_tile` may change,
/// while the tile is in the processor's cache. A small layer is one tile and one task. Fails as [`LinearInput::linear`]
/// does, and for a `dtype` other than f32 and bf16.
pub(super) fn few_tokens_tiles(
    input: &LinearInput<'_>,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
    low: Option<&LowRank>,
    dtype: DType,
    on_tile: impl Fn(&mut Tile<'_>) + Sync,
) -> Result<Tensor> {
    let (tokens, inputs) = host::matrix_dims(input.x, "x")?;
    let stored = Stored::of(weight, "weight")?;
    let weight = stored.view();
    expect_inner_dim(inputs, weight.columns, [weight.rows, weight.columns])?;
    let bias = Bias::of(bias, weight.rows)?;
    let adapter = low.map(|low| Adapter::of(input.x, low, weight.rows)).transpose()?;
    let x = &*Floats::activations(input.x, "x")?;
    let features = if tokens * weight.rows * inputs < SMALL { weight.rows.max(1) } else { FEATURES };
    let finish = |columns: Range<usize>, tile: &mut Tile<'_>| {
        if let Some(adapter) = &adapter {
            adapter.add(columns.start, tile);
        }
        bias.add(columns, tile);
        on_tile(tile);
    };
    let (shape, size) = ([tokens, weight.rows], [tokens.max(1), features]);
    match IntegerProduct::of(&weight, x, &input.whole) {
        Some(fixed) => tensor_of_tiles(dtype, shape, size, |_, columns, tile| {
            fixed.write(columns.clone(), tile);
            finish(columns, tile);
        }),
        // Copies the tokens to an aligned buffer, since they are read once for each row of the weight.
        None => scratch::with(x.len(), |aligned| {
            aligned.copy_from_slice(x);
            let aligned = &*aligned;
            tensor_of_tiles(dtype, shape, size, |_, columns, tile| {
                for_each_dot(weight, aligned, columns.start, tile, |to, dot| *to = dot);
                finish(columns, tile);
            })
        }),
    }
}

/// The operands of `s·(x·Aᵀ)·Bᵀ`, which a low-rank adapter adds to a layer, on the CPU.
struct Adapter<'a> {
    /// x·Aᵀ, `[tokens, rank]`.
    down: Vec<f32>,
    /// B, `[out, rank]`.
    up: Stored<'a>,
    scale: f32,
}

impl<'a> Adapter<'a> {
    /// Computes `x·Aᵀ` and borrows B. Returns an error if A does not fit `x` or B is not `[outputs, rank]`.
    fn of(x: &Tensor, low: &'a LowRank, outputs: usize) -> Result<Self> {
        let down = linear_few_tokens(x, &low.a, None)?;
        let (_, rank) = host::matrix_dims(&down, "xa")?;
        host::expect_shape(&low.b, "b", &[outputs, rank])?;
        let down = Floats::activations(&down, "xa")?.to_vec();
        Ok(Self { down, up: Stored::of(&low.b, "b")?, scale: low.scale })
    }

    /// Adds `s·(x·Aᵀ)·Bᵀ` to a tile whose first column is output feature `first`.
    fn add(&self, first: usize, tile: &mut Tile<'_>) {
        for_each_dot(self.up.view(), &self.down, first, tile, |to, dot| *to += self.scale * dot);
    }
}

/// Computes the dot products of every token with the weight's rows from `first` on, one row for each column of the
/// tile. `x` is `[tokens, in]`; the tile has a row for each token. Calls `put` with each number of the tile, which
/// `put` may change, and the dot product of the number's token and weight row.
fn for_each_dot(weight: View<'_>, x: &[f32], first: usize, tile: &mut Tile<'_>, put: impl Fn(&mut f32, f32)) {
    let (depth, tokens, features) = (weight.columns, tile.rows(), tile.columns());
    if let (1, Some((format, rows))) = (tokens, weight.blocks(first..first + features)) {
        return scratch::with(features, |found| {
            dot_blocks(format, rows, &x[..depth], found);
            tile.row(0).iter_mut().zip(found).for_each(|(to, dot)| put(to, *dot));
        });
    }
    let mut found = [[0.0; ROWS]; TOKENS];
    for columns in steps(0..features, ROWS) {
        let here = first + columns.start..first + columns.end;
        // Prefetched while the present rows are multiplied.
        let next = weight.bytes(here.end..here.end + ROWS);
        weight.with_numbers(here, |rows| {
            for (part, at) in steps(0..tokens, TOKENS).enumerate() {
                let next = nth_chunk(next, part, tokens.div_ceil(TOKENS));
                let x = &x[at.start * depth..at.end * depth];
                dispatch(DotTile { rows, tokens: x, depth, count: (columns.len(), at.len()), next, found: &mut found });
                for (token, found) in at.zip(&found) {
                    let to = &mut tile.row(token)[columns.clone()];
                    to.iter_mut().zip(found).for_each(|(to, dot)| put(to, *dot));
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::reference::{bits, normal};
    use crate::random::Stream;

    fn random(name: &str, rows: usize, columns: usize) -> Tensor {
        normal(name, &[rows, columns])
    }

    #[test]
    fn a_token_has_the_same_bits_alone_and_in_a_batch() {
        for (outputs, inputs) in [(70, 33), (5, 64), (200, 100), (3, 7)] {
            let (x, weight) = (random("x", 11, inputs), random("w", outputs, inputs));
            let low = LowRank { a: random("a", 4, inputs), b: random("b", outputs, 4), scale: 0.5 };
            let whole = LinearInput::of(&x).linear(&weight, None, Some(&low)).unwrap();
            for (start, count) in [(0, 1), (3, 2), (4, 4), (5, 3), (1, 9)] {
                let few = x.narrow(0, start, count).unwrap();
                let part = LinearInput::of(&few).linear(&weight, None, Some(&low)).unwrap();
                let wanted = whole.narrow(0, start, count).unwrap();
                assert_eq!(bits(&part), bits(&wanted), "{outputs} × {inputs}, tokens from {start}, {count}");
            }
        }
    }

    #[test]
    fn a_token_alone_has_those_bits_in_every_stored_format_too() {
        use crate::weight::{Format, Packed, Weight};
        for format in [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::Q4_K, Format::Q5_K]
            .into_iter()
            .chain([Format::Q6_K, Format::BF16, Format::F16, Format::F32])
        {
            let (rows, columns) = (11, 512);
            let mut stream = Stream::new(9, "bytes");
            // The upper bits of every pair of bytes stay clear, so that no scale is large or no number.
            let bytes: Vec<u8> =
                (0..format.bytes(rows, columns).unwrap()).map(|_| stream.next_u64() as u8 & 0x3b).collect();
            let weight = Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into());
            let x = random("x", 3, columns);
            let whole = linear_few_tokens(&x, &weight, None).unwrap();
            let alone = linear_few_tokens(&x.narrow(0, 1, 1).unwrap(), &weight, None).unwrap();
            assert_eq!(bits(&alone), bits(&whole.narrow(0, 1, 1).unwrap()), "{format:?}");
            // The way of processors without products in integers, too.
            let (view, mut found) = (Stored::of(&weight, "weight").unwrap(), [vec![0.0; 3 * rows], vec![0.0; rows]]);
            let numbers = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            for (tokens, found) in [3, 1].into_iter().zip(&mut found) {
                let mut tile = Tile::from_slice(found, tokens, rows);
                for_each_dot(view.view(), &numbers[..tokens * columns], 0, &mut tile, |to, dot| *to = dot);
            }
            let exact = bits(&linear_few_tokens(&x, &weight.to_tensor().unwrap(), None).unwrap());
            let [whole, alone] = found.map(|found| found.iter().map(|number| number.to_bits()).collect::<Vec<u32>>());
            assert_eq!((&whole, &alone[..]), (&exact, &exact[..rows]), "{format:?}");
        }
    }

    #[test]
    fn layers_that_read_the_same_tokens_have_the_bits_of_each_alone() {
        use crate::weight::{Format, Packed, Weight};
        let x = random("x", 35, 256);
        let quantized = |format: Format, rows: usize| {
            let bytes = vec![0x2b; format.bytes(rows, 256).unwrap()];
            Weight::Packed(Packed::new(bytes.into(), format, rows, 256).unwrap().into())
        };
        let plain = Weight::from(random("w", 7, 256));
        let weights = [plain, quantized(Format::Q6_K, 9), quantized(Format::Q8_0, 17), quantized(Format::Q4_0, 5)];
        let few = LinearInput::of(&x);
        for weight in &weights {
            let shared = few.linear(weight, None, None).unwrap();
            let sides = WeightRef::from(weight).sides();
            assert_eq!(bits(&shared), bits(&linear_few_tokens(&x, weight, None).unwrap()), "{sides:?}");
        }
    }

    #[test]
    fn it_says_what_the_ordinary_layer_says() {
        let (x, weight, bias) = (random("x", 6, 90), random("w", 130, 90), random("bias", 1, 130));
        let bias = bias.flatten_all().unwrap();
        let low = LowRank { a: random("a", 3, 90), b: random("b", 130, 3), scale: 0.25 };
        for dtype in [candle_core::DType::F32, candle_core::DType::BF16, candle_core::DType::F16] {
            let weight = weight.to_dtype(dtype).unwrap();
            let found = LinearInput::of(&x).linear(&weight, Some(&bias), Some(&low)).unwrap();
            let (wanted, _) = crate::fused::adapted_linear(&x, &weight, Some(&bias), &low, None).unwrap();
            let worst = (found - wanted).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(worst < 5e-5, "{dtype:?}: {worst}");
        }
    }

    #[test]
    fn shapes_that_do_not_meet_are_refused() {
        let (x, weight) = (random("x", 2, 8), random("w", 4, 9));
        assert!(linear_few_tokens(&x, &weight, None).is_err());
        let low = LowRank { a: random("a", 3, 8), b: random("b", 4, 2), scale: 1.0 };
        assert!(LinearInput::of(&x).linear(&random("w", 4, 8), None, Some(&low)).is_err());
    }
}
