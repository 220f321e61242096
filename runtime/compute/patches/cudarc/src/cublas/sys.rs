//! cuBLAS's own names, as its manual has them. What are enumerations there are numbers with names here.
#![allow(non_camel_case_types, non_snake_case, reason = "cuBLAS's names")]

use std::ffi::{c_int, c_longlong, c_void};

use crate::library::{Library, functions};

static LIBRARY: Library = Library::new(&["libcublas.so.13", "libcublas.so.12", "libcublas.so"]);

/// cuBLAS on a device.
pub type cublasHandle_t = *mut c_void;

macro_rules! numbers {
    ($($(#[$attribute:meta])* $name:ident { $($member:ident = $number:literal,)* })*) => {$(
        $(#[$attribute])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub c_int);

        impl $name {
            $(
                #[doc = concat!("The number ", stringify!($number), ".")]
                pub const $member: Self = Self($number);
            )*
        }
    )*};
}

numbers! {
    /// What a call came to.
    cublasStatus_t {
        CUBLAS_STATUS_SUCCESS = 0,
        CUBLAS_STATUS_NOT_INITIALIZED = 1,
        CUBLAS_STATUS_ALLOC_FAILED = 3,
        CUBLAS_STATUS_INVALID_VALUE = 7,
        CUBLAS_STATUS_ARCH_MISMATCH = 8,
        CUBLAS_STATUS_EXECUTION_FAILED = 13,
        CUBLAS_STATUS_NOT_SUPPORTED = 15,
        // None of cuBLAS's: it lacks the function.
        ABSENT = -1,
    }
    /// How a side is taken.
    cublasOperation_t {
        CUBLAS_OP_N = 0,
        CUBLAS_OP_T = 1,
    }
    /// The type of numbers.
    cudaDataType_t {
        CUDA_R_32F = 0,
        CUDA_R_64F = 1,
        CUDA_R_16F = 2,
        CUDA_R_16BF = 14,
    }
    /// What sums are in.
    cublasComputeType_t {
        CUBLAS_COMPUTE_16F = 64,
        CUBLAS_COMPUTE_32F = 68,
        CUBLAS_COMPUTE_64F = 70,
        CUBLAS_COMPUTE_32F_FAST_16BF = 75,
        CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    }
    /// Which way of it is taken.
    cublasGemmAlgo_t {
        CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
    }
    /// What is allowed.
    cublasMath_t {
        CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
    }
}

functions! { LIBRARY, cublasStatus_t::ABSENT;
    /// Opens it.
    fn cublasCreate_v2(handle: *mut cublasHandle_t) -> cublasStatus_t;
    /// Its end.
    fn cublasDestroy_v2(handle: cublasHandle_t) -> cublasStatus_t;
    /// The stream that its work goes to.
    fn cublasSetStream_v2(handle: cublasHandle_t, stream: *mut c_void) -> cublasStatus_t;
    /// What is allowed.
    fn cublasSetMathMode(handle: cublasHandle_t, mode: cublasMath_t) -> cublasStatus_t;
    /// Its version.
    fn cublasGetVersion_v2(handle: cublasHandle_t, version: *mut c_int) -> cublasStatus_t;
    /// Products.
    fn cublasGemmStridedBatchedEx(
        handle: cublasHandle_t,
        transa: cublasOperation_t,
        transb: cublasOperation_t,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: *const c_void,
        a_type: cudaDataType_t,
        lda: c_int,
        stride_a: c_longlong,
        b: *const c_void,
        b_type: cudaDataType_t,
        ldb: c_int,
        stride_b: c_longlong,
        beta: *const c_void,
        c: *mut c_void,
        c_type: cudaDataType_t,
        ldc: c_int,
        stride_c: c_longlong,
        batch_count: c_int,
        compute_type: cublasComputeType_t,
        algorithm: cublasGemmAlgo_t,
    ) -> cublasStatus_t;
}
