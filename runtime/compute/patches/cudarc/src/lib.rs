//! The part of `cudarc` that candle and tunebox call, under its names: a device with streams, memory and launches, the
//! compiler of kernels, and products.
//!
//! Nothing is linked. A library is opened when something of it is called first; what it lacks is an error like any
//! other. There are no events: whoever uses a device uses one stream of it, and the order of that stream is the order of
//! everything. Numbers that a library returns are numbers here, since a newer one may return more of them than an
//! enumeration knows.

pub mod cublas;
pub mod curand;
pub mod driver;
mod library;
pub mod nvrtc;
