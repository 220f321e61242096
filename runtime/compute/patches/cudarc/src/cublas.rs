//! Matrix products, which candle prepares and this build refuses.

use std::ffi::{c_int, c_longlong};
use std::sync::Arc;

use crate::driver::CudaStream;
use crate::refuse;
use result::CublasError;

/// The handle that candle creates with every device. Opens no library.
#[derive(Debug)]
pub struct CudaBlas(());

/// The trait that candle imports for products of f64.
pub trait Gemm {}

impl CudaBlas {
    /// Creates a handle without opening cuBLAS. Never fails.
    pub fn new(_stream: Arc<CudaStream>) -> Result<Self, CublasError> {
        Ok(Self(()))
    }

    /// Returns a unit in the place of cuBLAS's own handle, which does not exist here.
    pub fn handle(&self) -> &() {
        &self.0
    }

    /// Always fails: candle's own matrix products do not exist in this build.
    ///
    /// # Safety
    /// Always sound.
    pub unsafe fn gemm_strided_batched<T, A, B, C>(
        &self,
        _config: StridedBatchedConfig<T>,
        _a: &A,
        _b: &B,
        _c: &mut C,
    ) -> Result<(), CublasError> {
        refuse("matmul")
    }
}

/// A product, column by column, in the names of cuBLAS.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "cuBLAS's names")]
pub struct GemmConfig<T> {
    pub transa: sys::cublasOperation_t,
    pub transb: sys::cublasOperation_t,
    pub m: c_int,
    pub n: c_int,
    pub k: c_int,
    pub alpha: T,
    pub lda: c_int,
    pub ldb: c_int,
    pub beta: T,
    pub ldc: c_int,
}

/// Products that begin at equal distances, in the names of cuBLAS.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "cuBLAS's names")]
pub struct StridedBatchedConfig<T> {
    pub gemm: GemmConfig<T>,
    pub batch_size: c_int,
    pub stride_a: c_longlong,
    pub stride_b: c_longlong,
    pub stride_c: c_longlong,
}

/// The module where candle looks for the product of any type.
pub mod result {
    use std::ffi::{c_int, c_longlong, c_void};

    use super::sys;

    /// An error of cuBLAS.
    pub type CublasError = crate::CallError<'b'>;

    /// Always fails: candle's own matrix products do not exist in this build.
    ///
    /// # Safety
    /// Always sound.
    #[expect(clippy::too_many_arguments, reason = "cuBLAS's own")]
    pub unsafe fn gemm_strided_batched_ex(
        _handle: (),
        _transa: sys::cublasOperation_t,
        _transb: sys::cublasOperation_t,
        _m: c_int,
        _n: c_int,
        _k: c_int,
        _alpha: *const c_void,
        _a: *const c_void,
        _a_type: sys::cudaDataType_t,
        _lda: c_int,
        _stride_a: c_longlong,
        _b: *const c_void,
        _b_type: sys::cudaDataType_t,
        _ldb: c_int,
        _stride_b: c_longlong,
        _beta: *const c_void,
        _c: *mut c_void,
        _c_type: sys::cudaDataType_t,
        _ldc: c_int,
        _stride_c: c_longlong,
        _batch_count: c_int,
        _compute_type: sys::cublasComputeType_t,
        _algorithm: sys::cublasGemmAlgo_t,
    ) -> Result<(), CublasError> {
        crate::refuse("matmul")
    }
}

/// The names of cuBLAS that candle writes.
#[allow(non_camel_case_types, missing_docs, reason = "cuBLAS's names")]
pub mod sys {
    crate::driver::names! {
        cublasOperation_t { CUBLAS_OP_N CUBLAS_OP_T }
        cudaDataType_t { CUDA_R_32F CUDA_R_16F CUDA_R_16BF }
        cublasComputeType_t {
            CUBLAS_COMPUTE_16F CUBLAS_COMPUTE_32F CUBLAS_COMPUTE_32F_FAST_16BF CUBLAS_COMPUTE_32F_FAST_TF32
        }
        cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT_TENSOR_OP }
    }
}
