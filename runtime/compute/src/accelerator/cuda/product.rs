//! Matrix products by cuBLAS.
//!
//! cuBLAS counts by columns. A row-major `C = L·R` is, column by column, `Cᵀ = Rᵀ·Lᵀ`: the sides change places and
//! nothing moves. Sums are in f32, and f32 never becomes TF32.
#![expect(unsafe_code, reason = "cuBLAS takes addresses")]

use std::sync::PoisonError;

use candle_core::DType;
use candle_core::cuda::cudarc::cublas::{result, sys};

use super::Cuda;
use super::launch::address;
use crate::accelerator::view::MatrixView;
use crate::error::{Error, Result};

/// `into ← factor · left · right`, or added to what is there. Sides and types meet: `Accelerator::multiply` has looked.
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
    let [given, wanted] = [left.dtype(), into.dtype()].map(kind);
    let (given, wanted) = (given?, wanted?);
    let [m, n, k] = [side(columns)?, side(rows)?, side(depth)?];
    let [to_pitch, left_pitch, right_pitch] = [pitch(&into)?, pitch(&left)?, pitch(&right)?];
    // How their rows lie, their pitches have looked at.
    let at = |side: &MatrixView<'_>| address(cuda, side.matrix, "a product", |_| true);
    let (to, left_at, right_at) = (at(&into)?, at(&left)?, at(&right)?);
    let (alpha, beta) = (factor, if add { 1.0_f32 } else { 0.0 });
    let _alone = cuda.products.lock().unwrap_or_else(PoisonError::into_inner);
    // A product may come from a thread that never used the device.
    cuda.stream.context().bind_to_thread().map_err(|error| cuda.stopped(&error))?;
    // SAFETY: three matrices of this device whose sides meet, with the distances of their rows; the two factors live
    // until the call returns, which is when cuBLAS has read them: it takes them from the host.
    let done = unsafe {
        result::gemm_strided_batched_ex(
            *cuda.device.cublas_handle().handle(),
            operation(right.transposed),
            operation(left.transposed),
            m,
            n,
            k,
            (&raw const alpha).cast(),
            right_at as *const _,
            given,
            right_pitch,
            0,
            left_at as *const _,
            given,
            left_pitch,
            0,
            (&raw const beta).cast(),
            to as *mut _,
            wanted,
            to_pitch,
            0,
            1,
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP,
        )
    };
    done.map_err(|error| Error::Stopped {
        device: cuda.name(),
        why: format!("a product of {rows} × {depth} and {depth} × {columns}: {error}"),
    })
}

/// A dimension as cuBLAS takes it, below 2³¹.
fn side(number: usize) -> Result<i32> {
    i32::try_from(number).map_err(|_| Error::shape(format!("a side of {number} is too long for a product")))
}

/// The row stride of a matrix as cuBLAS takes it.
fn pitch(of: &MatrixView<'_>) -> Result<i32> {
    side(of.row_stride()?)
}

/// Whether cuBLAS transposes an operand.
fn operation(transposed: bool) -> sys::cublasOperation_t {
    if transposed { sys::cublasOperation_t::CUBLAS_OP_T } else { sys::cublasOperation_t::CUBLAS_OP_N }
}

/// The element type as cuBLAS names it.
fn kind(dtype: DType) -> Result<sys::cudaDataType_t> {
    match dtype {
        DType::F32 => Ok(sys::cudaDataType_t::CUDA_R_32F),
        DType::BF16 => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        DType::F16 => Ok(sys::cudaDataType_t::CUDA_R_16F),
        other => Err(Error::dtype(format!("no product takes `{}`", other.as_str()))),
    }
}
