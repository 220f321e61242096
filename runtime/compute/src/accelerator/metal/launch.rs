//! Launches in the tensor library's own encoder, and matrix products by kernels of our own.
//!
//! The tensor library's product overwrites its result, in the type of its sides. Ours adds to what is there, writes f32
//! from sides of 16 bits, and takes rows with gaps; `kernels/metal/product.metal` has all of that in one pass.

use candle_core::backend::BackendStorage as _;
use candle_core::{Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder};
use objc2_metal::MTLSize;

use super::Metal;
use crate::accelerator::argument::{Argument, Build, Grid, MatrixView, arguments, extent};
use crate::accelerator::driver::elsewhere;
use crate::accelerator::kernel::Module;
use crate::error::Result;

/// What goes to the encoder.
enum Value {
    /// A buffer, and where a tensor begins in it, in bytes.
    Buffer(Buffer, usize),
    Nothing,
    Count(u32),
    Long(u64),
    Number(f32),
}

/// Converts an argument into the value that the encoder takes. Refuses a tensor of another device, and a size of 2³² or
/// more; `kernel` is named in errors.
fn value(metal: &Metal, kernel: &str, argument: &Argument<'_>) -> Result<Value> {
    Ok(match argument {
        Argument::Tensor(tensor) => {
            let (buffer, start) = buffer(metal, tensor, kernel)?;
            Value::Buffer(buffer, start)
        }
        Argument::FaultWord => Value::Buffer(metal.fault.clone(), 0),
        Argument::Nothing => Value::Nothing,
        Argument::Count(number) => Value::Count(*number),
        Argument::Size(number) => Value::Count(extent(*number)?),
        Argument::Long(number) => Value::Long(*number),
        Argument::Number(number) => Value::Number(*number),
    })
}

/// Returns the buffer of a tensor and the byte offset of its first number in it. Does not check that the other numbers
/// follow without gaps. `caller` is named in errors.
///
/// # Errors
/// When the tensor is of another device.
pub(super) fn buffer(metal: &Metal, tensor: &Tensor, caller: &str) -> Result<(Buffer, usize)> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Metal(storage) if storage.device().id() == metal.device.id() => {
            Ok((storage.buffer().clone(), layout.start_offset() * tensor.dtype().size_in_bytes()))
        }
        _ => Err(elsewhere(caller, &metal.name())),
    }
}

/// Encodes a launch of the kernel `name` of a module. The caller has checked the kinds of the arguments. Behind the
/// last argument, passes a bit mask of those arguments that are buffers and not null.
///
/// # Errors
/// When a tensor is elsewhere, the kernel does not compile, a group of it would have too many threads, or the tensor
/// library has no encoder.
pub(super) fn launch(
    metal: &Metal,
    module: Module,
    name: &'static str,
    build: Build,
    grid: Grid,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let function = metal.loader.function(module, name, build)?;
    let values: Vec<Value> = arguments.iter().map(|argument| value(metal, name, argument)).collect::<Result<_>>()?;
    let threads = grid.threads as usize;
    if threads > function.threads {
        let most = function.threads;
        return Err(metal.stopped(format!("kernel `{name}` has {most} threads a group at most, {threads} were asked")));
    }
    let guard = metal.device.command_encoder()?;
    let encoder: &ComputeCommandEncoder = guard.as_ref();
    encoder.set_compute_pipeline_state(&function.pipeline);
    let mut given = 0_u32;
    for (index, value) in values.iter().enumerate() {
        match value {
            Value::Buffer(buffer, offset) => {
                given |= 1 << index;
                if function.reads >> index & 1 == 1 {
                    encoder.set_input_buffer(index, Some(buffer), *offset);
                } else {
                    encoder.set_output_buffer(index, Some(buffer), *offset);
                }
            }
            Value::Nothing => encoder.set_input_buffer(index, Some(&metal.nothing), 0),
            Value::Count(number) => encoder.set_bytes(index, number),
            Value::Long(number) => encoder.set_bytes(index, number),
            Value::Number(number) => encoder.set_bytes(index, number),
        }
    }
    // Behind the last argument, where kernels find which of their pointers are there.
    encoder.set_bytes(values.len(), &given);
    let (x, y, z) = grid.blocks;
    let groups = MTLSize { width: x as usize, height: y as usize, depth: z as usize };
    encoder.dispatch_thread_groups(groups, MTLSize { width: threads, height: 1, depth: 1 });
    Ok(())
}

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
