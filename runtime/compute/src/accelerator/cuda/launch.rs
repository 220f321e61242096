//! Arguments into one launch.
#![expect(unsafe_code, reason = "a kernel is called with addresses")]

use std::any::Any;
use std::ffi::c_void;

use candle_core::cuda::CudaStorageSlice;
use candle_core::{Storage, Tensor};

use super::context::Memory;
use super::{Cuda, sys};
use crate::accelerator::argument::{Argument, Build, Grid, extent};
use crate::accelerator::driver::elsewhere;
use crate::accelerator::kernel::Kernel;
use crate::error::{Error, Result};

/// Converts the arguments to what the driver takes and queues the kernel in the device's stream. The caller
/// (`Accelerator::launch`) has checked the kinds of the arguments.
///
/// # Errors
/// When a tensor is elsewhere, the kernel does not compile, or the driver refuses.
pub(super) fn launch(cuda: &Cuda, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
    let function = cuda.loader.function(kernel, build, grid.shared)?;
    let values = arguments.iter().map(|argument| value(cuda, kernel.name, argument));
    let values: Vec<u64> = values.collect::<Result<_>>()?;
    // The driver reads as many of the 8 bytes as a parameter has, the low ones first.
    let pointers = values.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast());
    let mut pointers: Vec<*mut c_void> = pointers.collect();
    let ((x, y, z), none) = (grid.blocks, std::ptr::null_mut());
    cuda.context.bind().map_err(|error| cuda.stopped(error))?;
    // SAFETY: the kinds of all arguments are those of the kernel's text (a test compares them), every address is that of
    // a tensor of this device which lives until the launch is in the stream, and freed memory is used again by later work
    // of the stream alone. The caller gives the lengths that the shapes have. The driver copies the arguments.
    unsafe {
        let (arguments, stream) = (pointers.as_mut_ptr(), cuda.context.stream);
        sys::cuLaunchKernel(function, x, y, z, grid.threads, 1, 1, grid.shared, stream, arguments, none)
    }
    .map_err(|error| cuda.stopped(error))
}

/// Converts an argument into the 8 bytes that the driver reads it from: an address, a number, the bits of an f32, or 0
/// for an absent tensor. Refuses a tensor of another device, and a size of 2³² or more; `kernel` is named in errors.
fn value(cuda: &Cuda, kernel: &str, argument: &Argument<'_>) -> Result<u64> {
    Ok(match argument {
        Argument::Tensor(tensor) => address(cuda, tensor, kernel)?,
        Argument::FaultWord => cuda.fault_address,
        Argument::Nothing => 0,
        Argument::Count(number) => (*number).into(),
        Argument::Size(number) => extent(*number)?.into(),
        Argument::Long(number) => *number,
        Argument::Number(number) => number.to_bits().into(),
    })
}

/// The device address of a tensor's first number. Does not check that the other numbers follow without gaps. `caller`
/// is named in errors.
///
/// # Errors
/// When the tensor is on another device, or has an element type that no kernel reads.
pub(super) fn address(cuda: &Cuda, tensor: &Tensor, caller: &str) -> Result<u64> {
    let (memory, start) = memory(cuda, tensor, caller)?;
    Ok(memory.address() + start as u64)
}

/// Returns the memory of a tensor and the byte offset of its first number in it. `caller` is named in errors.
///
/// # Errors
/// When the tensor is of another device, or has numbers of a type that no kernel reads.
pub(super) fn memory(cuda: &Cuda, tensor: &Tensor, caller: &str) -> Result<(Memory, usize)> {
    let (storage, layout) = tensor.storage_and_layout();
    let slice = match &*storage {
        Storage::Cuda(storage) if storage.device.id() == cuda.device.id() => &storage.slice,
        _ => return Err(elsewhere(caller, &cuda.name())),
    };
    let memory: &dyn Any = match slice {
        CudaStorageSlice::F32(slice) => slice.memory(),
        CudaStorageSlice::BF16(slice) => slice.memory(),
        CudaStorageSlice::F16(slice) => slice.memory(),
        CudaStorageSlice::F64(slice) => slice.memory(),
        CudaStorageSlice::I64(slice) => slice.memory(),
        CudaStorageSlice::U32(slice) => slice.memory(),
        CudaStorageSlice::U8(slice) => slice.memory(),
        _ => return Err(Error::dtype(format!("`{caller}` was given numbers of a type that no kernel reads"))),
    };
    // All memory of a device that is open here was allocated here.
    let memory = memory.downcast_ref::<Memory>().ok_or_else(|| elsewhere(caller, &cuda.name()))?;
    Ok((memory.clone(), layout.start_offset() * tensor.dtype().size_in_bytes()))
}
