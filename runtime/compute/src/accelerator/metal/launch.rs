//! Arguments into one launch, in the tensor library's own encoder.

use candle_core::backend::BackendStorage as _;
use candle_core::{Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder};
use objc2_metal::MTLSize;

use super::Metal;
use crate::accelerator::argument::{Argument, Build, Grid, extent};
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
