//! Kernel launches in candle's own encoder, and matrix products by kernels of this crate.
//!
//! The matrix product of candle overwrites its result, and the result has the type of the operands. The kernels of
//! `kernels/metal/product.metal` can also add to the result, write f32 from 16-bit operands, and take matrices with
//! gaps between their rows, all in one pass.

use candle_core::backend::BackendStorage as _;
use candle_core::{Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder};
use objc2_metal::MTLSize;

use super::Metal;
use crate::accelerator::argument::{Argument, Build, Grid, MatrixView, arguments, extent};
use crate::accelerator::driver::wrong_device_error;
use crate::accelerator::kernel::Module;
use crate::error::Result;

/// A kernel argument as the encoder takes it.
enum Value {
    /// A buffer, and the byte offset at which the tensor begins in it.
    Buffer(Buffer, usize),
    Nothing,
    Count(u32),
    Long(u64),
    Number(f32),
}

/// Converts an argument into the value that the encoder takes. Fails for a tensor on another device, and for a size of
/// 2³² or more; `kernel` is named in errors.
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

/// Returns the buffer of a tensor and the byte offset of its first element in it. Does not check that the tensor is
/// contiguous. `caller` is named in errors.
///
/// # Errors
/// When the tensor is on another device.
pub(super) fn buffer(metal: &Metal, tensor: &Tensor, caller: &str) -> Result<(Buffer, usize)> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Metal(storage) if storage.device().id() == metal.device.id() => {
            Ok((storage.buffer().clone(), layout.start_offset() * tensor.dtype().size_in_bytes()))
        }
        _ => Err(wrong_device_error(caller, &metal.name())),
    }
}

/// Encodes a launch of the kernel `name` of a module. The caller has checked the kinds of the arguments. After the last
/// argument, passes a bit mask of the arguments, bit 0 for the first: a bit is set for a pointer that is not null.
///
/// # Errors
/// When a tensor is on another device, the kernel does not compile, `grid.threads` is more than a threadgroup of the
/// kernel can have, or candle fails to provide an encoder.
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
    // After the last argument: the mask by which kernels know which of their pointers are not null.
    encoder.set_bytes(values.len(), &given);
    let (x, y, z) = grid.blocks;
    let groups = MTLSize { width: x as usize, height: y as usize, depth: z as usize };
    encoder.dispatch_thread_groups(groups, MTLSize { width: threads, height: 1, depth: 1 });
    Ok(())
}

/// Rows, and also columns, of the tile of the result that a threadgroup computes.
const TILE: usize = 64;
/// The most rows of a result whose columns are computed by one SIMD group each.
const FEW: usize = 8;
/// Columns that a threadgroup computes of a result of at most [`FEW`] rows, one for each of its SIMD groups.
const COLUMNS: usize = 8;

/// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` if `add`. `[rows, columns, depth]`
/// are the shape of the result and the number of terms that each of its elements sums. `Accelerator::multiply` has
/// checked shapes and types. Uses another kernel for at most 8 rows if `right` is transposed and `left` is not.
///
/// # Errors
/// When a dimension is 2³² or more, a matrix has gaps within its rows or is on another device, or the kernel does not
/// compile.
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
