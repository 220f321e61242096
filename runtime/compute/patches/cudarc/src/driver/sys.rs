//! The driver's own names, as its manual has them. What are enumerations there are numbers with names here.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "the driver's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::library::{Library, functions};

static LIBRARY: Library = Library::new(&["libcuda.so.1", "libcuda.so"]);

/// A number of a device.
pub type CUdevice = c_int;
/// An address on a device.
pub type CUdeviceptr = u64;
/// A context.
pub type CUcontext = *mut c_void;
/// A stream.
pub type CUstream = *mut c_void;
/// Loaded code.
pub type CUmodule = *mut c_void;
/// A kernel of it.
pub type CUfunction = *mut c_void;
/// A pool of memory.
pub type CUmemoryPool = *mut c_void;

macro_rules! numbers {
    ($($(#[$attribute:meta])* $name:ident { $($member:ident = $number:literal,)* })*) => {$(
        $(#[$attribute])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub c_uint);

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
    CUresult {
        CUDA_SUCCESS = 0,
        CUDA_ERROR_OUT_OF_MEMORY = 2,
        CUDA_ERROR_STUB_LIBRARY = 34,
        CUDA_ERROR_NO_DEVICE = 100,
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
        // Past all of the driver's: it lacks the function.
        ABSENT = 0xffff_ffff,
    }
    /// What is asked of a device.
    CUdevice_attribute {
        CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    }
    /// What is set of a kernel.
    CUfunction_attribute {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    }
    /// What is asked of a pool, or set.
    CUmemPool_attribute {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
    }
    /// Whether a stream is being recorded.
    CUstreamCaptureStatus {
        CU_STREAM_CAPTURE_STATUS_NONE = 0,
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    }
}

/// A stream that does not wait for the default one.
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;

functions! { LIBRARY, CUresult::ABSENT;
    /// Starts the driver.
    fn cuInit(flags: c_uint) -> CUresult;
    /// The newest version of CUDA that the driver is made for.
    fn cuDriverGetVersion(version: *mut c_int) -> CUresult;
    /// The words of an error.
    fn cuGetErrorString(error: CUresult, words: *mut *const c_char) -> CUresult;
    /// How many devices there are.
    fn cuDeviceGetCount(count: *mut c_int) -> CUresult;
    /// A device by its number.
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
    /// What its maker calls it.
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) -> CUresult;
    /// A number of it.
    fn cuDeviceGetAttribute(value: *mut c_int, which: CUdevice_attribute, device: CUdevice) -> CUresult;
    /// The context that all of a process share.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
    /// Gives it back.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
    /// The context of this thread.
    fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    /// Makes a context that of this thread.
    fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    /// A new stream.
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
    /// Its end.
    fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
    /// Waits for all that is in it.
    fn cuStreamSynchronize(stream: CUstream) -> CUresult;
    /// Whether it is being recorded.
    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    /// The pool that allocations of a device come from.
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    /// Asks it for a number.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, which: CUmemPool_attribute, value: *mut c_void) -> CUresult;
    /// Sets one.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, which: CUmemPool_attribute, value: *mut c_void) -> CUresult;
    /// Gives back what nobody uses.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> CUresult;
    /// Bytes that are free, and all.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
    /// Memory in the order of a stream.
    fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    /// Its end, in the order of a stream.
    fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult;
    /// One byte into many.
    fn cuMemsetD8Async(address: CUdeviceptr, byte: u8, bytes: usize, stream: CUstream) -> CUresult;
    /// From the host.
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> CUresult;
    /// To the host.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    /// Within a device.
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    /// Loads code.
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult;
    /// Its end.
    fn cuModuleUnload(module: CUmodule) -> CUresult;
    /// A kernel by its name.
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult;
    /// Sets a number of it.
    fn cuFuncSetAttribute(function: CUfunction, which: CUfunction_attribute, value: c_int) -> CUresult;
    /// Puts it into a stream.
    fn cuLaunchKernel(
        function: CUfunction,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult;
}
