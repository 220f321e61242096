//! An accelerator behind one door: tensors made, filled and read there, kernels launched, products taken.
//!
//! What operations there are, `fused` knows; what a pointer is, only the rooms behind this door know. CUDA is in every
//! build for Linux, Metal in every build for macOS; neither is touched before a person asks for it.

#![cfg_attr(
    not(any(target_os = "linux", target_os = "macos")),
    allow(dead_code, reason = "no accelerator is built for this system, so nobody can have one")
)]

mod argument;
#[cfg(target_os = "linux")]
mod cuda;
pub(crate) mod kernel;
#[cfg(target_os = "macos")]
mod metal;
#[cfg(any(test, target_os = "macos"))]
#[path = "metal/texts.rs"]
mod metal_texts;
mod side;
#[cfg(any(test, target_os = "linux"))]
mod texts;

use std::sync::Arc;

use candle_core::{CpuStorageRef, DType, Device, Tensor, WithDType};

use crate::device::DeviceInfo;
use crate::error::{Error, Result};
pub(crate) use argument::{Argument, Build, Grid};
use kernel::Kernel;
pub(crate) use side::Side;

/// Numbers that a thread of a flat pass takes at a time, times the threads of a block.
const FLAT_BLOCK: u64 = 8 * 256;
/// Blocks of a flat pass, or of one over rows, for each multiprocessor.
const BLOCKS: u64 = 16;

/// What stands behind the door. Shapes and kinds of arguments are checked before any of this is called.
trait Backend: std::fmt::Debug + Send + Sync {
    /// Memory for a tensor; what it holds is left over from an earlier use.
    fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// The same of zeros; there is at least one.
    fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor>;

    /// Numbers of the host as a tensor, as many as the shape has; there is at least one.
    fn upload(&self, numbers: CpuStorageRef<'_>, shape: &[usize]) -> Result<Tensor>;

    /// Puts a kernel into the stream.
    fn launch(&self, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()>;

    /// Puts `into ← factor · left · right`, or `into ← into + …`, into the stream. `sides` are the rows and columns of
    /// the result, and the numbers of each sum.
    fn multiply(
        &self,
        into: Side<'_>,
        left: Side<'_>,
        right: Side<'_>,
        sides: [usize; 3],
        factor: f32,
        add: bool,
    ) -> Result<()>;

    /// Waits, and copies exactly the numbers of a contiguous view to a tensor of the CPU.
    fn read(&self, tensor: &Tensor) -> Result<Tensor>;

    /// Its multiprocessors.
    fn processors(&self) -> u32;

    /// What it is, and how its memory stands.
    fn info(&self) -> Result<DeviceInfo>;

    /// Lets the count of the most that tensors have taken begin again at what they take now.
    fn reset_peak(&self) -> Result<()>;
}

/// An accelerator that is open. A clone is the same one.
#[derive(Debug, Clone)]
pub(crate) struct Accelerator {
    backend: Arc<dyn Backend>,
}

/// Opens a device that a person named, or says why it cannot be used. It is opened once a process.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) fn open(kind: &str, ordinal: usize) -> Result<Device> {
    match kind {
        #[cfg(target_os = "linux")]
        "cuda" => cuda::open(ordinal),
        #[cfg(target_os = "macos")]
        "metal" => metal::open(ordinal),
        _ => Err(Error::Unavailable { device: format!("{kind}:{ordinal}"), why: not_built(kind).into() }),
    }
}

/// Whether something of a device is there, so that a person would expect it: the driver of CUDA, a Mac.
pub(crate) fn is_expected(kind: &str) -> bool {
    match kind {
        #[cfg(target_os = "linux")]
        "cuda" => cuda::is_expected(),
        _ => kind == "metal" && cfg!(target_os = "macos"),
    }
}

/// Why this build has no such device.
fn not_built(kind: &str) -> &'static str {
    match kind {
        "metal" => "Metal is there on Macs alone, and this tunebox was built for another system",
        "cuda" => "CUDA is there on Linux alone, and this tunebox was built for another system",
        _ => "this tunebox was not built for it",
    }
}

