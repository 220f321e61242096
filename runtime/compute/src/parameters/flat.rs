//! In-place passes over flat buffers of the CPU. Each has a fixed cut into tasks, so no result depends on the threads.

use std::cell::Cell;
use std::marker::PhantomData;

use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor, bail};
use rayon::prelude::*;

use crate::error::Result;
use crate::fused::Floats;

/// Numbers of one task.
pub(crate) const TASK_NUMBERS: usize = 1 << 16;

/// A type of numbers that passes can write in place.
pub(crate) trait Element: Sized {
    /// The numbers of a storage; `None` if it holds numbers of another type.
    fn numbers(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

impl Element for f32 {
    /// The numbers of an f32 storage; `None` for any other storage.
    fn numbers(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::F32(numbers) = storage { Some(numbers) } else { None }
    }
}

impl Element for u8 {
    /// The bytes of a u8 storage; `None` for any other storage.
    fn numbers(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::U8(numbers) = storage { Some(numbers) } else { None }
    }
}

/// A function of the numbers of a tensor, which the tensor library calls once with write access.
struct InPlace<T, F>(Cell<Option<F>>, PhantomData<T>);

impl<T: Element, F: FnOnce(&mut [T])> InplaceOp1 for InPlace<T, F> {
    /// The name of the operation in errors of the tensor library.
    fn name(&self) -> &'static str {
        "update numbers"
    }

    /// Calls the function with the numbers of a contiguous view. Fails for any other view, for numbers of another type
    /// than `T`, and when called again.
    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        match (T::numbers(storage), layout.contiguous_offsets(), self.0.take()) {
            (Some(numbers), Some((start, end)), Some(work)) => work(&mut numbers[start..end]),
            _ => bail!("a contiguous {} tensor is needed", std::any::type_name::<T>()),
        }
        Ok(())
    }
}

/// Calls `work` once with all numbers of a contiguous tensor of the CPU, writable. Fails for any other tensor, and for
/// one of another element type.
pub(crate) fn update_numbers<T: Element>(tensor: &Tensor, work: impl FnOnce(&mut [T])) -> Result<()> {
    Ok(tensor.inplace_op1(&InPlace(Cell::new(Some(work)), PhantomData))?)
}

/// Calls `work` once with all numbers of several contiguous tensors of the CPU, all writable, in the order of
/// `tensors`. No two of them may share a storage: the call would wait for itself. Fails for any other tensor, and for
/// one of another element type; `work` is not called then.
pub(crate) fn update_together<T: Element, const N: usize>(
    tensors: [&Tensor; N],
    work: impl FnOnce([&mut [T]; N]),
) -> Result<()> {
    let all = |locked: Vec<&mut [T]>| {
        if let Ok(locked) = locked.try_into() {
            work(locked);
        }
    };
    lock_all(&tensors, Vec::with_capacity(N), Box::new(all))
}

/// Work on the numbers of several tensors.
type Work<'a, T> = Box<dyn FnOnce(Vec<&mut [T]>) + 'a>;

/// Locks the numbers of `tensors` one after another, appends them to `locked`, and calls `work` with the whole list.
fn lock_all<T: Element>(tensors: &[&Tensor], locked: Vec<&mut [T]>, work: Work<'_, T>) -> Result<()> {
    let Some((tensor, rest)) = tensors.split_first() else {
        work(locked);
        return Ok(());
    };
    let mut result = Ok(());
    update_numbers(tensor, |numbers| {
        let mut locked: Vec<&mut [T]> = locked;
        locked.push(numbers);
        result = lock_all(rest, locked, work);
    })?;
    result
}

/// The sum of the squares of `numbers`, in f64. Summed in chunks of fixed size, so it does not depend on the number of
/// threads.
pub(crate) fn square_sum(numbers: &[f32]) -> f64 {
    let square = |chunk: &[f32]| chunk.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>();
    let sums: Vec<f64> = numbers.par_chunks(TASK_NUMBERS).map(square).collect();
    sums.iter().sum()
}

/// Calls `work` for every number of `to`, in parallel, with the number of `from` at the same index. Both are contiguous
/// f32 tensors of the CPU, else this fails. They must have as many numbers and be in different storages: one storage
/// would be locked twice.
pub(crate) fn update_pairs(to: &Tensor, from: &Tensor, work: impl Fn(&mut f32, f32) + Sync) -> Result<()> {
    let from: &[f32] = &Floats::of(from, "from")?;
    update_numbers(to, |to: &mut [f32]| {
        to.par_chunks_mut(TASK_NUMBERS).zip(from.par_chunks(TASK_NUMBERS)).for_each(|(to, from)| {
            to.iter_mut().zip(from).for_each(|(to, from)| work(to, *from));
        });
    })
}
