//! The types and signatures of `cudarc` that candle names, so that a candle tensor can own memory of a CUDA device.
//!
//! No library is linked or opened. tunebox allocates and computes through bindings of its own (`src/accelerator/cuda`) and
//! implements [`driver::Memory`] and [`driver::Allocator`], by which candle allocates and copies. Whatever else candle
//! itself would do on a device fails.

pub mod cublas;
pub mod driver;

/// An error in words. `LIBRARY` keeps the errors of four libraries apart, as candle converts from each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError<const LIBRARY: char>(String);

/// Fails with an error that says that candle's own `operation` does not exist on a CUDA device in this build.
fn refuse<T, const LIBRARY: char>(operation: &str) -> Result<T, CallError<LIBRARY>> {
    Err(CallError(format!("the tensor library has no `{operation}` on a CUDA device in this build")))
}

impl<const LIBRARY: char> std::fmt::Display for CallError<LIBRARY> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<const LIBRARY: char> std::error::Error for CallError<LIBRARY> {}

/// The compiler of kernels.
pub mod nvrtc {
    /// An error of NVRTC.
    pub type CompileError = crate::CallError<'n'>;
}

/// The random generator that candle creates with every device. Every random number of tunebox comes from its own seeded
/// streams.
pub mod curand {
    use std::sync::Arc;

    use crate::driver::CudaStream;
    use crate::refuse;
    use result::CurandError;

    /// A generator that generates nothing.
    pub struct CudaRng;

    impl CudaRng {
        /// Creates a generator. Opens no library.
        pub fn new(_seed: u64, _stream: Arc<CudaStream>) -> Result<Self, CurandError> {
            Ok(Self)
        }

        /// Always fails: candle's generator does not exist in this build.
        pub fn fill_with_uniform<T>(&self, _numbers: &mut T) -> Result<(), CurandError> {
            refuse("rand")
        }

        /// Always fails: candle's generator does not exist in this build.
        pub fn fill_with_normal<T, N>(&self, _numbers: &mut T, _mean: N, _deviation: N) -> Result<(), CurandError> {
            refuse("randn")
        }
    }

    /// The module where candle looks for the error.
    pub mod result {
        /// An error of cuRAND.
        pub type CurandError = crate::CallError<'r'>;
    }
}
