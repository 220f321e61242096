//! The linear layer `y = x·Wᵀ + b` and its three gradients.
//!
//! A result is cut into fixed tiles, one task each; frozen weights that are stored in another type than the
//! activations are converted inside a task, block by block. What adapters add to a layer is in `low_rank.rs`.

use std::ops::Range;

use candle_core::{DType, Device, Tensor};
use half::bf16;
use rayon::prelude::*;

use super::backend::{accelerator_of, accelerator_with};
use super::device::{expect_type, matrix, over_rows, parts};
use super::host::{self, Floats, Locked};
use super::product::{Data, Matrix, Tile};
use super::simd::vectorize;
use super::stored::{Stored, View, sides};
use super::{residual, scratch};
use crate::accelerator::{Accelerator, MatrixView, arguments, kernel};
use crate::error::{Error, Result};
use crate::weight::WeightRef;

/// Features of one tile.
pub(super) const FEATURES: usize = 256;
/// A weight gradient with fewer columns than this is computed transposed if `dy` is bf16 and wider.
const THIN: usize = 128;

/// Computes the linear layer `y = x·Wᵀ + b`: `x` is `[tokens, in]` f32 or bf16, `weight` is `[out, in]` in any stored
/// format, `bias` is `[out]` f32; the result is `[tokens, out]` in the type of `x`. The weight is converted to the type
/// of `x`; sums are in f32. Returns an error if shapes or devices do not fit each other.
pub fn linear<'w>(x: &Tensor, weight: impl Into<WeightRef<'w>>, bias: Option<&Tensor>) -> Result<Tensor> {
    let weight = weight.into();
    let Some(device) = accelerator_with([(x, "x")], weight)? else {
        return linear_tiles(x.dtype(), x, weight, bias, |_, _, _| {});
    };
    let act = expect_type(x, "x")?;
    let ((_, inputs), [outputs, columns]) = (host::matrix_dims(x, "x")?, sides(weight, "weight")?);
    expect_inner_dim(inputs, columns, [outputs, columns])?;
    bias.map_or(Ok(()), |bias| host::expect_shape(bias, "bias", &[outputs]))?;
    let weight = matrix(&device, weight, act)?;
    let y = product(&device, MatrixView::plain(x), MatrixView::transposed(&weight), act, 1.0)?;
    bias.map_or(Ok(()), |bias| add_bias(&device, &y, bias))?;
    Ok(y)
}

/// Computes the gradient of [`linear`] with respect to its input, `dx = dy·W`: `dy` is `[tokens, out]`, `weight` is
/// `[out, in]` in any stored format, the result `[tokens, in]` in the type of `dy`. Returns an error if shapes or
/// devices do not fit each other.
pub fn linear_input_gradient<'w>(dy: &Tensor, weight: impl Into<WeightRef<'w>>) -> Result<Tensor> {
    add_linear_input_gradient(None, dy, weight)
}

/// Computes `dy·W` as [`linear_input_gradient`] does, `[tokens, in]` in f32 whatever the type of `dy`.
pub(super) fn linear_input_gradient_f32(dy: &Tensor, weight: WeightRef<'_>) -> Result<Tensor> {
    let Some(device) = accelerator_with([(dy, "dy")], weight)? else {
        return transposed_linear_tiles(DType::F32, dy, weight, |_, _, _| {});
    };
    let weight = matrix(&device, weight, expect_type(dy, "dy")?)?;
    product(&device, MatrixView::plain(dy), MatrixView::plain(&weight), DType::F32, 1.0)
}

/// Computes `total + dy·W`, `[tokens, in]` in the type of `dy`, or `dy·W` without `total`: the sum over linear layers
/// that read the same input. A device overwrites `total`: no other tensor may share its memory. Returns an error if
/// shapes or devices do not fit each other.
pub fn add_linear_input_gradient<'w>(
    total: Option<Tensor>,
    dy: &Tensor,
    weight: impl Into<WeightRef<'w>>,
) -> Result<Tensor> {
    let weight = weight.into();
    let Some(device) = accelerator_with([(dy, "dy")], weight)? else {
        return add_to(total, transposed_linear_tiles(dy.dtype(), dy, weight, |_, _, _| {})?);
    };
    let act = expect_type(dy, "dy")?;
    let ((_, outputs), [rows, inputs]) = (host::matrix_dims(dy, "dy")?, sides(weight, "weight")?);
    expect_inner_dim(outputs, rows, [rows, inputs])?;
    let weight = matrix(&device, weight, act)?;
    add_product(&device, total, MatrixView::plain(dy), MatrixView::plain(&weight), act)
}

