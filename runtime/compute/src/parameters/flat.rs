//! In-place passes over flat f32 buffers of the CPU. Each has a fixed cut into tasks, so no result depends on the threads.

use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor, bail};
use rayon::prelude::*;

use crate::error::Result;
use crate::fused::Floats;

/// Numbers of one task.
pub(crate) const TASK_NUMBERS: usize = 1 << 16;

/// A function of the numbers of a tensor, as the tensor library calls it with write access.
struct InPlace<F>(F);

impl<F: Fn(&mut [f32])> InplaceOp1 for InPlace<F> {
    fn name(&self) -> &'static str {
        "update numbers"
    }

    /// Calls the function with the numbers of a contiguous f32 view. Fails for any other view.
    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        match (storage, layout.contiguous_offsets()) {
            (CpuStorage::F32(numbers), Some((start, end))) => self.0(&mut numbers[start..end]),
            _ => bail!("a contiguous f32 tensor is needed"),
        }
        Ok(())
    }
}

/// Calls `work` once with all numbers of a contiguous f32 tensor of the CPU, writable. Fails for any other tensor.
pub(crate) fn update_numbers(tensor: &Tensor, work: impl Fn(&mut [f32])) -> Result<()> {
    Ok(tensor.inplace_op1(&InPlace(work))?)
}

/// Calls `work` for every number of `to`, in parallel, with the number of `from` at the same index. Both are contiguous
/// f32 tensors of the CPU with as many numbers, in different storages.
pub(crate) fn update_pairs(to: &Tensor, from: &Tensor, work: impl Fn(&mut f32, f32) + Sync) -> Result<()> {
    let from: &[f32] = &Floats::of(from, "from")?;
    update_numbers(to, |to| {
        to.par_chunks_mut(TASK_NUMBERS).zip(from.par_chunks(TASK_NUMBERS)).for_each(|(to, from)| {
            to.iter_mut().zip(from).for_each(|(to, from)| work(to, *from));
        });
    })
}
