//! What CUDA and Metal implement, and the list of devices that are open.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorageRef, DType, Tensor};

use super::argument::{Argument, Build, Grid};
use super::info::DeviceInfo;
use super::kernel::Kernel;
use super::view::MatrixView;
use crate::error::{Error, Result};

/// What an accelerator can do. Shapes and kinds of arguments are checked before any of this is called.
pub(super) trait Driver: std::fmt::Debug + Send + Sync {
    /// Memory for a tensor; what it holds is left over from an earlier use.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// A tensor of zeros, with at least one number.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Copies numbers of the host into a new tensor. There are as many as the shape has, at least one.
    fn upload(&self, numbers: CpuStorageRef<'_>, shape: &[usize]) -> Result<Tensor>;

    /// Queues a kernel; returns before it runs.
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()>;

    /// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` where `add` is set. `dims` are the
    /// rows and columns of the result, and the numbers of each sum.
    fn multiply(
        &self,
        into: MatrixView<'_>,
        left: MatrixView<'_>,
        right: MatrixView<'_>,
        dims: [usize; 3],
        factor: f32,
        add: bool,
    ) -> Result<()>;

    /// Waits for the queue, and copies the numbers of a contiguous view to a tensor of the CPU.
    ///
    /// # Errors
    /// When the view has gaps, or a kernel met an index out of range since the last read.
    fn read(&self, tensor: &Tensor) -> Result<Tensor>;

    /// The number of multiprocessors.
    fn processors(&self) -> u32;

    /// The name, the software and the memory of the device.
    fn info(&self) -> Result<DeviceInfo>;

    /// Sets the peak of allocated memory to what is allocated now.
    fn reset_peak(&self) -> Result<()>;
}

/// The open devices of one kind, by their number. The tensor library tells devices apart by when they were opened, so
/// each is opened once a process.
pub(super) struct Registry<D> {
    /// `cuda` or `metal`, as people name it.
    kind: &'static str,
    open: Mutex<Vec<(usize, Arc<D>)>>,
}

impl<D> Registry<D> {
    /// No open device.
    pub(super) const fn new(kind: &'static str) -> Self {
        Self { kind, open: Mutex::new(Vec::new()) }
    }

    /// The device of a number; calls `open` if it is not open yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason that `open` gives.
    pub(super) fn open(
        &self,
        ordinal: usize,
        open: impl FnOnce(usize) -> std::result::Result<D, String>,
    ) -> Result<Arc<D>> {
        let mut devices = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = devices.iter().find(|(number, _)| *number == ordinal) {
            return Ok(Arc::clone(found));
        }
        let unavailable = |why| Error::Unavailable { device: format!("{}:{ordinal}", self.kind), why };
        let device = Arc::new(open(ordinal).map_err(unavailable)?);
        devices.push((ordinal, Arc::clone(&device)));
        Ok(device)
    }

    /// The open device for which `matches` holds.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is none: the device was made without [`open`](Self::open), so it is not set up.
    pub(super) fn find(&self, matches: impl Fn(&D) -> bool) -> Result<Arc<D>> {
        let devices = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found = devices.iter().find(|(_, device)| matches(device)).map(|(_, device)| Arc::clone(device));
        found.ok_or_else(|| Error::Unavailable {
            device: self.kind.into(),
            why: "it was not opened by `device::parse`, which sets it up".into(),
        })
    }
}
