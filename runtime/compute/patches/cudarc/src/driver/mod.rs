//! The driver: contexts, streams, memory, modules, launches.

mod context;
mod launch;
mod module;
pub mod result;
mod slice;
mod stream;
pub mod sys;

pub use context::CudaContext;
pub use launch::{LaunchArgs, LaunchConfig, PushKernelArg};
pub use module::{CudaFunction, CudaModule};
pub use result::DriverError;
pub use slice::{
    CudaSlice, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, SyncOnDrop, ValidAsZeroBits,
};
pub use stream::{CudaStream, HostSlice};