/// Returns `total + addend` as a new tensor, or `addend` itself without `total`. Fails if shapes or devices differ.
pub(super) fn add_to(total: Option<Tensor>, addend: Tensor) -> Result<Tensor> {
    match total {
        Some(total) => residual::add(&total, &addend),
        None => Ok(addend),
    }
}

/// Queues `y ← y + x·Wᵀ` on a device and returns `y`, `[tokens, out]` in the type of `x`. Fails if shapes or devices do
/// not fit each other.
pub(super) fn add_linear(device: &Accelerator, y: Tensor, x: &Tensor, weight: WeightRef<'_>) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    let weight = matrix(device, weight, act)?;
    add_product(device, Some(y), MatrixView::plain(x), MatrixView::transposed(&weight), act)
}

/// Queues adding `left·right` to `total` on a device, in place, and returns `total`; without `total`, returns the
/// product as a new tensor of type `dtype`.
fn add_product(
    device: &Accelerator,
    total: Option<Tensor>,
    left: MatrixView<'_>,
    right: MatrixView<'_>,
    dtype: DType,
) -> Result<Tensor> {
    let Some(total) = total else { return product(device, left, right, dtype, 1.0) };
    device.multiply(&total, left, right, 1.0, true)?;
    Ok(total)
}

/// Computes the gradient of a linear layer with respect to its weight, `factor · dyᵀ·x`: `dy` is `[tokens, out]`, `x`
/// is `[tokens, in]`, the result `[out, in]` f32, zeros if there are no tokens. Returns an error if the numbers of
/// tokens or the devices differ.
pub fn linear_weight_gradient(factor: f32, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let ((tokens, _), (_, inputs)) = (host::matrix_dims(dy, "dy")?, host::matrix_dims(x, "x")?);
    host::expect_shape(x, "x", &[tokens, inputs])?;
    match accelerator_of([(dy, "dy"), (x, "x")])? {
        None => transposed_product(factor, (dy, "dy"), (x, "x")),
        Some(device) => {
            expect_type(dy, "dy")?;
            product(&device, MatrixView::transposed(dy), MatrixView::plain(x), DType::F32, factor)
        }
    }
}

/// Computes the gradient of [`linear`] with respect to its bias: sums `dy`, `[tokens, out]`, over the tokens, in f32
/// and in a fixed order (on the CPU that of the tokens). The result is `[out]` f32, zeros if there are no tokens.
/// Returns an error unless `dy` is a matrix in f32 or bf16.
pub fn bias_gradient(dy: &Tensor) -> Result<Tensor> {
    let (tokens, outputs) = host::matrix_dims(dy, "dy")?;
    if let Some(device) = accelerator_of([(dy, "dy")])? {
        return parts(&device, tokens, outputs, |sums, of_part, grid| {
            let arguments = arguments![sums, dy, tokens, outputs, of_part];
            device.launch(&kernel::SUM_ROWS_IN_PARTS, expect_type(dy, "dy")?, grid, &arguments)
        });
    }
    let dy = &*Floats::activations(dy, "dy")?;
    let mut result = vec![0.0; outputs];
    vectorize!(dy.chunks_exact(outputs.max(1)).for_each(|row| add_assign(&mut result, row)));
    host::tensor(result, &[outputs])
}

/// Queues adding `bias`, `[columns]` f32, to every row of `y`, `[rows, columns]`, in place, on a device. The caller has
/// checked the length of the bias.
pub(super) fn add_bias(device: &Accelerator, y: &Tensor, bias: &Tensor) -> Result<()> {
    let (rows, columns) = host::matrix_dims(y, "y")?;
    let arguments = arguments![y, bias, rows, columns, columns as u64];
    device.launch(&kernel::ADD_BIAS, y.dtype(), over_rows(device, rows), &arguments)
}

/// Queues computing `factor · left·right` on a device and returns the result, a new tensor of shape `[rows of left,
/// columns of right]` and type `dtype`. It is zeros if the inner dimension is 0.
pub(super) fn product(
    device: &Accelerator,
    left: MatrixView<'_>,
    right: MatrixView<'_>,
    dtype: DType,
    factor: f32,
) -> Result<Tensor> {
    let ((rows, depth), (_, columns)) = (left.dims()?, right.dims()?);
    if depth == 0 {
        return device.zeros(&[rows, columns], dtype);
    }
    let result = device.empty(&[rows, columns], dtype)?;
    device.multiply(&result, left, right, factor, false)?;
    Ok(result)
}

