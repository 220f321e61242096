//! A Metal device: candle's command queue, a pool of memory that CPU and GPU share, and one fault word.
//!
//! Launches go into candle's own encoder. It runs kernels concurrently and puts a barrier between two of them where one
//! writes what the other reads, so each launch says of every buffer whether the kernel writes it. CPU and GPU of these
//! machines share all memory, so a read copies once, straight into the caller's host buffer.
#![expect(unsafe_code, reason = "a buffer's numbers are read and the fault word is written through their addresses")]

mod launch;
mod loader;
mod pool;

use std::sync::Arc;

use candle_core::op::BackpropOp;
use candle_core::{DType, Device, MetalDevice, MetalStorage, Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, Device as Found, MetalDeviceType};
use objc2_metal::{MTLDevice as _, MTLGPUFamily, MTLResource as _, MTLStorageMode};

use super::argument::{Argument, Build, Grid, MatrixView};
use super::driver::{DeviceInfo, Driver, Registry};
use super::kernel::Kernel;
use crate::error::{Error, Result};
use loader::Loader;
use pool::{Pool, SHARED};

/// The value of the fault word while no kernel has met an index out of range.
const FAULT_FREE: u64 = u64::MAX;

/// The Metal devices that this process has opened.
static OPEN: Registry<Metal> = Registry::new("metal");

/// An open Metal device.
struct Metal {
    device: MetalDevice,
    loader: Loader,
    pool: Pool,
    ordinal: usize,
    /// An upper bound of the number of GPU cores.
    processors: u32,
    /// The fault word (8 bytes), in which a kernel records an index out of range; see `kernels/metal/prelude.metal`.
    fault: Buffer,
    /// A buffer that is bound in place of a null pointer; no kernel reads it.
    nothing: Buffer,
}

impl std::fmt::Debug for Metal {
    /// Writes candle's text for the device.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.device.fmt(formatter)
    }
}

/// Opens a Metal device by its number. Each device is opened once per process: later calls return the same device.
///
/// # Errors
/// [`Error::Unavailable`] with the reason why the device cannot be used.
pub(super) fn open(ordinal: usize) -> Result<Device> {
    Ok(Device::Metal(OPEN.open(ordinal, open_first)?.device.clone()))
}

/// Returns the [`Driver`] of a candle Metal device that [`open`] has opened.
///
/// # Errors
/// [`Error::Unavailable`] if [`open`] did not open the device, so that it is not set up.
pub(super) fn of(device: &MetalDevice) -> Result<Arc<dyn Driver>> {
    let found: Arc<Metal> = OPEN.find(|metal| metal.device.id() == device.id())?;
    Ok(found)
}

impl Metal {
    /// The name of the device as users write it, such as `metal:0`.
    fn name(&self) -> String {
        format!("metal:{}", self.ordinal)
    }

    /// Creates [`Error::Stopped`] with the name of this device and the reason `why`.
    fn stopped(&self, why: impl std::fmt::Display) -> Error {
        Error::Stopped { device: self.name(), why: why.to_string() }
    }

    /// Creates [`Error::Full`] for a request of `bytes` bytes, with the bytes that are free and in total.
    fn full(&self, bytes: usize) -> Error {
        let (free, total) = self.free_and_total();
        Error::Full { device: self.name(), wanted: bytes as u64, free, total }
    }

    /// Checks that the device can allocate `bytes` more bytes. If it cannot, first waits for all work and returns the
    /// unused buffers of the pool to the system. Fails with [`Error::Full`].
    fn expect_room(&self, bytes: usize) -> Result<()> {
        if self.pool.has_room(&self.device, bytes)? { Ok(()) } else { Err(self.full(bytes)) }
    }

    /// Wraps a buffer as a contiguous tensor from its first byte on, outside any autograd graph.
    fn tensor(&self, buffer: Arc<Buffer>, dtype: DType, shape: &[usize]) -> Tensor {
        let storage = MetalStorage::new(buffer, self.device.clone(), shape.iter().product(), dtype);
        Tensor::from_storage(Storage::Metal(storage), shape, BackpropOp::none(), false)
    }

