//! A Metal device: one queue that is the tensor library's, a pool of memory that processor and GPU share, one word for
//! faults.
//!
//! Launches go into the tensor library's own encoder, which runs kernels side by side and puts a barrier where one writes
//! what another reads; so each launch says of every buffer whether it is written. All memory is shared: processor and GPU of
//! these machines have one, so nothing is copied to be read but into the bytes of the host that are asked for.
#![expect(unsafe_code, reason = "a buffer's numbers are read and the fault word is written through their addresses")]

mod launch;
mod loader;
mod opening;
mod pool;
mod product;

use std::sync::Arc;

use candle_core::op::BackpropOp;
use candle_core::{DType, Device, MetalDevice, MetalStorage, Storage, Tensor};
use candle_metal_kernels::metal::Buffer;
use objc2_metal::{MTLDevice as _, MTLResource as _, MTLStorageMode};

use super::argument::{Argument, Build, Grid};
use super::driver::{Driver, Registry};
use super::info::DeviceInfo;
use super::kernel::Kernel;
use super::view::MatrixView;
use crate::error::{Error, Result};
use loader::Loader;
use pool::Pool;

/// The fault word while nothing is wrong.
const FAULT_FREE: u64 = u64::MAX;

static OPEN: Registry<Metal> = Registry::new("metal");

/// A device that is open.
struct Metal {
    device: MetalDevice,
    loader: Loader,
    pool: Pool,
    ordinal: usize,
    processors: u32,
    /// The word of `kernels/metal/prelude.metal`, 8 bytes.
    fault: Buffer,
    /// A buffer that is bound in place of a null pointer; no kernel reads it.
    nothing: Buffer,
}

impl std::fmt::Debug for Metal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.device.fmt(formatter)
    }
}

/// Opens a device, once a process.
///
/// # Errors
/// [`Error::Unavailable`] with what is missing.
pub(super) fn open(ordinal: usize) -> Result<Device> {
    Ok(Device::Metal(OPEN.open(ordinal, opening::open)?.device.clone()))
}

/// The driver of a device of the tensor library.
///
/// # Errors
/// [`Error::Unavailable`] if [`open`] did not open it: then nothing of it is set up.
pub(super) fn of(device: &MetalDevice) -> Result<Arc<dyn Driver>> {
    let found: Arc<Metal> = OPEN.find(|metal| metal.device.id() == device.id())?;
    Ok(found)
}

impl Metal {
    /// The device as a person names it.
    fn name(&self) -> String {
        format!("metal:{}", self.ordinal)
    }

    /// An error of Metal's, with the device that it is of.
    fn stopped(&self, why: impl std::fmt::Display) -> Error {
        Error::Stopped { device: self.name(), why: why.to_string() }
    }

    /// [`Error::Full`] with the memory that is free.
    fn full(&self, bytes: usize) -> Error {
        let (free, total) = self.free_and_total();
        Error::Full { device: self.name(), wanted: bytes as u64, free, total }
    }

    /// Refuses what the device has no memory for, after the pool has given back what no tensor has.
    fn expect_room(&self, bytes: usize) -> Result<()> {
        if self.pool.has_room(&self.device, bytes)? { Ok(()) } else { Err(self.full(bytes)) }
    }

    /// A tensor of a buffer, outside any autograd graph.
    fn tensor(&self, buffer: Arc<Buffer>, dtype: DType, shape: &[usize]) -> Tensor {
        let storage = MetalStorage::new(buffer, self.device.clone(), shape.iter().product(), dtype);
        Tensor::from_storage(Storage::Metal(storage), shape, BackpropOp::none(), false)
    }

    /// Bytes that can be had, and those that Metal recommends to take at most.
    fn free_and_total(&self) -> (u64, u64) {
        let device = self.device.metal_device();
        let total = device.recommended_max_working_set_size();
        let free = total.saturating_sub(device.current_allocated_size()) + self.pool.figures().0;
        (free as u64, total as u64)
    }

    /// Refuses what was computed after an index that was out of range, and clears the word for what comes next.
    fn expect_no_fault(&self) -> Result<()> {
        // SAFETY: 8 bytes that processor and GPU share; one thread at a time computes on a device, and this one has waited.
        let word = unsafe { self.fault.contents().cast::<u64>().read() };
        if word == FAULT_FREE {
            return Ok(());
        }
        clear_fault(&self.fault);
        let index = !(word as u32);
        Err(Error::argument(format!("a kernel on `{}` met the index {index}, which is out of range", self.name())))
    }
}

/// Sets the fault word to what it is while nothing is wrong; no work may be under way.
fn clear_fault(word: &Buffer) {
    // SAFETY: 8 bytes that processor and GPU share, which no work uses: the caller's word.
    unsafe { word.contents().cast::<u64>().write(FAULT_FREE) }
}

/// Refuses a type that the host does not write and read. In f64 lie pairs of f32, for kernels alone.
fn expect_type(dtype: DType) -> Result<()> {
    use DType::{BF16, F16, F32, I64, U8, U32};
    if matches!(dtype, F32 | BF16 | F16 | I64 | U32 | U8) {
        return Ok(());
    }
    Err(Error::dtype(format!("`{}` is not kept on a Metal device", dtype.as_str())))
}

impl Driver for Metal {
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        if dtype != DType::F64 {
            expect_type(dtype)?;
        }
        let bytes = shape.iter().product::<usize>() * dtype.size_in_bytes();
        let Some(buffer) = self.pool.take(&self.device, bytes)? else { return Err(self.full(bytes)) };
        Ok(self.tensor(buffer, dtype, shape))
    }

    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.expect_room(shape.iter().product::<usize>() * dtype.size_in_bytes())?;
        Ok(Tensor::zeros(shape, dtype, &Device::Metal(self.device.clone()))?)
    }

    fn upload(&self, numbers: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor> {
        expect_type(dtype)?;
        self.expect_room(numbers.len())?;
        // A new buffer: work that waits may still use one of the pool.
        Ok(self.tensor(self.device.new_buffer_with_data(numbers)?, dtype, shape))
    }

    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
        launch::launch(self, kernel.module, kernel.name, build, grid, arguments)
    }

    fn multiply(&self, views: [MatrixView<'_>; 3], dims: [usize; 3], factor: f32, add: bool) -> Result<()> {
        product::multiply(self, views, dims, factor, add)
    }

    fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()> {
        expect_type(tensor.dtype())?;
        let (buffer, start) = launch::buffer(self, tensor, "a read")?;
        self.device.flush_and_wait_current()?;
        self.expect_no_fault()?;
        if buffer.as_ref().storageMode() != MTLStorageMode::Shared || start + into.len() > buffer.length() {
            return Err(Error::argument("a tensor to be read lies where the processor does not see it"));
        }
        // SAFETY: memory that processor and GPU share, with as many bytes. One thread at a time computes on a device, so what
        // it waited for was all of the work, and has written what it reads.
        into.copy_from_slice(unsafe {
            std::slice::from_raw_parts(buffer.contents().cast::<u8>().add(start), into.len())
        });
        Ok(())
    }

    fn processors(&self) -> u32 {
        self.processors
    }

    fn info(&self) -> Result<DeviceInfo> {
        let device = self.device.metal_device();
        let (free, total) = self.free_and_total();
        Ok(DeviceInfo {
            name: device.as_ref().name().to_string(),
            architecture: device.architecture_name(),
            software: "Metal".into(),
            total,
            free,
            peak: self.pool.figures().1 as u64,
        })
    }

    fn reset_peak(&self) -> Result<()> {
        self.pool.reset_peak(&self.device);
        Ok(())
    }
}
