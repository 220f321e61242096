//! What CUDA and Metal implement, and the list of devices that are open.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Tensor};

use super::argument::{Argument, Build, Grid};
use super::info::DeviceInfo;
use super::kernel::Kernel;
use super::view::MatrixView;
use crate::error::{Error, Result};

/// What an accelerator can do. [`Accelerator`](super::Accelerator) has checked shapes, types and gaps before it calls this.
pub(super) trait Driver: std::fmt::Debug + Send + Sync {
    /// Memory for a tensor; what it holds is left over from an earlier use.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// A tensor of zeros, with at least one number.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Copies numbers of the host, given as bytes, into a new tensor. There are as many as the shape has, at least one.
    fn upload(&self, numbers: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor>;

    /// Queues a kernel with contiguous tensors; returns before it runs.
    ///
    /// # Errors
    /// When a tensor is on another device, the kernel does not compile, or the device refuses the launch.
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()>;

    /// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` where `add` is set. `views` are
    /// `into`, `left` and `right`; `dims` are the rows and columns of the result, and the numbers of each sum.
    fn multiply(&self, views: [MatrixView<'_>; 3], dims: [usize; 3], factor: f32, add: bool) -> Result<()>;

    /// Waits for the queue, and copies the numbers of a contiguous view into bytes of the host, as many as they have.
    ///
    /// # Errors
    /// When the tensor is on another device, or a kernel met an index out of range since the last read.
    fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()>;

    /// The number of multiprocessors.
    fn processors(&self) -> u32;

    /// The name, the software and the memory of the device.
    fn info(&self) -> Result<DeviceInfo>;

    /// Sets the peak of allocated memory to what is allocated now.
    fn reset_peak(&self) -> Result<()>;
}

/// The error of a tensor that is not on the device where `caller`, a kernel or a kind of work, runs.
pub(super) fn elsewhere(caller: &str, device: &str) -> Error {
    Error::argument(format!("`{caller}` on `{device}` was given a tensor of another device"))
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
