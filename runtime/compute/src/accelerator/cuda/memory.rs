//! Memory of a device: taken, read back, and how much there is.
#![expect(unsafe_code, reason = "memory is taken before it is written")]

use std::ops::Range;
use std::sync::PoisonError;

use candle_core::cuda::cudarc::driver::{CudaSlice, DeviceRepr, DriverError, sys};
use candle_core::cuda::{CudaDType, CudaStorageSlice};
use candle_core::op::BackpropOp;
use candle_core::{CudaStorage, DType, Device, Storage, Tensor, WithDType};
use half::{bf16, f16};

use super::{Cuda, is_full};
use crate::device::About;
use crate::error::{Error, Result};

/// What the fault word is while nothing is wrong.
const NOTHING: u64 = u64::MAX;

/// Memory for a tensor; what it holds is left over from an earlier use.
///
/// # Errors
/// [`Error::Full`] when the device has no memory for it, [`Error::Dtype`] for a type that no kernel has.
pub(super) fn empty(cuda: &Cuda, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let count = shape.iter().product();
    let storage = match dtype {
        DType::F32 => taken::<f32>(cuda, count)?,
        DType::BF16 => taken::<bf16>(cuda, count)?,
        DType::F16 => taken::<f16>(cuda, count)?,
        DType::F64 => taken::<f64>(cuda, count)?,
        DType::I64 => taken::<i64>(cuda, count)?,
        DType::U32 => taken::<u32>(cuda, count)?,
        DType::U8 => taken::<u8>(cuda, count)?,
        other => return Err(Error::dtype(format!("`{}` is not kept on a CUDA device", other.as_str()))),
    };
    Ok(Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false))
}

fn taken<T: CudaDType + DeviceRepr>(cuda: &Cuda, count: usize) -> Result<CudaStorage> {
    // An empty allocation is an error of the driver; one number is not.
    let count = count.max(1);
    // SAFETY: whoever asks writes before anybody reads, in the order of the stream.
    let take = || unsafe { cuda.stream.alloc::<T>(count) };
    let slice = take().or_else(|error| if is_full(&error) { trim(cuda).and_then(|()| take()) } else { Err(error) });
    let slice = slice.map_err(|error| refused(cuda, &error, count * size_of::<T>()))?;
    Ok(CudaStorage::wrap_cuda_slice(slice, cuda.device.clone()))
}

/// Gives back what the pool holds and nobody uses, so that it can be cut anew.
fn trim(cuda: &Cuda) -> std::result::Result<(), DriverError> {
    cuda.stream.synchronize()?;
    cuda.stream.context().trim_pool()
}

/// The error of memory that was not had.
fn refused(cuda: &Cuda, error: &DriverError, wanted: usize) -> Error {
    if !is_full(error) {
        return cuda.stopped(error);
    }
    let (free, total) = cuda.stream.context().mem_get_info().unwrap_or_default();
    Error::Full { device: cuda.name(), wanted: wanted as u64, free: free as u64, total: total as u64 }
}

/// Waits, and copies exactly the numbers of a contiguous view to the CPU.
///
/// # Errors
/// When the view has gaps, or a kernel that ran since the last time met an index that was out of range.
pub(super) fn read(cuda: &Cuda, tensor: &Tensor) -> Result<Tensor> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        return Err(Error::argument(format!("a tensor to be read is not on `{}`", cuda.name())));
    };
    let Some((start, end)) = layout.contiguous_offsets() else {
        return Err(Error::shape(format!("a tensor {:?} to be read has gaps", layout.dims())));
    };
    let (range, shape) = (start..end, layout.dims());
    match &storage.slice {
        CudaStorageSlice::F32(slice) => copied(cuda, slice, range, shape),
        CudaStorageSlice::BF16(slice) => copied(cuda, slice, range, shape),
        CudaStorageSlice::F16(slice) => copied(cuda, slice, range, shape),
        CudaStorageSlice::F64(slice) => copied(cuda, slice, range, shape),
        CudaStorageSlice::I64(slice) => copied(cuda, slice, range, shape),
        CudaStorageSlice::U32(slice) => copied(cuda, slice, range, shape),
        CudaStorageSlice::U8(slice) => copied(cuda, slice, range, shape),
        _ => Err(Error::dtype("numbers of this type are not read back")),
    }
}

fn copied<T: WithDType + DeviceRepr>(
    cuda: &Cuda,
    slice: &CudaSlice<T>,
    range: Range<usize>,
    shape: &[usize],
) -> Result<Tensor> {
    let fault = cuda.fault.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = || {
        let numbers = cuda.stream.clone_dtoh(&slice.slice(range))?;
        let word = cuda.stream.clone_dtoh(&*fault)?;
        Ok((numbers, word))
    };
    let (numbers, word) = copy().map_err(|error: DriverError| cuda.stopped(&error))?;
    drop(fault);
    expect_no_fault(cuda, word.first().copied().unwrap_or(NOTHING))?;
    Ok(Tensor::from_vec(numbers, shape, &Device::Cpu)?)
}

/// Refuses what was computed after an index that was out of range, and clears the word for what comes next.
fn expect_no_fault(cuda: &Cuda, word: u64) -> Result<()> {
    if word == NOTHING {
        return Ok(());
    }
    let mut fault = cuda.fault.lock().unwrap_or_else(PoisonError::into_inner);
    cuda.stream.memcpy_htod(&[NOTHING], &mut *fault).map_err(|error| cuda.stopped(&error))?;
    let index = !(word as u32);
    Err(Error::argument(format!("a kernel on `{}` met the index {index}, which is out of range", cuda.name())))
}

/// What the device is, and how its memory stands.
///
/// # Errors
/// What the driver says.
pub(super) fn about(cuda: &Cuda) -> Result<About> {
    use sys::CUmemPool_attribute as Kind;
    let context = cuda.stream.context();
    let stopped = |error: DriverError| cuda.stopped(&error);
    let (free, total) = context.mem_get_info().map_err(stopped)?;
    let (major, minor) = context.compute_capability().map_err(stopped)?;
    let held = context.pool_bytes(Kind::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT).map_err(stopped)?;
    let used = context.pool_bytes(Kind::CU_MEMPOOL_ATTR_USED_MEM_CURRENT).map_err(stopped)?;
    Ok(About {
        name: context.name().map_err(stopped)?,
        architecture: format!("sm_{major}{minor}"),
        software: cuda.software.clone(),
        total: total as u64,
        // What the pool holds and nobody uses is there for the next who asks.
        free: free as u64 + held.saturating_sub(used),
        peak: context.pool_bytes(Kind::CU_MEMPOOL_ATTR_USED_MEM_HIGH).map_err(stopped)?,
    })
}
