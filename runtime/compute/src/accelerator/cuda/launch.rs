//! Launches of kernels, and matrix products by cuBLAS.
//!
//! Matrices of cuBLAS are column-major. A row-major `C = L·R` is the column-major `Cᵀ = Rᵀ·Lᵀ`, so the operands are
//! exchanged and no data moves. Sums are in f32, and f32 operands are never rounded to TF32.
#![expect(unsafe_code, reason = "kernels and cuBLAS are called with addresses")]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::PoisonError;

use candle_core::cuda::CudaStorageSlice;
use candle_core::{DType, Storage, Tensor};

use super::Cuda;
use super::context::{Context, Memory};
use super::library::CallError;
use super::sys::{self, Handle};
use crate::accelerator::argument::{Argument, Build, Grid, MatrixView, extent};
use crate::accelerator::driver::wrong_device_error;
use crate::accelerator::kernel::Kernel;
use crate::error::{Error, Result};

/// Converts the arguments to what the driver takes and queues the kernel, compiled with the constants `build`, in the
/// device's stream. The caller (`Accelerator::launch`) has checked the kinds of the arguments.
///
/// # Errors
/// When a tensor is on another device, the kernel does not compile, or the driver refuses the launch.
pub(super) fn launch(cuda: &Cuda, kernel: &Kernel, build: Build, grid: Grid, arguments: &[Argument<'_>]) -> Result<()> {
    let function = cuda.loader.function(kernel, build, grid.shared)?;
    let values = arguments.iter().map(|argument| value(cuda, kernel.name, argument));
    let values: Vec<u64> = values.collect::<Result<_>>()?;
    // The driver reads as many of the 8 bytes as a parameter has, the low ones first.
    let pointers = values.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast());
    let mut pointers: Vec<*mut c_void> = pointers.collect();
    let ((x, y, z), none) = (grid.blocks, std::ptr::null_mut());
    cuda.context.bind().map_err(|error| cuda.stopped(error))?;
    // SAFETY: the kinds of all arguments are those of the kernel's text (a test compares them), every address is that
    // of a tensor of this device which lives until the launch is in the stream, and freed memory is used again by later
    // work of the stream alone. The caller gives the lengths that the shapes have. The driver copies the arguments.
    unsafe {
        let (arguments, stream) = (pointers.as_mut_ptr(), cuda.context.stream);
        sys::cuLaunchKernel(function, x, y, z, grid.threads, 1, 1, grid.shared, stream, arguments, none)
    }
    .map_err(|error| cuda.stopped(error))
}

/// Converts an argument into the 8 bytes that the driver reads it from: an address, a number, the bits of an f32, or 0
/// for an absent tensor. Fails for a tensor on another device, and for a size of 2³² or more; `kernel` is named in
/// errors.
fn value(cuda: &Cuda, kernel: &str, argument: &Argument<'_>) -> Result<u64> {
    Ok(match argument {
        Argument::Tensor(tensor) => address(cuda, tensor, kernel)?,
        Argument::FaultWord => cuda.fault_address,
        Argument::Nothing => 0,
        Argument::Count(number) => (*number).into(),
        Argument::Size(number) => extent(*number)?.into(),
        Argument::Long(number) => *number,
        Argument::Number(number) => number.to_bits().into(),
    })
}

/// The device address of a tensor's first element. Does not check that the tensor is contiguous. `caller` is named in
/// errors.
///
/// # Errors
/// When the tensor is on another device, or has an element type that no kernel reads.
pub(super) fn address(cuda: &Cuda, tensor: &Tensor, caller: &str) -> Result<u64> {
    let (memory, start) = memory(cuda, tensor, caller)?;
    Ok(memory.address() + start as u64)
}

/// Returns the memory of a tensor and the byte offset of its first element in it. `caller` is named in errors.
///
/// # Errors
/// When the tensor is on another device, or has an element type that no kernel reads.
pub(super) fn memory(cuda: &Cuda, tensor: &Tensor, caller: &str) -> Result<(Memory, usize)> {
    let (storage, layout) = tensor.storage_and_layout();
    let slice = match &*storage {
        Storage::Cuda(storage) if storage.device.id() == cuda.device.id() => &storage.slice,
        _ => return Err(wrong_device_error(caller, &cuda.name())),
    };
    let memory: &dyn Any = match slice {
        CudaStorageSlice::F32(slice) => slice.memory(),
        CudaStorageSlice::BF16(slice) => slice.memory(),
        CudaStorageSlice::F16(slice) => slice.memory(),
        CudaStorageSlice::F64(slice) => slice.memory(),
        CudaStorageSlice::I64(slice) => slice.memory(),
        CudaStorageSlice::U32(slice) => slice.memory(),
        CudaStorageSlice::U8(slice) => slice.memory(),
        _ => return Err(Error::dtype(format!("`{caller}` was given numbers of a type that no kernel reads"))),
    };
    // All memory of a device that is open here was allocated here.
    let memory = memory.downcast_ref::<Memory>().ok_or_else(|| wrong_device_error(caller, &cuda.name()))?;
    Ok((memory.clone(), layout.start_offset() * tensor.dtype().size_in_bytes()))
}

