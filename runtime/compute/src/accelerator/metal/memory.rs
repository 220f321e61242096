//! Memory of a device: taken, read where it lies, and how much there is.
//!
//! All of it is shared: processor and GPU of these machines have one memory, so nothing is copied to be read but into
//! the tensor that is asked for.
#![expect(unsafe_code, reason = "a buffer's numbers are read and the fault word is written through their addresses")]

use candle_core::op::BackpropOp;
use candle_core::{CpuStorageRef, DType, Device, MetalStorage, Storage, Tensor, WithDType};
use candle_metal_kernels::metal::Buffer;
use half::{bf16, f16};
use objc2_metal::{MTLDevice as _, MTLResource as _, MTLStorageMode};

use super::Metal;
use crate::accelerator::info::DeviceInfo;
use crate::error::{Error, Result};

/// What the fault word is while nothing is wrong.
const NOTHING: u64 = u64::MAX;

/// Memory for a tensor; what it holds is left over from an earlier use.
///
/// # Errors
/// [`Error::Full`] when the device has no memory for it, [`Error::Dtype`] for a type that no kernel has.
pub(super) fn empty(metal: &Metal, shape: &[usize], dtype: DType) -> Result<Tensor> {
    use DType::{BF16, F16, F32, F64, I64, U8, U32};
    // In f64 lie pairs of f32: kernels alone write and read them.
    if !matches!(dtype, F32 | BF16 | F16 | F64 | I64 | U32 | U8) {
        return Err(Error::dtype(format!("`{}` is not kept on a Metal device", dtype.as_str())));
    }
    let count = shape.iter().product::<usize>();
    let bytes = count * dtype.size_in_bytes();
    let Some(buffer) = metal.pool.take(&metal.device, bytes)? else { return Err(full(metal, bytes)) };
    let storage = MetalStorage::new(buffer, metal.device.clone(), count, dtype);
    Ok(Tensor::from_storage(Storage::Metal(storage), shape, BackpropOp::none(), false))
}

/// A tensor of zeros.
///
/// # Errors
/// [`Error::Full`] when the device has no memory for it.
pub(super) fn zeros(metal: &Metal, shape: &[usize], dtype: DType) -> Result<Tensor> {
    expect_room(metal, shape.iter().product::<usize>() * dtype.size_in_bytes())?;
    Ok(Tensor::zeros(shape, dtype, &Device::Metal(metal.device.clone()))?)
}

/// Numbers of the host as a tensor. Its buffer is a new one: work that waits may use one of the pool still.
///
/// # Errors
/// As of [`zeros`].
pub(super) fn upload(metal: &Metal, numbers: CpuStorageRef<'_>, shape: &[usize]) -> Result<Tensor> {
    match numbers {
        CpuStorageRef::F32(numbers) => upload_slice(metal, numbers, shape),
        CpuStorageRef::BF16(numbers) => upload_slice(metal, numbers, shape),
        CpuStorageRef::F16(numbers) => upload_slice(metal, numbers, shape),
        CpuStorageRef::I64(numbers) => upload_slice(metal, numbers, shape),
        CpuStorageRef::U32(numbers) => upload_slice(metal, numbers, shape),
        CpuStorageRef::U8(numbers) => upload_slice(metal, numbers, shape),
        _ => Err(Error::dtype("numbers of this type are not kept on a Metal device")),
    }
}

/// Copies numbers into a new tensor of the device.
fn upload_slice<T: WithDType>(metal: &Metal, numbers: &[T], shape: &[usize]) -> Result<Tensor> {
    expect_room(metal, size_of_val(numbers))?;
    Ok(Tensor::from_slice(numbers, shape, &Device::Metal(metal.device.clone()))?)
}

/// Refuses what the device has no memory for, after the pool has given back what no tensor has.
fn expect_room(metal: &Metal, bytes: usize) -> Result<()> {
    if metal.pool.has_room(&metal.device, bytes)? { Ok(()) } else { Err(full(metal, bytes)) }
}

