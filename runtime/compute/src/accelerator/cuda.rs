//! A CUDA device: one stream, one memory pool, one fault word.
//!
//! All work of a device goes into one stream, whichever thread queues it, so the stream orders writes and reads. Freed
//! memory returns to the pool in stream order and stays there.

mod compile;
mod context;
mod energy;
mod launch;
mod library;
mod loader;
mod opening;
mod sys;

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda::CudaDType;
use candle_core::cuda::cudarc::driver::{CudaSlice, DeviceRepr};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, DType, Device, Storage, Tensor};
use half::{bf16, f16};

use super::argument::{Argument, Build, Grid, MatrixView};
use super::driver::{DeviceInfo, Driver, Registry};
use super::kernel::Kernel;
use crate::error::{Error, Result};
use context::{Context, Memory};
use library::CallError;
use loader::Loader;

/// The bytes of the fault word while no kernel has met an index out of range.
const FAULT_FREE: [u8; 8] = [u8::MAX; 8];

/// The CUDA devices that this process has opened.
static OPEN: Registry<Cuda> = Registry::new("cuda");

/// An open CUDA device.
struct Cuda {
    /// candle's device. It allocates and copies tensors, but never computes.
    device: CudaDevice,
    context: Arc<Context>,
    loader: Loader,
    /// The number of multiprocessors.
    processors: u32,
    /// Whether kernels are compiled for products of warpgroups.
    warpgroups: bool,
    /// The handle of cuBLAS. Locked during a product, since all products share one workspace.
    blas: Mutex<sys::Handle>,
    /// The fault word (8 bytes), in which a kernel records an index out of range; see `kernels/cuda/prelude.cuh`.
    fault: Mutex<Memory>,
    /// The device address of the fault word, so that a launch needs no lock.
    fault_address: u64,
    /// The versions of the driver, NVRTC and cuBLAS, as text for users.
    software: String,
}

impl std::fmt::Debug for Cuda {
    /// Writes candle's text for the device.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.device.fmt(formatter)
    }
}

/// Opens a CUDA device by its number. Each device is opened once per process: later calls return the same device.
///
/// # Errors
/// [`Error::Unavailable`] with the reason why the device cannot be used and what to do about it.
pub(super) fn open(ordinal: usize) -> Result<Device> {
    Ok(Device::Cuda(OPEN.open(ordinal, opening::open)?.device.clone()))
}

/// Whether the driver's library `libcuda` can be opened, so that a user would expect a usable device. The library stays
/// open; the driver is not initialized.
pub(super) fn is_expected() -> bool {
    sys::DRIVER.open(&library::folders()).is_ok()
}

/// Returns the [`Driver`] of a candle CUDA device that [`open`] has opened.
///
/// # Errors
/// [`Error::Unavailable`] if [`open`] did not open the device, so that it is not set up.
pub(super) fn of(device: &CudaDevice) -> Result<Arc<dyn Driver>> {
    let found: Arc<Cuda> = OPEN.find(|cuda| cuda.device.id() == device.id())?;
    Ok(found)
}

impl Cuda {
    /// Creates [`Error::Stopped`] with the name of this device and the reason `why`.
    fn stopped(&self, why: impl std::fmt::Display) -> Error {
        Error::Stopped { device: self.name(), why: why.to_string() }
    }

    /// The name of the device as users write it, such as `cuda:0`.
    fn name(&self) -> String {
        format!("cuda:{}", self.context.ordinal)
    }

    /// Allocates `bytes` bytes, calls `fill` once to write them, and returns them. If `fill` fails, they are freed.
    ///
    /// # Errors
    /// [`Error::Full`], with the free and the total memory (0 if the driver does not report them), when the device has
    /// no memory left. [`Error::Stopped`] for every other error of the driver.
    fn allocate(&self, bytes: usize, fill: impl Fn(&Memory) -> std::result::Result<(), CallError>) -> Result<Memory> {
        let memory = self.context.allocate(bytes).and_then(|memory| fill(&memory).map(|()| memory));
        memory.map_err(|error| {
            if error.code != sys::OUT_OF_MEMORY {
                return self.stopped(error);
            }
            let (free, total) = self.context.free_and_total().unwrap_or_default();
            Error::Full { device: self.name(), wanted: bytes as u64, free, total }
        })
    }

    /// Creates a contiguous tensor, outside any autograd graph, whose memory `fill` writes.
    ///
    /// # Errors
    /// [`Error::Dtype`] for an element type that CUDA tensors do not have, [`Error::Full`] when the device has no
    /// memory left, [`Error::Stopped`] for every other error of the driver.
    fn tensor(
        &self,
        shape: &[usize],
        dtype: DType,
        fill: impl Fn(&Memory) -> std::result::Result<(), CallError>,
    ) -> Result<Tensor> {
        let wrap = match dtype {
            DType::F32 => wrap::<f32>,
            DType::BF16 => wrap::<bf16>,
            DType::F16 => wrap::<f16>,
            DType::F64 => wrap::<f64>,
            DType::I64 => wrap::<i64>,
            DType::U32 => wrap::<u32>,
            DType::U8 => wrap::<u8>,
            other => return Err(Error::dtype(format!("`{}` is not kept on a CUDA device", other.as_str()))),
        };
        let count = shape.iter().product::<usize>();
        let memory = self.allocate(count * dtype.size_in_bytes(), fill)?;
        let storage = Storage::Cuda(wrap(&self.device, memory, count));
        Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
    }