/// Creates a cuBLAS handle that queues its work in the device's stream, and forbids reductions in less than f32.
/// Returns (handle, version), the version as 130100 for 13.1. The handle is never destroyed.
pub(super) fn open_cublas(context: &Context) -> std::result::Result<(Handle, i32), CallError> {
    let (mut blas, mut version) = (0, 0);
    context.bind()?;
    // SAFETY: room for a handle and a number, then a handle and a stream that are open.
    unsafe {
        sys::cublasCreate_v2(&raw mut blas)?;
        sys::cublasSetStream_v2(blas, context.stream)?;
        sys::cublasSetMathMode(blas, sys::DISALLOW_REDUCED_PRECISION_REDUCTION)?;
        sys::cublasGetVersion_v2(blas, &raw mut version)?;
    }
    Ok((blas, version))
}

/// Queues `into ← factor · left · right`, or `into ← into + factor · left · right` if `add`. `[rows, columns, depth]`
/// are the shape of the result and the number of terms that each of its elements sums. `Accelerator::multiply` has
/// checked shapes and types.
///
/// # Errors
/// When a matrix is on another device or has gaps within its rows, a dimension or a row stride is 2³¹ or more, the
/// element type is not f32, bf16 or f16, or cuBLAS refuses.
pub(super) fn multiply(
    cuda: &Cuda,
    [into, left, right]: [MatrixView<'_>; 3],
    [rows, columns, depth]: [usize; 3],
    factor: f32,
    add: bool,
) -> Result<()> {
    let (given, wanted) = (cublas_type(left.dtype())?, cublas_type(into.dtype())?);
    let [m, n, k] = [to_c_int(columns)?, to_c_int(rows)?, to_c_int(depth)?];
    let [to_pitch, left_pitch, right_pitch] = [pitch(&into)?, pitch(&left)?, pitch(&right)?];
    // `pitch` has refused gaps within rows, which `address` does not check.
    let at = |side: &MatrixView<'_>| address(cuda, side.matrix, "a product");
    let (to, left_at, right_at) = (at(&into)?, at(&left)?, at(&right)?);
    let (alpha, beta) = (factor, if add { 1.0_f32 } else { 0.0 });
    // Products of several threads come one after another: they share a workspace.
    let blas = cuda.blas.lock().unwrap_or_else(PoisonError::into_inner);
    // A product may come from a thread that never used the device.
    cuda.context.bind().map_err(|error| cuda.stopped(error))?;
    // SAFETY: three matrices of this device whose sides meet, with the distances of their rows; the two factors live
    // until the call returns, which is when cuBLAS has read them: it takes them from the host.
    let done = unsafe {
        sys::cublasGemmStridedBatchedEx(
            *blas,
            right.transposed.into(),
            left.transposed.into(),
            m,
            n,
            k,
            (&raw const alpha).cast(),
            right_at,
            given,
            right_pitch,
            0,
            left_at,
            given,
            left_pitch,
            0,
            (&raw const beta).cast(),
            to,
            wanted,
            to_pitch,
            0,
            1,
            sys::COMPUTE_32F,
            sys::GEMM_DEFAULT_TENSOR_OP,
        )
    };
    done.map_err(|error| cuda.stopped(format!("a product of {rows} × {depth} and {depth} × {columns}: {error}")))
}

/// Converts a dimension or a row stride to the C integer that cuBLAS takes. Fails for 2³¹ and more.
fn to_c_int(number: usize) -> Result<c_int> {
    c_int::try_from(number).map_err(|_| Error::shape(format!("a side of {number} is too long for a product")))
}

/// The row stride of a matrix in elements, as the C integer that cuBLAS takes. Fails for 2³¹ and more, and for gaps
/// within a row.
fn pitch(matrix: &MatrixView<'_>) -> Result<c_int> {
    to_c_int(matrix.row_stride()?)
}

/// The cuBLAS constant of an element type. Fails for all but f32, bf16 and f16.
fn cublas_type(dtype: DType) -> Result<c_int> {
    match dtype {
        DType::F32 => Ok(sys::R_32F),
        DType::BF16 => Ok(sys::R_16BF),
        DType::F16 => Ok(sys::R_16F),
        other => Err(Error::dtype(format!("no product takes `{}`", other.as_str()))),
    }
}
