//! A generator that candle makes with every device, and that generates nothing: every random number of tunebox comes
//! from its own seeded streams.

use std::sync::Arc;

use crate::driver::CudaStream;
use result::CurandError;

/// A generator that generates nothing.
pub struct CudaRng;

impl CudaRng {
    /// Nothing to set up.
    pub fn new(_seed: u64, _stream: Arc<CudaStream>) -> Result<Self, CurandError> {
        Ok(Self)
    }

    /// Refused.
    pub fn fill_with_uniform<T>(&self, _numbers: &mut T) -> Result<(), CurandError> {
        Err(CurandError)
    }

    /// Refused.
    pub fn fill_with_normal<T, N>(&self, _numbers: &mut T, _mean: N, _deviation: N) -> Result<(), CurandError> {
        Err(CurandError)
    }
}

/// Where candle looks for the error.
pub mod result {
    /// Random numbers were asked of the device.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CurandError;

    impl std::fmt::Display for CurandError {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("this build makes random numbers on the host alone")
        }
    }

    impl std::error::Error for CurandError {}
}
