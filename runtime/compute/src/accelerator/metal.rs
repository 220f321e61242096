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

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorageRef, DType, Device, MetalDevice, Tensor};
use candle_metal_kernels::metal::Buffer;

use super::kernel::Kernel;
use super::{Argument, Backend, Build, Grid, Side};
use crate::device::DeviceInfo;
use crate::error::{Error, Result};
use loader::Loader;
use pool::Pool;

/// Devices that are open, by their number. The tensor library tells devices apart by when they were opened, so each is
/// opened once.
static OPEN: Mutex<Vec<(usize, Arc<Metal>)>> = Mutex::new(Vec::new());

/// A device that is open.
struct Metal {
    device: MetalDevice,
    loader: Loader,
    pool: Pool,
    ordinal: usize,
    processors: u32,
    /// The word of `kernels/metal/prelude.metal`, 8 bytes: all ones while nothing is wrong.
    fault: Buffer,
    /// What stands in the place of a pointer that is null: nobody looks at it.
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
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = open.iter().find(|(number, _)| *number == ordinal) {
        return Ok(Device::Metal(found.device.clone()));
    }
    let refused = |why| Error::Unavailable { device: format!("metal:{ordinal}"), why };
    let metal = Arc::new(opening::open(ordinal).map_err(refused)?);
    open.push((ordinal, Arc::clone(&metal)));
    Ok(Device::Metal(metal.device.clone()))
}

/// What stands behind a device of the tensor library.
///
/// # Errors
/// [`Error::Unavailable`] if [`open`] did not open it: then nothing of it is set up.
pub(super) fn of(device: &MetalDevice) -> Result<Arc<dyn Backend>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    match open.iter().find(|(_, metal)| metal.device.id() == device.id()) {
        Some((_, metal)) => Ok(Arc::<Metal>::clone(metal)),
        None => Err(Error::Unavailable {
            device: "metal".into(),
            why: "it was opened past `device::parse`, which compiles its kernels".into(),
        }),
    }
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

impl Backend for Metal {
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
        into: Side<'_>,
        left: Side<'_>,
        right: Side<'_>,
        sides: [usize; 3],
        factor: f32,
        add: bool,
    ) -> Result<()> {
        product::multiply(self, [into, left, right], sides, factor, add)
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