    /// Returns (free, total) in bytes: what can still be allocated, the pool's unused buffers included, and the most
    /// that Metal recommends to allocate.
    fn free_and_total(&self) -> (u64, u64) {
        let device = self.device.metal_device();
        let total = device.recommended_max_working_set_size();
        let free = total.saturating_sub(device.current_allocated_size()) + self.pool.unused_and_peak().0;
        (free as u64, total as u64)
    }

    /// Reads the fault word. If a kernel met an index out of range, fails with that index, and first resets the word so
    /// that later reads do not fail for it again. No work may be under way.
    fn expect_no_fault(&self) -> Result<()> {
        // SAFETY: 8 bytes that processor and GPU share; one thread at a time computes on a device, and this one has
        // waited.
        let word = unsafe { self.fault.contents().cast::<u64>().read() };
        if word == FAULT_FREE {
            return Ok(());
        }
        clear_fault(&self.fault);
        let index = !(word as u32);
        Err(Error::argument(format!("a kernel on `{}` met the index {index}, which is out of range", self.name())))
    }
}

/// Resets the fault word to "no fault". No work that uses it may be under way.
fn clear_fault(word: &Buffer) {
    // SAFETY: 8 bytes that processor and GPU share, which no work uses: the caller's word.
    unsafe { word.contents().cast::<u64>().write(FAULT_FREE) }
}

/// Checks that an element type can be copied between host and device: f32, bf16, f16, i64, u32 or u8. A tensor of f64
/// cannot: on Metal it holds pairs of f32, which only kernels read and write.
fn expect_type(dtype: DType) -> Result<()> {
    use DType::{BF16, F16, F32, I64, U8, U32};
    if matches!(dtype, F32 | BF16 | F16 | I64 | U32 | U8) {
        return Ok(());
    }
    Err(Error::dtype(format!("`{}` is not kept on a Metal device", dtype.as_str())))
}

impl Driver for Metal {
    /// Takes a buffer with unspecified content from the pool and wraps it as a contiguous tensor. Also accepts f64,
    /// each element of which holds a pair of f32 for kernels.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        if dtype != DType::F64 {
            expect_type(dtype)?;
        }
        let bytes = shape.iter().product::<usize>() * dtype.size_in_bytes();
        let Some(buffer) = self.pool.take(&self.device, bytes)? else { return Err(self.full(bytes)) };
        Ok(self.tensor(buffer, dtype, shape))
    }

    /// Creates a tensor of zeros in a new buffer outside the pool. Fails with [`Error::Full`] when the device has no
    /// memory left.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.expect_room(shape.iter().product::<usize>() * dtype.size_in_bytes())?;
        Ok(Tensor::zeros(shape, dtype, &Device::Metal(self.device.clone()))?)
    }

    /// Copies the bytes `numbers` (host) into a new buffer outside the pool and wraps it as a contiguous tensor. Fails
    /// for a type that [`expect_type`] refuses, and with [`Error::Full`] when the device has no memory left.
    fn upload(&self, numbers: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor> {
        expect_type(dtype)?;
        self.expect_room(numbers.len())?;
        // A new buffer: work that waits may still use one of the pool.
        Ok(self.tensor(self.device.new_buffer_with_data(numbers)?, dtype, shape))
    }

    /// Encodes a kernel with contiguous tensors into candle's command buffer; see [`Driver::launch`].
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
        launch::launch(self, kernel.module, kernel.name, build, grid, arguments)
    }

    /// Encodes a matrix product by the kernels of the module `Product`; see [`Driver::multiply`].
    fn multiply(&self, views: [MatrixView<'_>; 3], dims: [usize; 3], factor: f32, add: bool) -> Result<()> {
        launch::multiply(self, views, dims, factor, add)
    }

    /// Waits for all queued work and copies the elements of a contiguous tensor into the host buffer `into`, which has
    /// exactly as many bytes. If a kernel met an index out of range, resets the fault word and fails. Also fails for a
    /// type that [`expect_type`] refuses, and for a buffer that the CPU cannot read or that is too short.
    fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()> {
        expect_type(tensor.dtype())?;
        let (buffer, start) = launch::buffer(self, tensor, "a read")?;
        // Both waits are needed: the first reports errors of the last command buffer only, the second those of all.
        self.device.flush_and_wait_current()?;
        self.device.wait_until_completed()?;
        self.expect_no_fault()?;
        if buffer.as_ref().storageMode() != MTLStorageMode::Shared || start + into.len() > buffer.length() {
            return Err(Error::argument("a tensor to be read lies where the processor does not see it"));
        }
        // SAFETY: memory that processor and GPU share, with as many bytes. One thread at a time computes on a device,
        // so what it waited for was all of the work, and has written what it reads.
        into.copy_from_slice(unsafe {
            std::slice::from_raw_parts(buffer.contents().cast::<u8>().add(start), into.len())
        });
        Ok(())
    }

    /// Returns an upper bound of the number of GPU cores.
    fn processors(&self) -> u32 {
        self.processors
    }

    /// Returns name, architecture and memory of the device. Unused buffers of the pool count as free; the total is what
    /// Metal recommends to use at most.
    fn info(&self) -> Result<DeviceInfo> {
        let device = self.device.metal_device();
        let (free, total) = self.free_and_total();
        Ok(DeviceInfo {
            name: device.as_ref().name().to_string(),
            architecture: device.architecture_name(),
            software: "Metal".into(),
            total,
            free,
            peak: self.pool.unused_and_peak().1 as u64,
        })
    }

    /// Resets the peak of allocated memory to what is allocated now, unused buffers of the pool included. Never fails.
    fn reset_peak(&self) -> Result<()> {
        self.pool.reset_peak(&self.device);
        Ok(())
    }
}

