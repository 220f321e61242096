//! Arguments into one launch, in the tensor library's own encoder.

use candle_core::backend::BackendStorage as _;
use candle_core::{Layout, Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder};
use objc2_metal::MTLSize;

use super::Metal;
use super::loader::Function;
use crate::accelerator::argument::{Argument, Build, Grid, extent};
use crate::accelerator::kernel::Kernel;
use crate::error::{Error, Result};

/// What goes to the encoder.
pub(super) enum Value {
    /// A buffer, and where a tensor begins in it, in bytes.
    Buffer(Buffer, usize),
    Nothing,
    Count(u32),
    Long(u64),
    Number(f32),
}

/// Puts a kernel into the queue. Its arguments are of the right kinds: `Accelerator::launch` has looked.
///
/// # Errors
/// When a tensor is elsewhere or has gaps, the kernel does not compile, or a group of it would have too many threads.
pub(super) fn launch(
    metal: &Metal,
    kernel: &Kernel,
    build: Build,
    grid: Grid,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let function = metal.loader.function(kernel.module, kernel.name, build)?;
    let values = arguments.iter().map(|argument| value(metal, kernel.name, argument));
    let values: Vec<Value> = values.collect::<Result<_>>()?;
    dispatch(metal, kernel.name, &function, grid, &values)
}

/// Converts an argument into what the encoder takes. Refuses a tensor of another device or with gaps.
fn value(metal: &Metal, kernel: &str, argument: &Argument<'_>) -> Result<Value> {
    Ok(match argument {
        Argument::Tensor(tensor) => tensor_buffer(metal, tensor, kernel, Layout::is_contiguous)?,
        Argument::FaultWord => Value::Buffer(metal.fault.clone(), 0),
        Argument::Nothing => Value::Nothing,
        Argument::Count(number) => Value::Count(*number),
        Argument::Size(number) => Value::Count(extent(*number)?),
        Argument::Long(number) => Value::Long(*number),
        Argument::Number(number) => Value::Number(*number),
    })
}

/// The buffer of a tensor, and where its first number is; `accepts` says how it must lie.
///
/// # Errors
/// When the tensor is of another device, or has other gaps.
pub(super) fn tensor_buffer(
    metal: &Metal,
    tensor: &Tensor,
    caller: &str,
    accepts: impl Fn(&Layout) -> bool,
) -> Result<Value> {
    let (storage, layout) = tensor.storage_and_layout();
    let storage = match &*storage {
        Storage::Metal(storage) if storage.device().id() == metal.device.id() => storage,
        _ => {
            return Err(Error::argument(format!(
                "`{caller}` on `{}` was given a tensor of another device",
                metal.name()
            )));
        }
    };
    if !accepts(layout) {
        let (shape, strides) = (layout.dims(), layout.stride());
        return Err(Error::shape(format!(
            "`{caller}` was given a tensor {shape:?} with gaps: its strides are {strides:?}"
        )));
    }
    Ok(Value::Buffer(storage.buffer().clone(), layout.start_offset() * tensor.dtype().size_in_bytes()))
}

/// Puts a function into the queue.
///
/// # Errors
/// When a group of it would have too many threads, or the tensor library has no encoder.
pub(super) fn dispatch(metal: &Metal, name: &str, function: &Function, grid: Grid, values: &[Value]) -> Result<()> {
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
