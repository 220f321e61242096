//! The [`Driver`] trait, which CUDA and Metal implement, and the registry of open devices.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Tensor};

use super::argument::{Argument, Build, Grid, MatrixView};
use super::kernel::Kernel;
use crate::error::{Error, Result};

/// The name, the software and the memory of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name that its maker gives it, such as `NVIDIA H100`.
    pub name: String,
    /// The architecture that kernels are compiled for, such as `sm_90`.
    pub architecture: String,
    /// The versions of driver and libraries (CUDA), or just `Metal`.
    pub software: String,
    /// The memory of the device in bytes (CUDA), or the most bytes that Metal recommends to allocate.
    pub total: u64,
    /// Bytes that can still be allocated, including unused memory of the pool.
    pub free: u64,
    /// The most bytes that this process had allocated for tensors at one time, since the device was opened or the peak
    /// was last reset. On Metal, unused buffers of the pool count too.
    pub peak: u64,
}

/// The operations of an accelerator, which CUDA and Metal implement. [`Accelerator`](super::Accelerator) checks shapes
/// and element types before it calls them, and contiguity for launches and reads.
pub(crate) trait Driver: std::fmt::Debug + Send + Sync {
    /// Allocates a contiguous tensor with unspecified content. Fails with [`Error::Dtype`] for a type that the device
    /// does not support, and with [`Error::Full`] when it does not have enough memory.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Creates a contiguous tensor of zeros. `shape` has no dimension 0. Fails as [`empty`](Self::empty) does.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Copies host bytes into a new contiguous tensor. `numbers` holds the elements in row-major order, at least one,
    /// and has exactly as many bytes as `shape` and `dtype` need. Fails as [`empty`](Self::empty) does.
    fn upload(&self, numbers: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor>;

    /// Queues a kernel with contiguous tensors; returns before it runs.
    ///
    /// # Errors
    /// When a tensor is on another device, the kernel does not compile, or the device refuses the launch.
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()>;

    /// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` if `add`. `views` are `into`,
    /// `left` and `right`. `dims` are `[rows, columns, depth]`: the shape of `into`, and the number of terms that each
    /// of its elements sums. Returns before the product is computed.
    ///
    /// # Errors
    /// When a matrix is on another device or has gaps within its rows, a dimension is 2³¹ or more (CUDA) or 2³² or more
    /// (Metal), or the device refuses.
    fn multiply(&self, views: [MatrixView<'_>; 3], dims: [usize; 3], factor: f32, add: bool) -> Result<()>;

    /// Waits for all queued work, then copies the elements of a contiguous tensor into the host buffer `into`, which
    /// has exactly as many bytes.
    ///
    /// # Errors
    /// When the tensor is on another device, or a kernel met an index out of range since the last read.
    fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()>;

    /// The number of multiprocessors (CUDA), or an upper bound of the number of GPU cores (Metal).
    fn processors(&self) -> u32;

    /// Whether kernels are compiled for products of warpgroups: on compute capability 9.0 of CUDA.
    fn has_warpgroups(&self) -> bool {
        false
    }

    /// Returns the name, the software and the memory of the device. Fails with [`Error::Stopped`] if it does not
    /// answer.
    fn info(&self) -> Result<DeviceInfo>;

    /// Resets the peak of allocated memory, which [`info`](Self::info) returns, to the bytes that are allocated now.
    /// Fails with [`Error::Stopped`] if the device does not answer.
    fn reset_peak(&self) -> Result<()>;

    /// Returns the energy in joules that the device took since its driver was loaded, all programs together; `None` if
    /// nothing counts it.
    fn joules(&self) -> Option<f64> {
        None
    }
}

/// Creates the error for a tensor that is not on `device`. `caller` names what was to use it there: a kernel, or a kind
/// of work such as `a read`.
pub(super) fn wrong_device_error(caller: &str, device: &str) -> Error {
    Error::argument(format!("`{caller}` on `{device}` was given a tensor of another device"))
}

/// The open devices of one kind, by their number. Each is opened once per process, since candle takes two openings of
/// one device for two different devices.
pub(super) struct Registry<D> {
    /// The kind as users write it: `cuda` or `metal`.
    kind: &'static str,
    open: Mutex<Vec<(usize, Arc<D>)>>,
}

impl<D> Registry<D> {
    /// Creates a registry without open devices. `kind` is `cuda` or `metal`.
    pub(super) const fn new(kind: &'static str) -> Self {
        Self { kind, open: Mutex::new(Vec::new()) }
    }

    /// Returns the device number `ordinal`. If it is not open yet, calls `open` with the number and keeps the result
    /// for later calls. A failure is not kept, so the next call tries again. Holds the lock of the registry while
    /// `open` runs.
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
    /// [`Error::Unavailable`] if there is none: the device was created without [`open`](Self::open), so it is not set
    /// up.
    pub(super) fn find(&self, matches: impl Fn(&D) -> bool) -> Result<Arc<D>> {
        let devices = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found = devices.iter().find(|(_, device)| matches(device)).map(|(_, device)| Arc::clone(device));
        found.ok_or_else(|| Error::Unavailable {
            device: self.kind.into(),
            why: "it was not opened by `device::parse`, which sets it up".into(),
        })
    }
}
