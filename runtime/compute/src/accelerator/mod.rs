//! Accelerators (GPUs through CUDA or Metal): allocating, filling and reading tensors, launching kernels, multiplying
//! matrices.
//!
//! [`Accelerator`] checks arguments; `cuda` and `metal` implement [`Driver`]. CUDA is in every build for Linux, Metal
//! in every build for macOS. The libraries of CUDA are opened only when a device is asked for.

#![cfg_attr(
    not(any(target_os = "linux", target_os = "macos")),
    allow(dead_code, reason = "no accelerator is built for this system")
)]

mod argument;
#[cfg(target_os = "linux")]
mod cuda;
mod driver;
pub(crate) mod kernel;
#[cfg(target_os = "macos")]
mod metal;
#[cfg(any(test, target_os = "linux", target_os = "macos"))]
mod sources;

use std::sync::Arc;

use bytemuck::Pod;
use candle_core::{DType, Device, Tensor, WithDType};

use crate::device::describe;
use crate::error::{Error, Result};
pub(crate) use argument::{Argument, Build, Grid, MatrixView, arguments, extent};
pub use driver::DeviceInfo;
use driver::Driver;
use kernel::Kernel;

/// Elements that a block of an element-wise kernel handles at a time: 8 for each of its 256 threads.
const FLAT_BLOCK: u64 = 8 * 256;
/// The most blocks for each multiprocessor in the grid of an element-wise kernel, or of one whose blocks loop over
/// rows.
const BLOCKS: u64 = 16;

/// An open accelerator. Clones share the device.
#[derive(Debug, Clone)]
pub(crate) struct Accelerator {
    pub(crate) driver: Arc<dyn Driver>,
}

/// Opens the device `kind:ordinal`, where `kind` is `cuda` or `metal` and `ordinal` counts from 0. Each device is
/// opened once per process: later calls return the same device.
///
/// # Errors
/// [`Error::Unavailable`] with the reason, also for a kind that this build does not have.
pub(crate) fn open(kind: &str, ordinal: usize) -> Result<Device> {
    match kind {
        #[cfg(target_os = "linux")]
        "cuda" => cuda::open(ordinal),
        #[cfg(target_os = "macos")]
        "metal" => metal::open(ordinal),
        _ => Err(Error::Unavailable { device: format!("{kind}:{ordinal}"), why: not_built(kind).into() }),
    }
}

/// Whether a user would expect a usable device of this kind: for `cuda` on Linux if the driver's library can be opened,
/// for `metal` on every Mac. False for other kinds and systems.
pub(crate) fn is_expected(kind: &str) -> bool {
    match kind {
        #[cfg(target_os = "linux")]
        "cuda" => cuda::is_expected(),
        _ => kind == "metal" && cfg!(target_os = "macos"),
    }
}

/// The reason why this build has no devices of a kind, for [`Error::Unavailable`].
fn not_built(kind: &str) -> &'static str {
    match kind {
        "metal" => "Metal is there on Macs alone, and this tunebox was built for another system",
        "cuda" => "CUDA is there on Linux alone, and this tunebox was built for another system",
        _ => "this tunebox was not built for it",
    }
}

