//! Memory of a device: taken, read back, and how much there is.
#![expect(unsafe_code, reason = "memory is taken before it is written")]

use std::ops::Range;
use std::sync::PoisonError;

use candle_core::cuda::cudarc::driver::{CudaSlice, DeviceRepr, DriverError, ValidAsZeroBits, sys};
use candle_core::cuda::{CudaDType, CudaStorageSlice};
use candle_core::op::BackpropOp;
use candle_core::{CpuStorageRef, CudaStorage, DType, Device, Storage, Tensor, WithDType};
use half::{bf16, f16};

use super::{Cuda, is_full};
use crate::accelerator::info::DeviceInfo;
use crate::error::{Error, Result};

/// What the fault word is while nothing is wrong.
const NOTHING: u64 = u64::MAX;

/// Memory for a tensor; what it holds is left over from an earlier use.
///
/// # Errors
/// [`Error::Full`] when the device has no memory for it, [`Error::Dtype`] for a type that no kernel has.
pub(super) fn empty(cuda: &Cuda, shape: &[usize], dtype: DType) -> Result<Tensor> {
    allocate(cuda, shape, dtype, false)
}

/// Memory of zeros for a tensor.
///
/// # Errors
/// As of [`empty`].
pub(super) fn zeros(cuda: &Cuda, shape: &[usize], dtype: DType) -> Result<Tensor> {
    allocate(cuda, shape, dtype, true)
}

/// Numbers of the host as a tensor; there is at least one.
///
/// # Errors
/// As of [`empty`].
pub(super) fn upload(cuda: &Cuda, numbers: CpuStorageRef<'_>, shape: &[usize]) -> Result<Tensor> {
    let storage = match numbers {
        CpuStorageRef::F32(numbers) => copy(cuda, numbers)?,
        CpuStorageRef::BF16(numbers) => copy(cuda, numbers)?,
        CpuStorageRef::F16(numbers) => copy(cuda, numbers)?,
        CpuStorageRef::F64(numbers) => copy(cuda, numbers)?,
        CpuStorageRef::I64(numbers) => copy(cuda, numbers)?,
        CpuStorageRef::U32(numbers) => copy(cuda, numbers)?,
        CpuStorageRef::U8(numbers) => copy(cuda, numbers)?,
        _ => return Err(Error::dtype("numbers of this type are not kept on a CUDA device")),
    };
    Ok(tensor(storage, shape))
}

/// Allocates a tensor; `cleared` fills it with zeros, else its content is unspecified.
fn allocate(cuda: &Cuda, shape: &[usize], dtype: DType, cleared: bool) -> Result<Tensor> {
    let count = shape.iter().product();
    let storage = match dtype {
        DType::F32 => allocate_storage::<f32>(cuda, count, cleared)?,
        DType::BF16 => allocate_storage::<bf16>(cuda, count, cleared)?,
        DType::F16 => allocate_storage::<f16>(cuda, count, cleared)?,
        DType::F64 => allocate_storage::<f64>(cuda, count, cleared)?,
        DType::I64 => allocate_storage::<i64>(cuda, count, cleared)?,
        DType::U32 => allocate_storage::<u32>(cuda, count, cleared)?,
        DType::U8 => allocate_storage::<u8>(cuda, count, cleared)?,
        other => return Err(Error::dtype(format!("`{}` is not kept on a CUDA device", other.as_str()))),
    };
    Ok(tensor(storage, shape))
}

/// Makes a tensor of a storage, outside any autograd graph.
fn tensor(storage: CudaStorage, shape: &[usize]) -> Tensor {
    Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false)
}

/// Allocates memory for `count` numbers; `cleared` fills it with zeros, else its content is unspecified.
fn allocate_storage<T: CudaDType + DeviceRepr + ValidAsZeroBits>(
    cuda: &Cuda,
    count: usize,
    cleared: bool,
) -> Result<CudaStorage> {
    // An empty allocation is an error of the driver; one number is not.
    let count = count.max(1);
    if cleared {
        return allocate_or_trim(cuda, count, || cuda.stream.alloc_zeros::<T>(count));
    }
    // SAFETY: whoever asks writes before anybody reads, in the order of the stream.
    allocate_or_trim(cuda, count, || unsafe { cuda.stream.alloc::<T>(count) })
}

/// Copies numbers of the host into new memory of the device.
fn copy<T: CudaDType + DeviceRepr>(cuda: &Cuda, numbers: &[T]) -> Result<CudaStorage> {
    allocate_or_trim(cuda, numbers.len(), || cuda.stream.clone_htod(numbers))
}