/// Opens the Metal device `ordinal` for the first time in this process: only device 0, and only an Apple GPU (M1 or
/// later) with unified memory. Creates its fault word and the buffer that stands for a null pointer.
///
/// # Errors
/// Why it cannot be used, and what to do about it.
fn open_first(ordinal: usize) -> std::result::Result<Metal, String> {
    if ordinal > 0 {
        return Err("a Mac that the kernels are for has one GPU, `metal:0`".into());
    }
    let mut found = Found::all();
    if found.is_empty() {
        return Err("Metal finds no GPU on this machine; a virtual machine may have none".into());
    }
    let raw = found.swap_remove(ordinal);
    // Matrices of SIMD groups, and memory that processor and GPU share.
    if !raw.as_ref().supportsFamily(MTLGPUFamily::Apple7) || !raw.as_ref().hasUnifiedMemory() {
        let name = raw.as_ref().name();
        return Err(format!("`{name}` is no GPU of Apple's own (M1 or later), for which the kernels are written"));
    }
    let Device::Metal(device) = Device::new_metal(ordinal).map_err(|error| first_line(&error.to_string()))? else {
        return Err("the tensor library opened another device".into());
    };
    let small = |bytes| {
        let buffer = device.metal_device().new_buffer(bytes, SHARED);
        buffer.map_err(|error| first_line(&error.to_string()))
    };
    let (fault, nothing) = (small(8)?, small(16)?);
    device.register_buffers([&fault, &nothing]);
    clear_fault(&fault);
    Ok(Metal {
        loader: Loader::new(device.metal_device().clone(), ordinal),
        pool: Pool::default(),
        ordinal,
        processors: processors(device.metal_device()),
        fault,
        nothing,
        device,
    })
}

/// An upper bound of the GPU's core count by its product line, since Metal does not report the count: 6, 20, 40 or 80.
/// Sizes of grids depend on it, results do not.
fn processors(device: &Found) -> u32 {
    match device.device_type() {
        MetalDeviceType::Phone => 6,
        MetalDeviceType::BasePro | MetalDeviceType::Medium => 20,
        MetalDeviceType::Max => 40,
        MetalDeviceType::Ultra => 80,
    }
}

/// The first line of an error message of candle, whose other lines are a backtrace. Empty for an empty text.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
