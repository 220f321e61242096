//! Arguments into one launch.
#![expect(unsafe_code, reason = "a kernel is called with addresses")]

use candle_core::cuda::CudaStorageSlice;
use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg};
use candle_core::{Layout, Storage, Tensor};

use super::Cuda;
use crate::accelerator::argument::{Argument, Build, Grid, extent};
use crate::accelerator::kernel::Kernel;
use crate::error::{Error, Result};

/// What goes to the driver.
enum Value {
    Count(u32),
    /// A number, or an address.
    Long(u64),
    Number(f32),
}

/// Puts a kernel into the stream. Its arguments are of the right kinds: `Accelerator::launch` has looked.
///
/// # Errors
/// When a tensor is elsewhere or has gaps where it must not, the kernel does not compile, or the driver refuses.
pub(super) fn launch(cuda: &Cuda, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
    let function = cuda.loader.function(kernel, build, grid.shared)?;
    let values = arguments.iter().map(|argument| value(cuda, kernel.name, argument));
    let values: Vec<Value> = values.collect::<Result<_>>()?;
    let config = LaunchConfig { grid_dim: grid.blocks, block_dim: (grid.threads, 1, 1), shared_mem_bytes: grid.shared };
    let mut builder = cuda.stream.launch_builder(&function);
    for value in &values {
        match value {
            Value::Count(number) => builder.arg(number),
            Value::Long(number) => builder.arg(number),
            Value::Number(number) => builder.arg(number),
        };
    }
    // SAFETY: the kinds of all arguments are those of the kernel's text (a test compares them), every address is that of
    // a tensor of this device which lives until the launch is in the stream, and what is freed later is taken again by
    // later work of the stream alone. Who calls gives the lengths that the shapes have.
    unsafe { builder.launch(config) }.map_err(|error| cuda.stopped(&error))?;
    Ok(())
}

/// Converts an argument into what the driver takes. Refuses a tensor of another device or with gaps.
fn value(cuda: &Cuda, kernel: &str, argument: &Argument<'_>) -> Result<Value> {
    Ok(match argument {
        Argument::Tensor(tensor) => Value::Long(address(cuda, tensor, kernel, Layout::is_contiguous)?),
        Argument::FaultWord => Value::Long(cuda.fault_address),
        Argument::Nothing => Value::Long(0),
        Argument::Count(number) => Value::Count(*number),
        Argument::Size(number) => Value::Count(extent(*number)?),
        Argument::Long(number) => Value::Long(*number),
        Argument::Number(number) => Value::Number(*number),
    })
}

/// The address of a tensor's first number; `accepts` says how it must lie.
///
/// # Errors
/// When the tensor is of another device, has other gaps, or numbers of a type that no kernel reads.
pub(super) fn address(cuda: &Cuda, tensor: &Tensor, caller: &str, accepts: impl Fn(&Layout) -> bool) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    let storage = match &*storage {
        Storage::Cuda(storage) if storage.device.id() == cuda.device.id() => storage,
        _ => {
            return Err(Error::argument(format!(
                "`{caller}` on `{}` was given a tensor of another device",
                cuda.name()
            )));
        }
    };
    if !accepts(layout) {
        let (shape, strides) = (layout.dims(), layout.stride());
        return Err(Error::shape(format!(
            "`{caller}` was given a tensor {shape:?} with gaps: its strides are {strides:?}"
        )));
    }
    let (base, size) = match &storage.slice {
        CudaStorageSlice::F32(slice) => start(slice, &cuda.stream),
        CudaStorageSlice::BF16(slice) => start(slice, &cuda.stream),
        CudaStorageSlice::F16(slice) => start(slice, &cuda.stream),
        CudaStorageSlice::F64(slice) => start(slice, &cuda.stream),
        CudaStorageSlice::I64(slice) => start(slice, &cuda.stream),
        CudaStorageSlice::U32(slice) => start(slice, &cuda.stream),
        CudaStorageSlice::U8(slice) => start(slice, &cuda.stream),
        _ => return Err(Error::dtype(format!("`{caller}` was given numbers of a type that no kernel reads"))),
    };
    Ok(base + (layout.start_offset() * size) as u64)
}

/// Where a slice begins, and the bytes of a number. Events are off, so the guard has nothing to do when it goes.
fn start<T: DeviceRepr>(slice: &CudaSlice<T>, stream: &CudaStream) -> (u64, usize) {
    (slice.device_ptr(stream).0, size_of::<T>())
}
