//! Tensor work over candle: devices, the byte budget, checked operations, fused kernels with their gradients,
//! optimizers, schedules and seeded random streams.
//!
//! This crate knows neither models nor methods.

mod accelerator;
pub mod allocator;
pub mod budget;
#[cfg(unix)]
pub mod code_cache;
pub mod decomposition;
pub mod device;
mod dynamic;
pub mod error;
pub mod fused;
pub mod memory;
pub mod ops;
pub mod optimizer;
pub mod parameters;
#[cfg(test)]
#[path = "tests/parity.rs"]
mod parity;
pub mod precision;
pub mod random;
pub mod schedule;
pub mod throughput;
pub mod weight;

pub use candle_core::{DType, Device, Tensor};
pub use error::{Error, Result};
pub use weight::Weight;
