//! Tensors of the CPU as slices, and slices as tensors: the checked way in and out of every fused operation.

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, DType, Device, Storage, StorageRef, Tensor, WithDType};
use half::bf16;
use rayon::prelude::*;

use super::product::{Data, round, widen};
use super::simd::vectorize;
use crate::error::{Error, Result};

/// Numbers that one task converts.
const TASK_NUMBERS: usize = 1 << 16;

/// A read lock on the storage of a contiguous tensor of the CPU.
pub(crate) struct Locked<'a> {
    storage: StorageRef<'a>,
    /// The range of the tensor's numbers in its storage.
    range: Range<usize>,
}

impl<'a> Locked<'a> {
    /// Locks the storage of a tensor for reading; `name` is what error messages call it.
    ///
    /// # Errors
    /// If the tensor is on another device than the CPU or is not contiguous.
    pub(super) fn of(tensor: &'a Tensor, name: &str) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        if !matches!(&*storage, Storage::Cpu(_)) {
            return Err(not_on_cpu(tensor.device(), name));
        }
        match layout.contiguous_offsets() {
            Some((start, end)) => Ok(Self { storage, range: start..end }),
            None => Err(Error::shape(format!("`{name}` {:?} is not contiguous", tensor.dims()))),
        }
    }

    /// The numbers of the tensor in row-major order; an empty slice, not an error, if its type is not `T`.
    pub(super) fn slice<T: WithDType>(&self) -> &[T] {
        match &*self.storage {
            Storage::Cpu(storage) => storage.as_slice().map_or(&[], |all| &all[self.range.clone()]),
            _ => &[],
        }
    }

    /// The numbers of the tensor in order, for products; `name` is what error messages call the tensor.
    ///
    /// # Errors
    /// [`Error::Dtype`] unless they are f32 or bf16.
    pub(super) fn data(&self, name: &str) -> Result<Data<'_>> {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(_)) => Ok(Data::F32(self.slice())),
            Storage::Cpu(CpuStorage::BF16(_)) => Ok(Data::Bf16(self.slice())),
            other => Err(Error::dtype(format!("`{name}` is {}, f32 or bf16 is needed", other.dtype().as_str()))),
        }
    }
}

/// Creates the [`Error::Argument`] for a tensor on `device`, called `name`, that an operation of the CPU was given.
pub(super) fn not_on_cpu(device: &Device, name: &str) -> Error {
    let device = crate::device::describe(device);
    Error::argument(format!("`{name}` is on `{device}`, and this operation runs on the CPU"))
}

/// The numbers of a contiguous tensor of the CPU as f32: locked for reading, or a copy of bf16.
pub(crate) enum Floats<'a> {
    Locked(Locked<'a>),
    Widened(Vec<f32>),
}

impl<'a> Floats<'a> {
    /// Locks an f32 tensor; `name` is what error messages call it.
    ///
    /// # Errors
    /// If the tensor is not f32, not on the CPU, or not contiguous.
    pub(crate) fn of(tensor: &'a Tensor, name: &str) -> Result<Self> {
        if tensor.dtype() != DType::F32 {
            return Err(Error::dtype(format!("`{name}` is {}, f32 is needed", tensor.dtype().as_str())));
        }
        Ok(Self::Locked(Locked::of(tensor, name)?))
    }

    /// Locks an f32 tensor, or converts a copy of a bf16 one; `name` is what error messages call it.
    ///
    /// # Errors
    /// If the tensor is neither f32 nor bf16, not on the CPU, or not contiguous.
    pub(super) fn activations(tensor: &'a Tensor, name: &str) -> Result<Self> {
        let locked = Locked::of(tensor, name)?;
        let widened = match locked.data(name)? {
            Data::F32(_) => None,
            Data::Bf16(numbers) => Some(convert(numbers, widen_all)),
        };
        Ok(widened.map_or(Self::Locked(locked), Self::Widened))
    }
}

impl Deref for Floats<'_> {
    type Target = [f32];

    /// The numbers of the tensor in order.
    fn deref(&self) -> &[f32] {
        match self {
            Self::Locked(locked) => locked.slice(),
            Self::Widened(numbers) => numbers,
        }
    }
}

