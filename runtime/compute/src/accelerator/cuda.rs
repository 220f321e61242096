//! A CUDA device: one stream, one pool, one word for faults.
//!
//! All work of a device goes into one stream that is its own, whatever thread asks for it: what orders writes and reads
//! is that stream. Memory goes back to the pool in its order and stays there.

mod compile;
mod launch;
mod loader;
mod memory;
mod opening;
mod probe;
mod product;

use std::sync::{Arc, Mutex};

use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DriverError, sys};
use candle_core::{CpuStorageRef, CudaDevice, DType, Device, Tensor};

use super::argument::{Argument, Build, Grid};
use super::driver::{Driver, Registry};
use super::info::DeviceInfo;
use super::kernel::Kernel;
use super::view::MatrixView;
use crate::error::{Error, Result};
use loader::Loader;

static OPEN: Registry<Cuda> = Registry::new("cuda");

/// A device that is open.
struct Cuda {
    device: CudaDevice,
    stream: Arc<CudaStream>,
    loader: Loader,
    processors: u32,
    /// Keeps products of several threads one after another: they share a workspace.
    products: Mutex<()>,
    /// The word of `kernels/cuda/prelude.cuh`: all ones while nothing is wrong.
    fault: Mutex<CudaSlice<u64>>,
    /// Where that word is.
    fault_address: u64,
    /// The versions of driver, compiler and products, as a person reads them.
    software: String,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.device.fmt(formatter)
    }
}

/// Opens a device, once a process.
///
/// # Errors
/// [`Error::Unavailable`] with what is missing and what brings it.
pub(super) fn open(ordinal: usize) -> Result<Device> {
    Ok(Device::Cuda(OPEN.open(ordinal, opening::open)?.device.clone()))
}

/// Whether the driver's library is there, so that a person would expect a device.
pub(super) fn is_expected() -> bool {
    probe::driver().is_ok()
}

/// The driver of a device of the tensor library.
///
/// # Errors
/// [`Error::Unavailable`] if [`open`] did not open it: then nothing of it is set up.
pub(super) fn of(device: &CudaDevice) -> Result<Arc<dyn Driver>> {
    let found: Arc<Cuda> = OPEN.find(|cuda| cuda.device.id() == device.id())?;
    Ok(found)
}

impl Cuda {
    /// An error of the driver, with the device that it is of.
    fn stopped(&self, error: &DriverError) -> Error {
        Error::Stopped { device: self.name(), why: error.words() }
    }

    /// The device as a person names it.
    fn name(&self) -> String {
        format!("cuda:{}", self.stream.context().ordinal())
    }
}

impl Driver for Cuda {
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        memory::empty(self, shape, dtype)
    }

    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        memory::zeros(self, shape, dtype)
    }

    fn upload(&self, numbers: CpuStorageRef<'_>, shape: &[usize]) -> Result<Tensor> {
        memory::upload(self, numbers, shape)
    }

    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
        launch::launch(self, kernel, build, grid, arguments)
    }

    fn multiply(
        &self,
        into: MatrixView<'_>,
        left: MatrixView<'_>,
        right: MatrixView<'_>,
        dims: [usize; 3],
        factor: f32,
        add: bool,
    ) -> Result<()> {
        product::multiply(self, [into, left, right], dims, factor, add)
    }

    fn read(&self, tensor: &Tensor) -> Result<Tensor> {
        memory::read(self, tensor)
    }

    fn processors(&self) -> u32 {
        self.processors
    }

    fn info(&self) -> Result<DeviceInfo> {
        memory::info(self)
    }

    fn reset_peak(&self) -> Result<()> {
        memory::reset_peak(self)
    }
}

/// Whether the driver has no memory left.
fn is_full(error: &DriverError) -> bool {
    error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
}
