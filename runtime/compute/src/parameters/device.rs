//! The passes over flat buffers as kernel launches of an accelerator. In f32 they have the bits of the CPU's passes,
//! except for the factor of gradient clipping, see [`Norm`].

use candle_core::{DType, Device, Tensor};

use crate::accelerator::{Accelerator, Argument, Grid, arguments, kernel};
use crate::error::{Error, Result};

/// Slots begin at multiples of this many numbers, which are 16 bytes or more in any type.
pub(super) const EVEN: usize = 8;
/// Numbers of one part of a norm, as `kernels/optimizer.h` has it.
const NORM_PART: usize = 1 << 16;
/// Threads of a block of the kernels of the norm.
const THREADS: u32 = 256;

/// Creates a flat f32 buffer `[count]` of zeros on any device.
pub(crate) fn zeros(count: usize, device: &Device) -> Result<Tensor> {
    match Accelerator::of(device)? {
        None => Ok(Tensor::zeros(count, DType::F32, device)?),
        Some(accelerator) => accelerator.zeros(&[count], DType::F32),
    }
}

/// Copies a tensor of the CPU to the accelerator as contiguous f32, in its shape. Fails for a tensor of another device.
pub(super) fn upload_contiguous(accelerator: &Accelerator, tensor: &Tensor) -> Result<Tensor> {
    if !tensor.device().is_cpu() {
        let device = crate::device::describe(tensor.device());
        return Err(Error::argument(format!("the parameters are on another device than `{device}`")));
    }
    let numbers = tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    accelerator.upload(&numbers, tensor.dims())
}

/// Queues `to ← from`: `to` is f32, `from` has as many numbers of any float type.
pub(super) fn copy(accelerator: &Accelerator, to: &Tensor, from: &Tensor) -> Result<()> {
    launch_elementwise(accelerator, &kernel::WIDEN, from.dtype(), to, from)
}

/// Queues `to ← to + from`: `to` is f32, `from` has as many numbers of any float type.
pub(super) fn add(accelerator: &Accelerator, to: &Tensor, from: &Tensor) -> Result<()> {
    launch_elementwise(accelerator, &kernel::ACCUMULATE, from.dtype(), to, from)
}

/// Queues `to ← from`, rounded to the type of `to`: `from` is f32 and has as many numbers.
pub(super) fn narrow(accelerator: &Accelerator, to: &Tensor, from: &Tensor) -> Result<()> {
    launch_elementwise(accelerator, &kernel::NARROW_TO_ACT, to.dtype(), to, from)
}

/// Queues the element-wise kernel `kernel` from `from` to `to`, which have as many numbers, with a factor of 1. The
/// kernel is compiled for the activation type `act`: the type of that one of the two tensors which need not be f32.
fn launch_elementwise(
    accelerator: &Accelerator,
    kernel: &kernel::Kernel,
    act: DType,
    to: &Tensor,
    from: &Tensor,
) -> Result<()> {
    let count = from.elem_count();
    let arguments = arguments![to, from, 1f32, count as u64];
    accelerator.launch(kernel, act, accelerator.flat(count), &arguments)
}

/// The norm of all gradients and the clip factor, on an accelerator that may not have computed them yet.
///
/// The limit is rounded to f32. So one that f32 cannot represent, such as 0.1, may give a factor that differs from the
/// CPU's in the last bit; and a norm past the largest f32 is not finite here, while the CPU clips it.
#[derive(Debug)]
pub(crate) struct Norm {
    /// `[2]` f32: the norm is their sum.
    halves: Tensor,
    /// `[1]` f32: min(1, limit / (norm + 10⁻⁶)), or 1 for the limit 0; NaN if the norm is not finite.
    pub(crate) factor: Tensor,
}

impl Norm {
    /// Queues the kernels that compute the norm of `gradients` and the clip factor min(1, limit / (norm + 10⁻⁶)), and
    /// does not wait for them. The factor is 1 if `limit` is 0, and NaN if the norm is not finite.
    ///
    /// # Errors
    /// When there are too many numbers for one norm, or the device fails.
    pub(crate) fn of(accelerator: &Accelerator, gradients: &Tensor, limit: f64) -> Result<Self> {
        let count = gradients.elem_count();
        let parts = u32::try_from(count.div_ceil(NORM_PART))
            .map_err(|_| Error::shape(format!("{count} numbers are too many for one norm")))?;
        // Eight bytes a part, however the machine sums them.
        let sums = accelerator.empty(&[parts as usize, 2], DType::F32)?;
        let arguments = arguments![&sums, gradients, count as u64];
        accelerator.launch(&kernel::SQUARE_SUMS, DType::F32, Grid::of(parts, THREADS), &arguments)?;
        let norm = Self { halves: accelerator.empty(&[2], DType::F32)?, factor: accelerator.empty(&[1], DType::F32)? };
        let limit = Argument::Number(limit as f32);
        let arguments = arguments![&norm.halves, &norm.factor, &sums, parts, limit];
        accelerator.launch(&kernel::CLIP_FACTOR, DType::F32, Grid::of(1, THREADS), &arguments)?;
        Ok(norm)
    }

    /// Waits for the device and returns the norm, the sum of both halves in f64.
    ///
    /// # Errors
    /// When the device failed, or a kernel met an index out of range.
    pub(crate) fn read(&self, accelerator: &Accelerator) -> Result<f64> {
        Ok(accelerator.download::<f32>(&self.halves)?.into_iter().map(f64::from).sum())
    }
}
