//! Tensors of the CPU as slices, and slices as tensors: the checked way in and out of every fused operation.

use std::ops::{Deref, Range};

use candle_core::{DType, Device, Storage, StorageRef, Tensor, WithDType};

use crate::error::{Error, Result};

/// A read lock on the storage of a contiguous tensor of the CPU.
pub(super) struct Locked<'a> {
    storage: StorageRef<'a>,
    /// The range of the tensor's numbers in its storage.
    range: Range<usize>,
}

impl<'a> Locked<'a> {
    /// Locks the storage of a tensor for reading; `name` stands in the error.
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

    /// The numbers of the tensor in order; an empty slice if its type is not `T`.
    pub(super) fn slice<T: WithDType>(&self) -> &[T] {
        match &*self.storage {
            Storage::Cpu(storage) => storage.as_slice().map_or(&[], |all| &all[self.range.clone()]),
            _ => &[],
        }
    }
}

/// Creates the error of a tensor on `device` that an operation of the CPU was given.
pub(super) fn not_on_cpu(device: &Device, name: &str) -> Error {
    let device = crate::device::describe(device);
    Error::argument(format!("`{name}` is on `{device}`, and this operation runs on the CPU"))
}

/// The `f32` numbers of a contiguous tensor of the CPU, locked for reading.
pub(crate) struct Floats<'a>(Locked<'a>);

impl<'a> Floats<'a> {
    /// Locks a tensor for reading; `name` stands in the error.
    ///
    /// # Errors
    /// If the tensor is not f32, not on the CPU, or not contiguous.
    pub(crate) fn of(tensor: &'a Tensor, name: &str) -> Result<Self> {
        if tensor.dtype() != DType::F32 {
            return Err(Error::dtype(format!("`{name}` is {}, f32 is needed", tensor.dtype().as_str())));
        }
        Ok(Self(Locked::of(tensor, name)?))
    }
}

impl Deref for Floats<'_> {
    type Target = [f32];

    /// The numbers of the tensor in order.
    fn deref(&self) -> &[f32] {
        self.0.slice()
    }
}

/// Returns the rows and columns of a matrix.
///
/// # Errors
/// [`Error::Shape`] for a tensor that has not two axes; `name` stands in it.
pub(super) fn matrix(tensor: &Tensor, name: &str) -> Result<(usize, usize)> {
    match tensor.dims() {
        &[rows, columns] => Ok((rows, columns)),
        other => Err(Error::shape(format!("`{name}` has shape {other:?}, a matrix is needed"))),
    }
}

/// Returns [`Error::Shape`] unless a tensor has the shape `shape`, which follows from the other operands.
pub(super) fn expect(tensor: &Tensor, name: &str, shape: &[usize]) -> Result<()> {
    expect_dims(tensor.dims(), name, shape)
}

/// Returns [`Error::Shape`] unless the dimensions `sides` of the operand `name` equal `shape`.
pub(super) fn expect_dims(sides: &[usize], name: &str, shape: &[usize]) -> Result<()> {
    if sides == shape {
        return Ok(());
    }
    Err(Error::shape(format!("`{name}` has shape {sides:?}, the others ask for {shape:?}")))
}

/// Returns [`Error::Dtype`] unless `dtype`, asked for as a result on the CPU, is f32.
pub(super) fn expect_f32_activations(dtype: DType) -> Result<()> {
    if dtype == DType::F32 {
        return Ok(());
    }
    Err(Error::dtype(format!("activations of the CPU are f32, {} was asked for", dtype.as_str())))
}

/// Makes a CPU tensor of `shape` from `numbers`, without a copy. Returns an error if their count does not fit.
pub(super) fn tensor(numbers: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_vec(numbers, shape, &Device::Cpu)?)
}