    /// Checks `word`, the fault word as a read returned it. If a kernel met an index out of range, fails with that
    /// index, and first resets the word in the device memory `fault` so that later reads do not fail for it again.
    fn expect_no_fault(&self, fault: &Memory, word: [u8; 8]) -> Result<()> {
        if word == FAULT_FREE {
            return Ok(());
        }
        fault.write(0, &FAULT_FREE).map_err(|error| self.stopped(error))?;
        let index = !(u64::from_le_bytes(word) as u32);
        Err(Error::argument(format!("a kernel on `{}` met the index {index}, which is out of range", self.name())))
    }
}

/// Wraps device memory that holds `count` elements of type `T` as candle's storage of a tensor.
fn wrap<T: CudaDType + DeviceRepr>(device: &CudaDevice, memory: Memory, count: usize) -> CudaStorage {
    let slice = CudaSlice::<T>::new(Arc::new(memory), count, device.cuda_stream());
    CudaStorage::wrap_cuda_slice(slice, device.clone())
}

impl Driver for Cuda {
    /// Allocates a contiguous tensor with unspecified content. Fails with [`Error::Dtype`] for another type than f32,
    /// bf16, f16, f64, i64, u32 and u8, and with [`Error::Full`] when the device has no memory left.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.tensor(shape, dtype, |_| Ok(()))
    }

    /// Allocates a contiguous tensor and queues setting its bytes to zero. Fails as [`empty`](Self::empty) does.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.tensor(shape, dtype, Memory::clear)
    }

    /// Allocates a contiguous tensor and copies the host bytes `numbers` into it, which have been read when this
    /// returns. Fails as [`empty`](Self::empty) does, and if there are more bytes than the tensor has.
    fn upload(&self, numbers: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor> {
        self.tensor(shape, dtype, |memory| memory.write(0, numbers))
    }

    /// Queues a kernel with contiguous tensors, which the loader compiles and loads if it is not yet; see
    /// [`Driver::launch`].
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
        launch::launch(self, kernel, build, grid, arguments)
    }

    /// Queues a matrix product by cuBLAS, with sums in f32; see [`Driver::multiply`].
    fn multiply(&self, views: [MatrixView<'_>; 3], dims: [usize; 3], factor: f32, add: bool) -> Result<()> {
        launch::multiply(self, views, dims, factor, add)
    }

    /// Waits for all queued work and copies the elements of a contiguous tensor into the host buffer `into`, which has
    /// exactly as many bytes. Also reads the fault word: if a kernel met an index out of range, resets it and fails.
    fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()> {
        let (memory, start) = launch::memory(self, tensor, "a read")?;
        // Locked until the word is reset, so that only the reported fault is erased. The word does not say which thread
        // queued the kernel, so one thread at a time must compute on a device and read its results.
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = FAULT_FREE;
        let parts = [(&memory, start, into), (&*fault, 0, &mut word)];
        self.context.read(parts).map_err(|error| self.stopped(error))?;
        self.expect_no_fault(&fault, word)
    }

    /// Returns the number of multiprocessors of the device.
    fn processors(&self) -> u32 {
        self.processors
    }

    /// Returns whether kernels are compiled for products of warpgroups.
    fn has_warpgroups(&self) -> bool {
        self.warpgroups
    }

    /// Returns name, architecture (such as `sm_90`), software versions and memory of the device. Unused memory of the
    /// pool counts as free; the peak is the most bytes of the pool that were in use at one time.
    fn info(&self) -> Result<DeviceInfo> {
        let stopped = |error: CallError| self.stopped(error);
        let pool = |which| self.context.pool_attribute(which).map_err(stopped);
        let (free, total) = self.context.free_and_total().map_err(stopped)?;
        let (major, minor) = self.context.capability().map_err(stopped)?;
        Ok(DeviceInfo {
            name: self.context.name().map_err(stopped)?,
            architecture: format!("sm_{major}{minor}"),
            software: self.software.clone(),
            total,
            // Unused memory of the pool is free for the next allocation.
            free: free + pool(sys::POOL_RESERVED_CURRENT)?.saturating_sub(pool(sys::POOL_USED_CURRENT)?),
            peak: pool(sys::POOL_USED_HIGH)?,
        })
    }

    /// Resets the pool's peak of used memory to what is used now.
    fn reset_peak(&self) -> Result<()> {
        // The driver takes a zero here and nothing else; the count begins again at what is used now.
        self.context.set_pool_attribute(sys::POOL_USED_HIGH, 0).map_err(|error| self.stopped(error))
    }

    /// Returns the energy that NVML counts for the device, in joules; `None` if NVML is absent or does not count it.
    fn joules(&self) -> Option<f64> {
        self.context.joules()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use crate::accelerator::Accelerator;
    use crate::parity::TestDevice;

    /// Shows something on a GPU only, where the driver may copy while the test goes on: the stand-in copies at once.
    /// Small and large numbers of bytes take other ways.
    #[test]
    #[ignore = "needs cuda"]
    fn cuda_an_upload_has_read_its_numbers_when_it_returns() {
        let on = TestDevice::at("cuda", DType::F32, 0.0);
        let accelerator = Accelerator::of(&on.device).unwrap().unwrap();
        for count in [1, 1 << 10, (1 << 14) + 1, 1 << 21] {
            for round in 0..8 {
                let mut numbers = vec![round as f32 + 0.5; count];
                let uploaded = accelerator.upload(&numbers, &[count]).unwrap();
                numbers.fill(-1.0);
                let found = accelerator.download::<f32>(&uploaded).unwrap();
                assert!(found.iter().all(|number| *number == round as f32 + 0.5), "{count} numbers, round {round}");
            }
        }
    }
}
