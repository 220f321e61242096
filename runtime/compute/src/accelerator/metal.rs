//! A Metal device: one queue that is the tensor library's, a pool of memory that processor and GPU share, one word for
//! faults.
//!
//! Launches go into the tensor library's own encoder, which runs kernels side by side and puts a barrier where one writes
//! what another reads; so each launch says of every buffer whether it is written.

mod launch;
mod loader;
mod memory;
mod opening;
mod pool;
mod product;

use std::sync::Arc;

use candle_core::{CpuStorageRef, DType, Device, MetalDevice, Tensor};
use candle_metal_kernels::metal::Buffer;

use super::argument::{Argument, Build, Grid};
use super::driver::{Driver, Registry};
use super::info::DeviceInfo;
use super::kernel::Kernel;
use super::view::MatrixView;
use crate::error::{Error, Result};
use loader::Loader;
use pool::Pool;

static OPEN: Registry<Metal> = Registry::new("metal");

/// A device that is open.
struct Metal {
    device: MetalDevice,
    loader: Loader,
    pool: Pool,
    ordinal: usize,
    processors: u32,
    /// The word of `kernels/metal/prelude.metal`, 8 bytes: all ones while nothing is wrong.
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
}

impl Driver for Metal {
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
        self.pool.reset_peak(&self.device);
        Ok(())
    }
}