impl Accelerator {
    /// Returns the accelerator behind an open device. `None` for the CPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the device was not opened by [`crate::device::parse`], or this build has none of its
    /// kind.
    pub(crate) fn of(device: &Device) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            #[cfg(target_os = "linux")]
            Device::Cuda(device) => Ok(Some(Self { driver: cuda::of(device)? })),
            #[cfg(target_os = "macos")]
            Device::Metal(device) => Ok(Some(Self { driver: metal::of(device)? })),
            other => {
                let device = describe(other);
                let why = not_built(device.split(':').next().unwrap_or_default()).into();
                Err(Error::Unavailable { device, why })
            }
        }
    }

    /// Allocates a contiguous tensor with unspecified content.
    ///
    /// # Errors
    /// [`Error::Dtype`] for a type that the device does not support, [`Error::Full`] when it does not have enough
    /// memory.
    pub(crate) fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.driver.empty(shape, dtype)
    }

    /// Creates a contiguous tensor of zeros. A dimension may be 0.
    ///
    /// # Errors
    /// [`Error::Full`] when the device does not have enough memory; also for a type that it does not support.
    pub(crate) fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        if shape.contains(&0) {
            return self.empty(shape, dtype);
        }
        self.driver.zeros(shape, dtype)
    }

    /// Copies `numbers` from the host, in row-major order, into a new contiguous tensor of `shape`.
    ///
    /// # Errors
    /// [`Error::Shape`] if a tensor of `shape` does not have as many elements as there are `numbers`, [`Error::Dtype`]
    /// for a type that the device does not support, [`Error::Full`] when the device does not have enough memory.
    pub(crate) fn upload<T: WithDType + Pod>(&self, numbers: &[T], shape: &[usize]) -> Result<Tensor> {
        if shape.iter().product::<usize>() != numbers.len() {
            return Err(Error::shape(format!("{} numbers are no tensor of shape {shape:?}", numbers.len())));
        }
        if numbers.is_empty() {
            return self.empty(shape, T::DTYPE);
        }
        self.driver.upload(bytemuck::cast_slice(numbers), T::DTYPE, shape)
    }

    /// Waits for all queued work, then copies the elements of a contiguous tensor to the host, in row-major order. Of a
    /// view, only its own elements are copied. Returns an empty list for an empty tensor, without waiting.
    ///
    /// # Errors
    /// [`Error::Shape`] if the tensor is not contiguous, [`Error::Dtype`] if its elements are not of type `T`,
    /// [`Error::Argument`] if it is on another device or a kernel met an index out of range since the last read.
    pub(crate) fn download<T: WithDType + Pod>(&self, tensor: &Tensor) -> Result<Vec<T>> {
        if tensor.dtype() != T::DTYPE {
            let [found, wanted] = [tensor.dtype(), T::DTYPE].map(|dtype| dtype.as_str());
            return Err(Error::dtype(format!("a tensor of `{found}` is not read as `{wanted}`")));
        }
        expect_contiguous(tensor, "a read")?;
        let mut numbers = vec![T::zeroed(); tensor.elem_count()];
        if !numbers.is_empty() {
            self.driver.read(tensor, bytemuck::cast_slice_mut(&mut numbers))?;
        }
        Ok(numbers)
    }

    /// Queues setting every element of the contiguous f32 tensor `x` to `number`. Does nothing for an empty tensor.
    /// Fails for another element type, gaps, or another device.
    pub(crate) fn fill(&self, x: &Tensor, number: f32) -> Result<()> {
        let count = x.elem_count();
        self.launch(&kernel::FILL, DType::F32, self.flat(count), &arguments![x, number, count as u64])
    }

    /// Queues a kernel. `build` holds the constants that it is compiled with; a `DType` alone is the activation type.
    /// Checks the arguments against the kernel's signature, then does nothing if the grid has no blocks. Returns before
    /// the kernel runs.
    ///
    /// # Errors
    /// When the arguments do not match the signature in number, kind or element type, a tensor is on another device or
    /// not contiguous, the kernel does not compile, or the device refuses the launch.
    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        build: impl Into<Build>,
        grid: Grid,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        let build = build.into();
        kernel.check(build, arguments)?;
        if grid.is_empty() {
            return Ok(());
        }
        for argument in arguments {
            if let Argument::Tensor(tensor) = argument {
                expect_contiguous(tensor, kernel.name)?;
            }
        }
        self.driver.launch(kernel, build, grid, arguments)
    }

    /// Allocates a tensor of `shape`, queues a kernel that writes it, and returns it. The tensor is the kernel's first
    /// argument, and the kernel's signature gives its element type; `arguments` are the others. `build` holds the
    /// constants that the kernel is compiled with.
    ///
    /// # Errors
    /// When the arguments do not match the signature, a tensor is on another device or not contiguous, the kernel does
    /// not compile, or the device refuses the launch; [`Error::Full`] when it has no memory for the result.
    pub(crate) fn compute(
        &self,
        kernel: &Kernel,
        build: impl Into<Build>,
        grid: Grid,
        shape: &[usize],
        arguments: &[Argument<'_>],
    ) -> Result<Tensor> {
        let build = build.into();
        let result = self.empty(shape, kernel.result_dtype(build)?)?;
        self.launch(kernel, build, grid, &[&[Argument::Tensor(&result)], arguments].concat())?;
        Ok(result)
    }

    /// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` if `add`. `into` is `[rows,
    /// columns]`, `left` is `[rows, depth]` and `right` is `[depth, columns]`; the last two may be transposed views.
    /// Both operands have one element type, and `into` has that type or f32. Sums are in f32. The rows of a matrix may
    /// have gaps between them, the elements of a row may not. Does nothing if the result is empty. Does not treat a
    /// `depth` of 0 specially: callers check for it.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Dtype`] when the matrices do not fit together, or when one is on another device, or
    /// the device refuses.
    pub(crate) fn multiply<'a>(
        &self,
        into: impl Into<MatrixView<'a>>,
        left: MatrixView<'_>,
        right: MatrixView<'_>,
        factor: f32,
        add: bool,
    ) -> Result<()> {
        let into = into.into();
        let sides = MatrixView::product_dims(&into, &left, &right)?;
        if sides[0] == 0 || sides[1] == 0 {
            return Ok(());
        }
        self.driver.multiply([into, left, right], sides, factor, add)
    }

    /// The grid of an element-wise kernel over `count` elements: blocks of 256 threads, one block for every 2048
    /// elements (rounded up), but at most [`BLOCKS`] for each multiprocessor. No blocks for 0 elements.
    pub(crate) fn flat(&self, count: usize) -> Grid {
        self.limited_grid((count as u64).div_ceil(FLAT_BLOCK), 256)
    }

    /// The grid of a kernel whose blocks loop over rows: blocks of `threads` threads, one block for each row, but at
    /// most [`BLOCKS`] for each multiprocessor. No blocks for 0 rows.
    pub(crate) fn over_rows(&self, rows: usize, threads: u32) -> Grid {
        self.limited_grid(rows as u64, threads)
    }

    /// A grid of `blocks` blocks of `threads` threads, but at most [`BLOCKS`] blocks for each multiprocessor.
    fn limited_grid(&self, blocks: u64, threads: u32) -> Grid {
        let most = BLOCKS * u64::from(self.driver.processors());
        Grid::of(u32::try_from(blocks.min(most)).unwrap_or(u32::MAX), threads)
    }

    /// Queues converting a contiguous tensor between f32, bf16 and f16 and returns the result, a new tensor. Returns
    /// `x` itself if its type is `dtype` already. Fails with [`Error::Dtype`] for another pair of types.
    pub(crate) fn cast(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        if x.dtype() == dtype {
            return Ok(x.clone());
        }
        let y = self.empty(x.dims(), dtype)?;
        self.cast_into(&y, x)?;
        Ok(y)
    }

    /// Queues converting the elements of `x` to the type of `y` and writing them into `y`. The caller ensures that `y`
    /// has as many elements. Both tensors are contiguous, and their types are two different ones of f32, bf16 and f16;
    /// else this fails.
    pub(crate) fn cast_into(&self, y: &Tensor, x: &Tensor) -> Result<()> {
        let kernel = match (x.dtype(), y.dtype()) {
            (DType::F32, DType::BF16) => &kernel::F32_TO_BF16,
            (DType::F32, DType::F16) => &kernel::F32_TO_F16,
            (DType::BF16, DType::F32) => &kernel::BF16_TO_F32,
            (DType::BF16, DType::F16) => &kernel::BF16_TO_F16,
            (DType::F16, DType::F32) => &kernel::F16_TO_F32,
            (DType::F16, DType::BF16) => &kernel::F16_TO_BF16,
            (from, to) => {
                return Err(Error::dtype(format!("no kernel makes `{}` of `{}`", to.as_str(), from.as_str())));
            }
        };
        let count = x.elem_count();
        // These kernels do not depend on the activation type. With f32 their module is also used by a step's f32
        // kernels.
        self.launch(kernel, DType::F32, self.flat(count), &arguments![y, x, 1f32, count as u64])
    }
}

