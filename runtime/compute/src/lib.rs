//! candle behind one door: devices, the byte budget, checked operations, fused kernels with their gradients,
//! optimisers, schedules and seeded random streams.
//!
//! What a model is, and where a request comes from, other rooms know.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test may stop at the first surprise"))]

pub mod budget;
pub mod error;
pub mod explain;

pub use candle_core::{DType, Device, Tensor};
pub use error::{Error, Result};
