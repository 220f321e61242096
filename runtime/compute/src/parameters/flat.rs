//! In-place passes over flat f32 buffers. Each has a fixed cut into tasks, so no result depends on the threads.

use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, bail};
use rayon::prelude::*;

/// Numbers of one task.
pub(crate) const TASK_NUMBERS: usize = 1 << 16;

/// The numbers of a contiguous f32 view, writable. Fails for any other view.
pub(crate) fn numbers_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> candle_core::Result<&'a mut [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(numbers), Some((start, end))) => Ok(&mut numbers[start..end]),
        _ => bail!("a contiguous f32 tensor is needed"),
    }
}

/// The numbers of a contiguous f32 view. Fails for any other view.
pub(crate) fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(numbers), Some((start, end))) => Ok(&numbers[start..end]),
        _ => bail!("a contiguous f32 tensor is needed"),
    }
}

/// An in-place pass over one buffer of the CPU: the function is called for every number.
pub(super) struct EachNumber<F>(pub(super) F);

impl<F: Fn(&mut f32) + Sync> InplaceOp1 for EachNumber<F> {
    fn name(&self) -> &'static str {
        "each number"
    }

    /// Calls the function for every number of the buffer, in parallel.
    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        numbers_mut(storage, layout)?.par_chunks_mut(TASK_NUMBERS).for_each(|chunk| chunk.iter_mut().for_each(&self.0));
        Ok(())
    }
}

/// An in-place pass over a buffer of the CPU beside another of the same length: the function gets each number to write
/// with the one at the same index.
pub(crate) struct EachPair<F>(pub(crate) F);

impl<F: Fn(&mut f32, f32) + Sync> InplaceOp2 for EachPair<F> {
    fn name(&self) -> &'static str {
        "each pair"
    }

    /// Calls the function for every pair of numbers at the same index, in parallel; it may change the number of `to`.
    fn cpu_fwd(
        &self,
        to: &mut CpuStorage,
        to_layout: &Layout,
        from: &CpuStorage,
        from_layout: &Layout,
    ) -> candle_core::Result<()> {
        let (to, from) = (numbers_mut(to, to_layout)?, numbers(from, from_layout)?);
        to.par_chunks_mut(TASK_NUMBERS).zip(from.par_chunks(TASK_NUMBERS)).for_each(|(to, from)| {
            to.iter_mut().zip(from).for_each(|(to, from)| self.0(to, *from));
        });
        Ok(())
    }
}
