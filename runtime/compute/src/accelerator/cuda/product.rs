//! Matrix products by cuBLAS.
//!
//! cuBLAS counts by columns. A row-major `C = L·R` is, column by column, `Cᵀ = Rᵀ·Lᵀ`: the sides change places and
//! nothing moves. Sums are in f32, and f32 never becomes TF32.
#![expect(unsafe_code, reason = "cuBLAS takes addresses")]

use std::ffi::c_int;
use std::sync::PoisonError;

use candle_core::DType;

use super::Cuda;
use super::context::Context;
use super::launch::address;
use super::library::CallError;
use super::sys::{self, Handle};
use crate::accelerator::view::MatrixView;
use crate::error::{Error, Result};

/// Creates a cuBLAS handle on the device's stream and forbids reductions in less than f32. Returns (handle, version),
/// the version as 130100 for 13.1.
pub(super) fn open(context: &Context) -> std::result::Result<(Handle, i32), CallError> {
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
/// are the shape of the result and the terms of each sum. `Accelerator::multiply` has checked shapes and types.
///
/// # Errors
/// When a matrix is elsewhere or has gaps within its rows, a side has 2³¹ numbers or more, or cuBLAS refuses.
pub(super) fn multiply(
    cuda: &Cuda,
    [into, left, right]: [MatrixView<'_>; 3],
    [rows, columns, depth]: [usize; 3],
    factor: f32,
    add: bool,
) -> Result<()> {
    let (given, wanted) = (kind(left.dtype())?, kind(into.dtype())?);
    let [m, n, k] = [side(columns)?, side(rows)?, side(depth)?];
    let [to_pitch, left_pitch, right_pitch] = [pitch(&into)?, pitch(&left)?, pitch(&right)?];
    // The pitches have checked how rows lie.
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

/// Converts a dimension to the C integer that cuBLAS takes. Refuses 2³¹ and more.
fn side(number: usize) -> Result<c_int> {
    c_int::try_from(number).map_err(|_| Error::shape(format!("a side of {number} is too long for a product")))
}

/// The row stride of a matrix in elements, as the C integer that cuBLAS takes. Refuses gaps within rows.
fn pitch(of: &MatrixView<'_>) -> Result<c_int> {
    side(of.row_stride()?)
}

/// The cuBLAS constant of an element type. Refuses all but f32, bf16 and f16.
fn kind(dtype: DType) -> Result<c_int> {
    match dtype {
        DType::F32 => Ok(sys::R_32F),
        DType::BF16 => Ok(sys::R_16BF),
        DType::F16 => Ok(sys::R_16F),
        other => Err(Error::dtype(format!("no product takes `{}`", other.as_str()))),
    }
}