/// Memory for so many numbers, once more after the pool was trimmed where there was none.
fn allocate_or_trim<T: CudaDType>(
    cuda: &Cuda,
    count: usize,
    take: impl Fn() -> std::result::Result<CudaSlice<T>, DriverError>,
) -> Result<CudaStorage> {
    let slice = take().or_else(|error| if is_full(&error) { trim(cuda).and_then(|()| take()) } else { Err(error) });
    let slice = slice.map_err(|error| allocation_error(cuda, &error, count * size_of::<T>()))?;
    Ok(CudaStorage::wrap_cuda_slice(slice, cuda.device.clone()))
}

/// Waits for the stream and returns the unused memory of the pool to the driver, so that it can be allocated in other
/// sizes.
fn trim(cuda: &Cuda) -> std::result::Result<(), DriverError> {
    cuda.stream.synchronize()?;
    cuda.stream.context().trim_pool()
}

/// The error of memory that was not had.
fn allocation_error(cuda: &Cuda, error: &DriverError, wanted: usize) -> Error {
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
        CudaStorageSlice::F32(slice) => read_range(cuda, slice, range, shape),
        CudaStorageSlice::BF16(slice) => read_range(cuda, slice, range, shape),
        CudaStorageSlice::F16(slice) => read_range(cuda, slice, range, shape),
        CudaStorageSlice::F64(slice) => read_range(cuda, slice, range, shape),
        CudaStorageSlice::I64(slice) => read_range(cuda, slice, range, shape),
        CudaStorageSlice::U32(slice) => read_range(cuda, slice, range, shape),
        CudaStorageSlice::U8(slice) => read_range(cuda, slice, range, shape),
        _ => Err(Error::dtype("numbers of this type are not read back")),
    }
}

/// Copies a range of a slice to a tensor of the CPU, together with the fault word, and waits for both.
fn read_range<T: WithDType + DeviceRepr>(
    cuda: &Cuda,
    slice: &CudaSlice<T>,
    range: Range<usize>,
    shape: &[usize],
) -> Result<Tensor> {
    // Held through the clearing, so that no fault but the one that is told is erased. Of which thread's launches it is the
    // word does not say: one thread at a time computes on a device and reads what came of it.
    let mut fault = cuda.fault.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = || {
        let numbers = cuda.stream.clone_dtoh(&slice.slice(range))?;
        let word = cuda.stream.clone_dtoh(&*fault)?;
        Ok((numbers, word))
    };
    let (numbers, word) = copy().map_err(|error: DriverError| cuda.stopped(&error))?;
    expect_no_fault(cuda, &mut fault, word.first().copied().unwrap_or(NOTHING))?;
    Ok(Tensor::from_vec(numbers, shape, &Device::Cpu)?)
}

/// Refuses what was computed after an index that was out of range, and clears the word for what comes next.
fn expect_no_fault(cuda: &Cuda, fault: &mut CudaSlice<u64>, word: u64) -> Result<()> {
    if word == NOTHING {
        return Ok(());
    }
    cuda.stream.memcpy_htod(&[NOTHING], fault).map_err(|error| cuda.stopped(&error))?;
    let index = !(word as u32);
    Err(Error::argument(format!("a kernel on `{}` met the index {index}, which is out of range", cuda.name())))
}

/// What the device is, and how its memory stands.
///
/// # Errors
/// What the driver says.
pub(super) fn info(cuda: &Cuda) -> Result<DeviceInfo> {
    use sys::CUmemPool_attribute as Kind;
    let context = cuda.stream.context();
    let stopped = |error: DriverError| cuda.stopped(&error);
    let (free, total) = context.mem_get_info().map_err(stopped)?;
    let (major, minor) = context.compute_capability().map_err(stopped)?;
    let held = context.pool_bytes(Kind::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT).map_err(stopped)?;
    let used = context.pool_bytes(Kind::CU_MEMPOOL_ATTR_USED_MEM_CURRENT).map_err(stopped)?;
    Ok(DeviceInfo {
        name: context.name().map_err(stopped)?,
        architecture: format!("sm_{major}{minor}"),
        software: cuda.software.clone(),
        total: total as u64,
        // Unused memory of the pool is free for the next allocation.
        free: free as u64 + held.saturating_sub(used),
        peak: context.pool_bytes(Kind::CU_MEMPOOL_ATTR_USED_MEM_HIGH).map_err(stopped)?,
    })
}

/// Lets the count of the most that tensors have taken begin again at what they take now.
///
/// # Errors
/// What the driver says.
pub(super) fn reset_peak(cuda: &Cuda) -> Result<()> {
    cuda.stream.context().forget_pool_peak().map_err(|error| cuda.stopped(&error))
}