/// [`Error::Full`] with the memory that is free.
fn full(metal: &Metal, bytes: usize) -> Error {
    let (free, total) = free(metal);
    Error::Full { device: metal.name(), wanted: bytes as u64, free, total }
}

/// Waits, and copies exactly the numbers of a contiguous view to the CPU.
///
/// # Errors
/// When the view has gaps, or a kernel that ran since the last time met an index that was out of range.
pub(super) fn read(metal: &Metal, tensor: &Tensor) -> Result<Tensor> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Metal(storage) = &*storage else {
        return Err(Error::argument(format!("a tensor to be read is not on `{}`", metal.name())));
    };
    let Some((start, end)) = layout.contiguous_offsets() else {
        return Err(Error::shape(format!("a tensor {:?} to be read has gaps", layout.dims())));
    };
    let shape = layout.dims();
    metal.device.flush_and_wait_current()?;
    expect_no_fault(metal)?;
    let buffer = storage.buffer();
    match tensor.dtype() {
        DType::F32 => read_range::<f32>(buffer, start, end, shape),
        DType::BF16 => read_range::<bf16>(buffer, start, end, shape),
        DType::F16 => read_range::<f16>(buffer, start, end, shape),
        DType::I64 => read_range::<i64>(buffer, start, end, shape),
        DType::U32 => read_range::<u32>(buffer, start, end, shape),
        DType::U8 => read_range::<u8>(buffer, start, end, shape),
        other => Err(Error::dtype(format!("numbers of `{}` are not read back from Metal", other.as_str()))),
    }
}

/// Copies numbers `start` … `end` of a buffer to a tensor of the CPU. The caller has waited for the device.
fn read_range<T: WithDType>(buffer: &Buffer, start: usize, end: usize, shape: &[usize]) -> Result<Tensor> {
    if buffer.as_ref().storageMode() != MTLStorageMode::Shared || end * size_of::<T>() > buffer.length() {
        return Err(Error::argument("a tensor to be read lies where the processor does not see it"));
    }
    // SAFETY: memory that processor and GPU share, which begins on a page and has `end` numbers of this type. One thread at
    // a time computes on a device, so what it waited for was all of the work, and has written what it reads.
    let numbers = unsafe { std::slice::from_raw_parts(buffer.contents().cast::<T>().add(start), end - start) };
    Ok(Tensor::from_slice(numbers, shape, &Device::Cpu)?)
}

/// Refuses what was computed after an index that was out of range, and clears the word for what comes next.
fn expect_no_fault(metal: &Metal) -> Result<()> {
    // SAFETY: 8 bytes that processor and GPU share; one thread at a time computes on a device, and this one has waited.
    let word = unsafe { metal.fault.contents().cast::<u64>().read() };
    if word == NOTHING {
        return Ok(());
    }
    clear_fault(&metal.fault);
    let index = !(word as u32);
    Err(Error::argument(format!("a kernel on `{}` met the index {index}, which is out of range", metal.name())))
}

/// Sets the fault word to what it is while nothing is wrong; no work may be under way.
pub(super) fn clear_fault(word: &Buffer) {
    // SAFETY: 8 bytes that processor and GPU share, which no work uses: the caller's word.
    unsafe { word.contents().cast::<u64>().write(NOTHING) }
}

/// Bytes that can be had, and those that Metal recommends to take at most.
fn free(metal: &Metal) -> (u64, u64) {
    let device = metal.device.metal_device();
    let total = device.recommended_max_working_set_size();
    let free = total.saturating_sub(device.current_allocated_size()) + metal.pool.figures().0;
    (free as u64, total as u64)
}

/// What the device is, and how its memory stands.
///
/// # Errors
/// None as yet: Metal answers all of it at once.
pub(super) fn info(metal: &Metal) -> Result<DeviceInfo> {
    let device = metal.device.metal_device();
    let (free, total) = free(metal);
    Ok(DeviceInfo {
        name: device.as_ref().name().to_string(),
        architecture: device.architecture_name(),
        software: "Metal".into(),
        total,
        free,
        peak: metal.pool.figures().1 as u64,
    })
}
