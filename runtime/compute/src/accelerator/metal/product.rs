//! Matrix products, by kernels of our own.
//!
//! The tensor library's product overwrites its result, in the type of its sides. Ours adds to what is there, writes f32
//! from sides of 16 bits, and takes rows with gaps; `kernels/metal/product.metal` has all of that in one pass.

use super::Metal;
use super::launch::launch;
use crate::accelerator::argument::{Argument, Grid, arguments, extent};
use crate::accelerator::kernel::Module;
use crate::accelerator::view::MatrixView;
use crate::error::Result;

/// Rows and columns of a group's tile.
const TILE: usize = 64;
/// Up to so many rows, a SIMD group makes a column.
const FEW: usize = 8;
/// SIMD groups of a group that makes columns.
const COLUMNS: usize = 8;

/// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` if `add`. `[rows, columns, depth]`
/// are the shape of the result and the terms of each sum. `Accelerator::multiply` has checked shapes and types. Uses a
/// kernel of its own for at most 8 rows.
///
/// # Errors
/// When a side is too long or a matrix is elsewhere, or a kernel does not compile.
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
    let grid = if few {
        Grid::of(extent(columns.div_ceil(COLUMNS))?, 256)
    } else {
        Grid::square(extent(columns.div_ceil(TILE))?, extent(rows.div_ceil(TILE))?, 128)
    };
    // The strides refuse matrices whose rows have gaps.
    let [to, first, second] = [into.row_stride()?, left.row_stride()?, right.row_stride()?];
    let strides = [to, first, second].map(|stride| Argument::Long(stride as u64));
    let mut arguments = arguments![into.matrix, left.matrix, right.matrix, rows, columns, depth].to_vec();
    arguments.extend(strides);
    if !few {
        arguments.extend([left, right].map(|view| Argument::Count(view.transposed.into())));
    }
    arguments.extend(arguments![factor, u32::from(add)]);
    launch(metal, Module::Product, name, left.dtype().into(), grid, &arguments)
}