/// Returns the numbers of rows and columns of a matrix; `name` is what error messages call it.
///
/// # Errors
/// [`Error::Shape`] for a tensor that does not have two dimensions.
pub(super) fn matrix_dims(tensor: &Tensor, name: &str) -> Result<(usize, usize)> {
    match tensor.dims() {
        &[rows, columns] => Ok((rows, columns)),
        other => Err(Error::shape(format!("`{name}` has shape {other:?}, a matrix is needed"))),
    }
}

/// Returns [`Error::Shape`] unless a tensor has the shape `shape`, which follows from the other operands. `name` is
/// what the message calls the tensor.
pub(super) fn expect_shape(tensor: &Tensor, name: &str, shape: &[usize]) -> Result<()> {
    expect_dims(tensor.dims(), name, shape)
}

/// Returns [`Error::Shape`] unless the dimensions `sides` of the operand `name` equal `shape`.
pub(super) fn expect_dims(sides: &[usize], name: &str, shape: &[usize]) -> Result<()> {
    if sides == shape {
        return Ok(());
    }
    Err(Error::shape(format!("`{name}` has shape {sides:?}, the others ask for {shape:?}")))
}

/// Makes a CPU tensor of `shape` from `numbers`, without a copy. Returns an error if their count does not fit.
pub(super) fn tensor(numbers: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_vec(numbers, shape, &Device::Cpu)?)
}

/// Makes a CPU tensor of `shape` in type `dtype` from `numbers`: of f32 without a copy, of bf16 rounded.
///
/// # Errors
/// [`Error::Dtype`] for another type, or an error if the count of numbers does not fit.
pub(super) fn tensor_in(dtype: DType, numbers: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
    match dtype {
        DType::F32 => tensor(numbers, shape),
        DType::BF16 => Ok(Tensor::from_vec(convert(&numbers, round_all), shape, &Device::Cpu)?),
        other => Err(no_activations(other)),
    }
}

/// Converts `x` to f32, applies `work` to it, and returns the result rounded to the type of `x`. Checks neither type
/// nor device.
pub(super) fn in_f32(x: &Tensor, work: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) -> Result<Tensor> {
    Ok(work(&x.to_dtype(DType::F32)?)?.to_dtype(x.dtype())?)
}

/// Creates the [`Error::Dtype`] for a type that activations cannot have: any but f32 and bf16.
pub(super) fn no_activations(dtype: DType) -> Error {
    Error::dtype(format!("activations are f32 or bf16, {} was asked for", dtype.as_str()))
}

/// Converts numbers on all threads: calls `convert_all` with each [`TASK_NUMBERS`] numbers (the last part may be
/// shorter) and the part of the result to write for them. Returns as many numbers, in order.
fn convert<A: Sync, B: Copy + Default + Send + Sync>(numbers: &[A], convert_all: fn(&[A], &mut [B])) -> Vec<B> {
    let mut converted = zeros(numbers.len());
    let parts = converted.par_chunks_mut(TASK_NUMBERS).zip(numbers.par_chunks(TASK_NUMBERS));
    parts.for_each(|(converted, numbers)| convert_all(numbers, converted));
    converted
}

/// Makes a list of `count` default values (zeros). From [`TASK_NUMBERS`] on writes them on all threads, because memory
/// that is touched for the first time is slow.
pub(super) fn zeros<T: Copy + Default + Send + Sync>(count: usize) -> Vec<T> {
    const PIECE: usize = 1024;
    if count < TASK_NUMBERS {
        return vec![T::default(); count];
    }
    let pieces = rayon::iter::repeat_n([T::default(); PIECE], count.div_ceil(PIECE)).with_min_len(16);
    let mut zeros = pieces.collect::<Vec<_>>().into_flattened();
    zeros.truncate(count);
    zeros
}

/// Rounds numbers to the nearest bf16 each, up to the end of the shorter slice.
pub(super) fn round_all(numbers: &[f32], into: &mut [bf16]) {
    vectorize!(into.iter_mut().zip(numbers).for_each(|(into, from)| *into = bf16::from_bits(round(*from))));
}

/// Converts bf16 numbers to f32 each, up to the end of the shorter slice.
pub(super) fn widen_all(numbers: &[bf16], into: &mut [f32]) {
    vectorize!(into.iter_mut().zip(numbers).for_each(|(into, from)| *into = widen(*from)));
}