impl Accelerator {
    /// That of a device; none for the CPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the device was not opened by [`crate::device::parse`].
    pub(crate) fn of(device: &Device) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            #[cfg(target_os = "linux")]
            Device::Cuda(device) => Ok(Some(Self { backend: cuda::of(device)? })),
            #[cfg(target_os = "macos")]
            Device::Metal(device) => Ok(Some(Self { backend: metal::of(device)? })),
            other => {
                let device = crate::device::describe(other);
                let why = not_built(device.split(':').next().unwrap_or_default()).into();
                Err(Error::Unavailable { device, why })
            }
        }
    }

    /// A tensor whose numbers a kernel is about to write: until then they are anything.
    pub(crate) fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.backend.empty(shape, dtype)
    }

    /// A tensor of zeros.
    pub(crate) fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        if shape.contains(&0) {
            return self.empty(shape, dtype);
        }
        self.backend.zeros(shape, dtype)
    }

    /// Numbers of the host as a tensor: f32, u32, u8 and the others that the tensor library has.
    pub(crate) fn upload<T: WithDType>(&self, numbers: &[T], shape: &[usize]) -> Result<Tensor> {
        if shape.iter().product::<usize>() != numbers.len() {
            return Err(Error::shape(format!("{} numbers are no tensor of shape {shape:?}", numbers.len())));
        }
        if numbers.is_empty() {
            return self.empty(shape, T::DTYPE);
        }
        self.backend.upload(T::cpu_storage_ref(numbers), shape)
    }

    /// The numbers of a contiguous view, and no others of its storage. This waits until they are there.
    ///
    /// # Errors
    /// When the view has gaps or numbers of another type, or a kernel met an index that was out of range.
    pub(crate) fn download<T: WithDType>(&self, tensor: &Tensor) -> Result<Vec<T>> {
        if tensor.elem_count() == 0 {
            return Ok(Vec::new());
        }
        Ok(self.backend.read(tensor)?.flatten_all()?.to_vec1()?)
    }

    /// Writes one number into every place of an f32 tensor.
    pub(crate) fn fill(&self, x: &Tensor, number: f32) -> Result<()> {
        let count = x.elem_count();
        self.launch(&kernel::FILL, DType::F32, self.flat(count), &[x.into(), number.into(), (count as u64).into()])
    }

    /// Puts a kernel into the stream, compiled for a type of activations, and for a size of heads where it asks. A grid
    /// without blocks launches nothing.
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
        self.backend.launch(kernel, build, grid, arguments)
    }

    /// `into ← factor · left · right`, or `into ← into + …`. Sums are in f32; both sides have one type, `into` has it
    /// or f32. Rows may have gaps between them, numbers of a row may not.
    pub(crate) fn multiply<'a>(
        &self,
        into: impl Into<Side<'a>>,
        left: Side<'_>,
        right: Side<'_>,
        factor: f32,
        add: bool,
    ) -> Result<()> {
        let into = into.into();
        let sides = Side::meet(&into, &left, &right)?;
        if sides[0] == 0 || sides[1] == 0 {
            return Ok(());
        }
        self.backend.multiply(into, left, right, sides, factor, add)
    }

    /// Its multiprocessors.
    pub(crate) fn processors(&self) -> u32 {
        self.backend.processors()
    }

    /// What it is, and how its memory stands.
    pub(crate) fn info(&self) -> Result<DeviceInfo> {
        self.backend.info()
    }

    /// Lets the count of the most that tensors have taken begin again at what they take now.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        self.backend.reset_peak()
    }

    /// The grid of a pass over a flat buffer.
    pub(crate) fn flat(&self, count: usize) -> Grid {
        self.at_most((count as u64).div_ceil(FLAT_BLOCK), 256)
    }

    /// The grid of a kernel whose blocks walk over rows.
    pub(crate) fn over_rows(&self, rows: usize, threads: u32) -> Grid {
        self.at_most(rows as u64, threads)
    }

    fn at_most(&self, blocks: u64, threads: u32) -> Grid {
        let most = BLOCKS * u64::from(self.processors());
        Grid::of(u32::try_from(blocks.min(most)).unwrap_or(u32::MAX), threads)
    }

    /// The numbers in another type: themselves where it is theirs.
    pub(crate) fn cast(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let kernel = match (x.dtype(), dtype) {
            (from, to) if from == to => return Ok(x.clone()),
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
        let (y, count) = (self.empty(x.dims(), dtype)?, x.elem_count());
        let arguments = [(&y).into(), x.into(), 1f32.into(), (count as u64).into()];
        // Types are in the names of these; the module is one that a step has anyway.
        self.launch(kernel, DType::F32, self.flat(count), &arguments)?;
        Ok(y)
    }
}

/// Whether a contiguous tensor begins on a boundary of 16 bytes, as vector loads want it. Allocations do; views may not.
pub(crate) fn even(tensor: &Tensor) -> bool {
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
        assert!(even(&x) && even(&x.narrow(0, 4, 8).unwrap()));
        assert!(!even(&x.narrow(0, 3, 8).unwrap()));
    }
}
