//! What a device is called, and what is known of an accelerator.

use candle_core::{Device, DeviceLocation};

/// The name, the software and the memory of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What its maker calls it.
    pub name: String,
    /// What kernels are compiled for, as `sm_90`.
    pub architecture: String,
    /// The driver and the libraries, with their versions.
    pub software: String,
    /// Bytes that it has.
    pub total: u64,
    /// Bytes that can be had.
    pub free: u64,
    /// The most bytes that tensors of this process have taken at one time.
    pub peak: u64,
}

/// The name of a device in the form that [`parse`](crate::device::parse) accepts: `cpu`, `cuda:1` or `metal:0`.
#[must_use]
pub fn describe(device: &Device) -> String {
    match device.location() {
        DeviceLocation::Cpu => "cpu".into(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        // The tensor library has the registry's number here; a Mac that the kernels are for has one GPU.
        DeviceLocation::Metal { .. } => "metal:0".into(),
    }
}