/// Fails with [`Error::Shape`] for a tensor that is not contiguous; `caller` is named in the error.
fn expect_contiguous(tensor: &Tensor, caller: &str) -> Result<()> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    let (shape, strides) = (tensor.dims(), tensor.stride());
    Err(Error::shape(format!("`{caller}` was given a tensor {shape:?} with gaps: its strides are {strides:?}")))
}

/// Whether a contiguous tensor begins at a multiple of 16 bytes of its storage, as vector loads require. New tensors
/// do; views may not.
pub(crate) fn is_aligned(tensor: &Tensor) -> bool {
    (tensor.layout().start_offset() * tensor.dtype().size_in_bytes()).is_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(target_os = "macos"))]
    fn metal_off_a_mac_is_refused_with_the_reason() {
        let refused = crate::device::parse("metal").unwrap_err();
        let Error::Unavailable { device, why } = &refused else { panic!("{refused:?}") };
        assert_eq!(device, "metal");
        assert!(why.contains("Macs alone"), "{why}");
    }

    #[test]
    fn views_begin_on_boundaries_of_16_bytes_or_not() {
        let x = Tensor::zeros(64, DType::F32, &Device::Cpu).unwrap();
        assert!(is_aligned(&x) && is_aligned(&x.narrow(0, 4, 8).unwrap()));
        assert!(!is_aligned(&x.narrow(0, 3, 8).unwrap()));
    }
}
