//! What CUDA and Metal implement, and the list of devices that are open.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Tensor};

use super::argument::{Argument, Build, Grid, MatrixView};
use super::kernel::Kernel;
use crate::error::{Error, Result};

/// The name, the software and the memory of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What its maker calls it.
    pub name: String,
    /// What kernels are compiled for, as `sm_90`.
    pub architecture: String,
    /// The driver and the libraries, with their versions.
    pub software: String,
    /// Bytes that it has.
    pub total: u64,
    /// Bytes that can be had.
    pub free: u64,
    /// The most bytes that tensors of this process have taken at one time.
    pub peak: u64,
}

/// What an accelerator can do. [`Accelerator`](super::Accelerator) has checked shapes, types and gaps before it calls this.
pub(crate) trait Driver: std::fmt::Debug + Send + Sync {
    /// Allocates a contiguous tensor with unspecified content.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Creates a contiguous tensor of zeros. The shape has at least one number.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Copies the bytes `numbers` (host) into a new contiguous tensor. They are exactly the bytes that the shape and
    /// type need, at least one number.
    fn upload(&self, numbers: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor>;

    /// Queues a kernel with contiguous tensors; returns before it runs.
    ///
    /// # Errors
    /// When a tensor is on another device, the kernel does not compile, or the device refuses the launch.
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()>;

    /// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` if `add`. `views` are `into`,
    /// `left` and `right`; `dims` are rows and columns of the result, and the terms of each sum.
    fn multiply(&self, views: [MatrixView<'_>; 3], dims: [usize; 3], factor: f32, add: bool) -> Result<()>;

    /// Waits for all queued work, then copies the numbers of a contiguous view into `into` (host), which has exactly as
    /// many bytes.
    ///
    /// # Errors
    /// When the tensor is on another device, or a kernel met an index out of range since the last read.
    fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()>;

    /// The number of multiprocessors (CUDA) or GPU cores (Metal).
    fn processors(&self) -> u32;

    /// Returns the name, the software and the memory of the device.
    fn info(&self) -> Result<DeviceInfo>;

    /// Resets the peak of allocated memory to the bytes that are allocated now.
    fn reset_peak(&self) -> Result<()>;
}

/// Creates the error of a tensor that is not on `device`, where `caller` (a kernel or a kind of work) runs.
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
    /// Creates a registry without open devices. `kind` is `cuda` or `metal`.
    pub(super) const fn new(kind: &'static str) -> Self {
        Self { kind, open: Mutex::new(Vec::new()) }
    }

    /// Returns the device number `ordinal`. If it is not open yet, calls `open` and keeps the result for later calls; a
    /// failure is not kept.
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

    /// Returns the first open device for which `matches` returns true.
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
