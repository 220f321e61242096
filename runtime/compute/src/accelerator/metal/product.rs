//! Matrix products, by kernels of our own.
//!
//! The tensor library's product overwrites its result, in the type of its sides. Ours adds to what is there, writes f32
//! from sides of 16 bits, and takes rows with gaps; `kernels/metal/product.metal` has all of that in one pass.

use candle_core::{DType, Layout};

use super::Metal;
use super::launch::{Value, dispatch, tensor_buffer};
use crate::accelerator::argument::Grid;
use crate::accelerator::kernel::Module;
use crate::accelerator::view::MatrixView;
use crate::error::{Error, Result};

/// Rows and columns of a group's tile.
const TILE: usize = 64;
/// Up to so many rows, a SIMD group makes a column.
const FEW: usize = 8;
/// SIMD groups of a group that makes columns.
const COLUMNS: usize = 8;

/// `into ← factor · left · right`, or added to what is there. Shapes and types meet: `Accelerator::multiply` has looked.
///
/// # Errors
/// When a side is too long or accepts elsewhere, or a kernel does not compile.
pub(super) fn multiply(
    metal: &Metal,
    [into, left, right]: [MatrixView<'_>; 3],
    [rows, columns, depth]: [usize; 3],
    factor: f32,
    add: bool,
) -> Result<()> {
    let few = rows <= FEW && !left.transposed && right.transposed;
    let same = into.dtype() == left.dtype();
    let name = match (few, same) {
        (false, true) => "product_act",
        (false, false) => "product_f32",
        (true, true) => "product_of_few_act",
        (true, false) => "product_of_few_f32",
    };
    let function = metal.loader.function(Module::Product, name, left.dtype().into())?;
    let grid = if few {
        Grid::of(side(columns.div_ceil(COLUMNS))?, 256)
    } else {
        Grid::square(side(columns.div_ceil(TILE))?, side(rows.div_ceil(TILE))?, 128)
    };
    let mut values = vec![matrix(metal, &into)?, matrix(metal, &left)?, matrix(metal, &right)?];
    values.extend([Value::Count(side(rows)?), Value::Count(side(columns)?), Value::Count(side(depth)?)]);
    for one in [&into, &left, &right] {
        values.push(Value::Long(one.row_stride()? as u64));
    }
    if !few {
        values.extend([left, right].map(|one| Value::Count(one.transposed.into())));
    }
    values.extend([Value::Number(factor), Value::Count(add.into())]);
    dispatch(metal, name, &function, grid, &values)
}

/// Where a matrix begins; that its rows lie in one piece each, `pitch` has seen.
fn matrix(metal: &Metal, side: &MatrixView<'_>) -> Result<Value> {
    match side.dtype() {
        DType::F32 | DType::BF16 | DType::F16 => tensor_buffer(metal, side.matrix, "a product", |_: &Layout| true),
        other => Err(Error::dtype(format!("no product takes `{}`", other.as_str()))),
    }
}

/// A dimension as the kernels take it.
fn side(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::shape(format!("a side of a product is too long: {number}")))
}
