//! What a call of cuBLAS came to.

use std::ffi::{c_int, c_longlong, c_void};

use super::sys;

/// An error of cuBLAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CublasError(pub sys::cublasStatus_t);

impl sys::cublasStatus_t {
    /// Nothing, or the error.
    pub fn result(self) -> Result<(), CublasError> {
        if self == Self::CUBLAS_STATUS_SUCCESS { Ok(()) } else { Err(CublasError(self)) }
    }
}

impl std::fmt::Display for CublasError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = match self.0 {
            sys::cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED => "it does not start",
            sys::cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => "there is no memory for it",
            sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE => "an argument is not allowed",
            sys::cublasStatus_t::CUBLAS_STATUS_ARCH_MISMATCH => "the GPU does not have it",
            sys::cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED => "it broke off",
            sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => "these types are not supported",
            sys::cublasStatus_t::ABSENT => "it lacks a function that is called",
            _ => "an error",
        };
        write!(formatter, "cuBLAS: {words} ({})", self.0.0)
    }
}

impl std::error::Error for CublasError {}

/// Products of which each begins at the same distance from the one before.
///
/// # Safety
/// The matrices have the sides and types that the arguments say.
#[expect(clippy::too_many_arguments, reason = "cuBLAS's own")]
pub unsafe fn gemm_strided_batched_ex(
    handle: sys::cublasHandle_t,
    transa: sys::cublasOperation_t,
    transb: sys::cublasOperation_t,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: sys::cudaDataType_t,
    lda: c_int,
    stride_a: c_longlong,
    b: *const c_void,
    b_type: sys::cudaDataType_t,
    ldb: c_int,
    stride_b: c_longlong,
    beta: *const c_void,
    c: *mut c_void,
    c_type: sys::cudaDataType_t,
    ldc: c_int,
    stride_c: c_longlong,
    batch_count: c_int,
    compute_type: sys::cublasComputeType_t,
    algorithm: sys::cublasGemmAlgo_t,
) -> Result<(), CublasError> {
    // SAFETY: what the caller says.
    unsafe {
        sys::cublasGemmStridedBatchedEx(
            handle,
            transa,
            transb,
            m,
            n,
            k,
            alpha,
            a,
            a_type,
            lda,
            stride_a,
            b,
            b_type,
            ldb,
            stride_b,
            beta,
            c,
            c_type,
            ldc,
            stride_c,
            batch_count,
            compute_type,
            algorithm,
        )
    }
    .result()
}
