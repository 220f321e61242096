//! Products of matrices.

pub mod result;
pub mod sys;

use std::ffi::{c_int, c_longlong};
use std::sync::Arc;

use crate::driver::{CudaStream, DevicePtr, DevicePtrMut};
use result::CublasError;

/// cuBLAS on one stream.
#[derive(Debug)]
pub struct CudaBlas {
    handle: sys::cublasHandle_t,
    stream: Arc<CudaStream>,
}

// SAFETY: NVIDIA has a handle used from several threads, also at one time. Its workspace is one for all, so who takes
// products from several threads keeps them one after another, for their numbers' sake.
unsafe impl Send for CudaBlas {}
// SAFETY: as above.
unsafe impl Sync for CudaBlas {}

impl Drop for CudaBlas {
    fn drop(&mut self) {
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: the only end of a handle that was made.
        let _ = unsafe { sys::cublasDestroy_v2(self.handle) };
    }
}

impl CudaBlas {
    /// Opens it on a stream.
    pub fn new(stream: Arc<CudaStream>) -> Result<Self, CublasError> {
        let mut handle = std::ptr::null_mut();
        // A context that is not there is an error of the next call.
        let _ = stream.context().bind_to_thread();
        // SAFETY: a place for one pointer, then a handle and a stream that are open.
        unsafe {
            sys::cublasCreate_v2(&raw mut handle).result()?;
            let opened = Self { handle, stream };
            sys::cublasSetStream_v2(handle, opened.stream.cu_stream()).result()?;
            Ok(opened)
        }
    }

    /// cuBLAS's own.
    pub fn handle(&self) -> &sys::cublasHandle_t {
        &self.handle
    }

    /// Has products sum in f32 alone, whatever they are of.
    pub fn sum_in_single(&self) -> Result<(), CublasError> {
        let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: a handle that is open.
        unsafe { sys::cublasSetMathMode(self.handle, mode) }.result()
    }

    /// Its version: 130100 for 13.1.
    pub fn version(&self) -> Result<i32, CublasError> {
        let mut version = 0;
        // SAFETY: a handle that is open, and a place for one number.
        unsafe { sys::cublasGetVersion_v2(self.handle, &raw mut version) }.result()?;
        Ok(version)
    }
}

/// A product, column by column.
#[derive(Debug, Clone, Copy)]
pub struct GemmConfig<T> {
    /// Whether the first side is turned.
    pub transa: sys::cublasOperation_t,
    /// Whether the second is.
    pub transb: sys::cublasOperation_t,
    /// Rows of the result.
    pub m: c_int,
    /// Its columns.
    pub n: c_int,
    /// Numbers of a sum.
    pub k: c_int,
    /// What the product is taken times.
    pub alpha: T,
    /// Distance of the first side's columns.
    pub lda: c_int,
    /// Of the second's.
    pub ldb: c_int,
    /// What the result is taken times before.
    pub beta: T,
    /// Distance of the result's columns.
    pub ldc: c_int,
}

/// Products of which each begins at the same distance from the one before.
#[derive(Debug, Clone, Copy)]
pub struct StridedBatchedConfig<T> {
    /// One of them.
    pub gemm: GemmConfig<T>,
    /// How many.
    pub batch_size: c_int,
    /// Distance of first sides.
    pub stride_a: c_longlong,
    /// Of second sides.
    pub stride_b: c_longlong,
    /// Of results.
    pub stride_c: c_longlong,
}

/// Products of numbers of one type.
pub trait Gemm<T> {
    /// Takes them.
    ///
    /// # Safety
    /// The matrices have the sides that the configuration says.
    unsafe fn gemm_strided_batched<A: DevicePtr<T>, B: DevicePtr<T>, C: DevicePtrMut<T>>(
        &self,
        config: StridedBatchedConfig<T>,
        a: &A,
        b: &B,
        c: &mut C,
    ) -> Result<(), CublasError>;
}

impl Gemm<f64> for CudaBlas {
    unsafe fn gemm_strided_batched<A: DevicePtr<f64>, B: DevicePtr<f64>, C: DevicePtrMut<f64>>(
        &self,
        config: StridedBatchedConfig<f64>,
        a: &A,
        b: &B,
        c: &mut C,
    ) -> Result<(), CublasError> {
        let (gemm, kind) = (config.gemm, sys::cudaDataType_t::CUDA_R_64F);
        let ((a, _a), (b, _b)) = (a.device_ptr(&self.stream), b.device_ptr(&self.stream));
        let (c, _c) = c.device_ptr_mut(&self.stream);
        // SAFETY: the matrices are what the caller says; the factors live until the call returns.
        unsafe {
            result::gemm_strided_batched_ex(
                self.handle,
                gemm.transa,
                gemm.transb,
                gemm.m,
                gemm.n,
                gemm.k,
                (&raw const gemm.alpha).cast(),
                a as *const _,
                kind,
                gemm.lda,
                config.stride_a,
                b as *const _,
                kind,
                gemm.ldb,
                config.stride_b,
                (&raw const gemm.beta).cast(),
                c as *mut _,
                kind,
                gemm.ldc,
                config.stride_c,
                config.batch_size,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP,
            )
        }
    }
}