/// Computes `x·Wᵀ + b` on the CPU, `[tokens, out]` in type `dtype`. Calls `on_tile` with the range of tokens and the
/// range of output features of each finished tile and with the tile, in f32, which `on_tile` may change, while the tile
/// is in the processor's cache. A token's result does not depend on the tokens beside it. Fails if shapes or types do
/// not fit.
pub(super) fn linear_tiles(
    dtype: DType,
    x: &Tensor,
    weight: WeightRef<'_>,
    bias: Option<&Tensor>,
    on_tile: impl Fn(Range<usize>, Range<usize>, &mut Tile<'_>) + Sync,
) -> Result<Tensor> {
    let (tokens, inputs) = host::matrix_dims(x, "x")?;
    let (locked, stored) = (Locked::of(x, "x")?, Stored::of(weight, "weight")?);
    let (x, weight) = (locked.data("x")?, stored.view());
    expect_inner_dim(inputs, weight.columns, [weight.rows, weight.columns])?;
    let bias = Bias::of(bias, weight.rows)?;
    tensor_of_tiles(dtype, [tokens, weight.rows], tile_sides(x, weight), |rows, columns, tile| {
        let x = x.part(rows.start * inputs..rows.end * inputs);
        for piece in weight.pieces(0..inputs, x) {
            let left = Matrix::new(x.skip(piece.start), tile.rows(), piece.len(), inputs);
            weight.with_block(columns.clone(), piece.clone(), x, |block| {
                tile.multiply_batch_invariant(piece.start > 0, 1.0, left, block.transposed());
            });
        }
        bias.add(columns.clone(), tile);
        on_tile(rows, columns, tile);
    })
}

/// Computes `dy·W` on the CPU, `[tokens, in]` in type `dtype`. Calls `on_tile` with the range of tokens and the range
/// of input features of each finished tile and with the tile, in f32, which `on_tile` may change.
pub(super) fn transposed_linear_tiles(
    dtype: DType,
    dy: &Tensor,
    weight: WeightRef<'_>,
    on_tile: impl Fn(Range<usize>, Range<usize>, &mut Tile<'_>) + Sync,
) -> Result<Tensor> {
    let (tokens, outputs) = host::matrix_dims(dy, "dy")?;
    let (locked, stored) = (Locked::of(dy, "dy")?, Stored::of(weight, "weight")?);
    let (dy, weight) = (locked.data("dy")?, stored.view());
    expect_inner_dim(outputs, weight.rows, [weight.rows, weight.columns])?;
    tensor_of_tiles(dtype, [tokens, weight.columns], tile_sides(dy, weight), |rows, columns, tile| {
        for piece in weight.pieces(0..outputs, dy) {
            let left = Matrix::new(dy.skip(rows.start * outputs + piece.start), rows.len(), piece.len(), outputs);
            weight.with_block(piece.clone(), columns.clone(), dy, |block| {
                tile.multiply(piece.start > 0, 1.0, left, block);
            });
        }
        on_tile(rows, columns, tile);
    })
}

/// The tokens and features of one tile of a product of the activations `x` with `weight`. A product in bf16 packs the
/// weight of each tile, so its tiles have many tokens. The features are whole blocks of a quantized weight.
fn tile_sides(x: Data<'_>, weight: View<'_>) -> [usize; 2] {
    match x {
        Data::Bf16(_) if weight.block() <= 64 => [1024, 64],
        _ => [512, FEATURES],
    }
}

/// Makes a matrix of `shape` in type `dtype` on the CPU, from tiles of at most `tile` (rows, columns), one task each.
/// Calls `fill` with the range of rows and the range of columns of each tile and with the tile, zeros in f32, which
/// `fill` overwrites. A tile of a bf16 matrix is rounded afterwards, while it is in the processor's cache.
///
/// # Errors
/// [`Error::Dtype`] unless `dtype` is f32 or bf16.
pub(super) fn tensor_of_tiles(
    dtype: DType,
    shape: [usize; 2],
    tile: [usize; 2],
    fill: impl Fn(Range<usize>, Range<usize>, &mut Tile<'_>) + Sync,
) -> Result<Tensor> {
    let [rows, columns] = shape;
    if ![DType::F32, DType::BF16].contains(&dtype) {
        return Err(host::no_activations(dtype));
    }
    if dtype == DType::F32 {
        let mut result = host::zeros(rows * columns);
        par_tiles(Tile::from_slice(&mut result, rows, columns), tile)
            .for_each(|(rows, columns, mut tile)| fill(rows, columns, &mut tile));
        return host::tensor(result, &shape);
    }
    let mut result: Vec<bf16> = host::zeros(rows * columns);
    par_tiles(Tile::from_slice(&mut result, rows, columns), tile).for_each(|(rows, columns, mut rounded)| {
        scratch::with(rows.len() * columns.len(), |numbers| {
            numbers.fill(0.0);
            let mut tile = Tile::from_slice(numbers, rows.len(), columns.len());
            fill(rows.clone(), columns, &mut tile);
            for row in 0..rows.len() {
                host::round_all(tile.row(row), rounded.row(row));
            }
        });
    });
    Ok(Tensor::from_vec(result, &shape, &Device::Cpu)?)
}

/// Computes `factor · leftᵀ·right` on the CPU, `[outputs, inputs]` f32: `left` is `[tokens, outputs]`, `right` is
/// `[tokens, inputs]`, both f32 or bf16 without gaps, each paired with its name for error messages. Every weight
/// gradient has this form. The result is zeros if there are no tokens. The caller has checked that both have the same
/// number of tokens. Fails for another type, gaps, or a tensor of an accelerator.
fn transposed_product(factor: f32, left: (&Tensor, &str), right: (&Tensor, &str)) -> Result<Tensor> {
    let ((tokens, outputs), (_, inputs)) = (host::matrix_dims(left.0, left.1)?, host::matrix_dims(right.0, right.1)?);
    // A transposed bf16 operand, whose rows lie apart in memory, is slow to read, so the narrower operand is
    // transposed.
    if left.0.dtype() == DType::BF16 && inputs < THIN && inputs < outputs {
        return Ok(transposed_product(factor, right, left)?.t()?.contiguous()?);
    }
    let locked = (Locked::of(left.0, left.1)?, Locked::of(right.0, right.1)?);
    let (left, right) = (locked.0.data(left.1)?, locked.1.data(right.1)?);
    let mut result = host::zeros(outputs * inputs);
    let whole = Tile::from_slice(&mut result, outputs, inputs);
    par_tiles(whole, [FEATURES, FEATURES]).filter(|_| tokens > 0).for_each(|(rows, columns, mut tile)| {
        let left = Matrix::new(left.skip(rows.start), tokens, rows.len(), outputs).transposed();
        let right = Matrix::new(right.skip(columns.start), tokens, columns.len(), inputs);
        tile.multiply(false, factor, left, right);
    });
    host::tensor(result, &[outputs, inputs])
}

/// The bias of a linear layer, `[outputs]` f32, if it has one.
pub(super) struct Bias<'a>(Option<Floats<'a>>);

impl<'a> Bias<'a> {
    /// Borrows the bias, if any. Returns an error unless it is `[outputs]` f32 on the CPU.
    pub(super) fn of(bias: Option<&'a Tensor>, outputs: usize) -> Result<Self> {
        bias.map_or(Ok(()), |bias| host::expect_shape(bias, "bias", &[outputs]))?;
        Ok(Self(bias.map(|bias| Floats::of(bias, "bias")).transpose()?))
    }

    /// Adds the bias of the outputs `columns`, which are the tile's columns, to every row of the tile. Does nothing
    /// without a bias.
    pub(super) fn add(&self, columns: Range<usize>, tile: &mut Tile<'_>) {
        if let Some(bias) = &self.0 {
            let bias = &bias[columns];
            vectorize!((0..tile.rows()).for_each(|row| add_assign(tile.row(row), bias)));
        }
    }
}

/// Cuts a result into tiles of at most these rows and columns, and returns them as a parallel iterator in which each
/// tile is a task of its own. A tile comes with the range of rows and the range of columns that it covers.
pub(super) fn par_tiles<T: Send>(
    result: Tile<'_, T>,
    [rows, columns]: [usize; 2],
) -> impl IndexedParallelIterator<Item = (Range<usize>, Range<usize>, Tile<'_, T>)> {
    result.grid(rows, columns).into_par_iter().with_max_len(1)
}

/// Returns [`Error::Shape`] unless `given`, the size of the input's last dimension, equals `wanted`, the size of the
/// weight's dimension that is summed over. `weight` is the weight's shape, for the message.
pub(super) fn expect_inner_dim(given: usize, wanted: usize, weight: [usize; 2]) -> Result<()> {
    if given == wanted {
        return Ok(());
    }
    Err(Error::shape(format!("{given} numbers a token do not fit a weight of shape {weight:?}")))
}

/// Adds `from` to `to`, number by number, up to the end of the shorter slice.
#[inline(always)]
pub(super) fn add_assign(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

#[cfg(test)]
mod tests;
