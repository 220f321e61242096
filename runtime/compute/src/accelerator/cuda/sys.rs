//! The functions of CUDA's driver, of NVML, of NVRTC and of cuBLAS that are called, under the names that their manuals
//! have.
#![allow(non_snake_case, reason = "names of the libraries")]
#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_void};
use std::sync::OnceLock;

use super::library::{ABSENT, CallError, Library, functions};

/// An opaque pointer to an object of a library, such as a context, a stream, a module or a program.
pub(super) type Handle = usize;

/// The driver API.
pub(super) static DRIVER: Library = Library {
    what: "the NVIDIA driver's `libcuda.so.1`",
    // Not `libcuda.so`: under that name alone the toolkit has a stub, in its folder `stubs`, that only links.
    names: &["libcuda.so.1"],
    beside: &[],
    hint: "a machine with an NVIDIA GPU has it once NVIDIA's driver is installed",
    words: driver_words,
    opened: OnceLock::new(),
};

/// NVRTC, which compiles the sources of kernels.
pub(super) static COMPILER: Library = Library {
    what: "the compiler of kernels, `libnvrtc.so.13` or `libnvrtc.so.12`,",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    beside: &["libnvrtc-builtins.so"],
    hint: "`pip install nvidia-cuda-nvrtc nvidia-cublas` in an active environment or the CUDA toolkit brings it",
    words: |_| None,
    opened: OnceLock::new(),
};

/// cuBLAS, for matrix products.
pub(super) static CUBLAS: Library = Library {
    what: "the library of products, `libcublas.so.13` or `libcublas.so.12`,",
    names: &["libcublas.so.13", "libcublas.so.12", "libcublas.so"],
    beside: &["libcublasLt.so"],
    hint: "`pip install nvidia-cublas nvidia-cuda-nvrtc` in an active environment or the CUDA toolkit brings it",
    words: cublas_words,
    opened: OnceLock::new(),
};

/// NVML, which counts the energy of a device.
pub(super) static NVML: Library = Library {
    what: "the library of counters, `libnvidia-ml.so.1`,",
    names: &["libnvidia-ml.so.1"],
    beside: &[],
    hint: "NVIDIA's driver brings it",
    words: |_| None,
    opened: OnceLock::new(),
};

/// Error codes of the driver.
pub(super) const INVALID_VALUE: c_int = 1;
pub(super) const OUT_OF_MEMORY: c_int = 2;
pub(super) const STUB_LIBRARY: c_int = 34;
pub(super) const NO_DEVICE: c_int = 100;
pub(super) const SYSTEM_DRIVER_MISMATCH: c_int = 803;

/// Attributes of a device.
pub(super) const MULTIPROCESSOR_COUNT: c_int = 16;
pub(super) const CAPABILITY_MAJOR: c_int = 75;
pub(super) const CAPABILITY_MINOR: c_int = 76;
pub(super) const PAGEABLE_MEMORY_ACCESS: c_int = 88;
pub(super) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
pub(super) const MEMORY_POOLS_SUPPORTED: c_int = 115;

/// The attribute of a kernel that limits the dynamic shared memory of its blocks, in bytes.
pub(super) const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;

/// Attributes of a memory pool, each a 64-bit value.
pub(super) const POOL_RELEASE_THRESHOLD: c_int = 4;
pub(super) const POOL_RESERVED_CURRENT: c_int = 5;
pub(super) const POOL_USED_CURRENT: c_int = 7;
pub(super) const POOL_USED_HIGH: c_int = 8;

/// The flag of a stream that does not synchronize with the default stream.
pub(super) const NON_BLOCKING: c_uint = 1;

/// Constants of cuBLAS: element types, the type of sums, the algorithm, the math mode.
pub(super) const R_32F: c_int = 0;
pub(super) const R_16F: c_int = 2;
pub(super) const R_16BF: c_int = 14;
pub(super) const COMPUTE_32F: c_int = 68;
pub(super) const GEMM_DEFAULT_TENSOR_OP: c_int = 99;
pub(super) const DISALLOW_REDUCED_PRECISION_REDUCTION: c_int = 16;

functions! { DRIVER;
    /// Initializes the driver.
    fn cuInit(flags: c_uint);
    /// Returns the newest version of CUDA that the driver supports: 13000 for 13.0.
    fn cuDriverGetVersion(version: *mut c_int);
    /// Looks up the driver's text for an error code.
    fn cuGetErrorString(error: c_int, words: *mut *const c_char);
    /// Returns the number of CUDA devices.
    fn cuDeviceGetCount(count: *mut c_int);
    /// Looks a device up by its number, counted from 0.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    /// Writes the name of a device as a C string of at most `length` bytes.
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    /// Writes the address of a device on the PCI bus as a C string of at most `length` bytes.
    fn cuDeviceGetPCIBusId(address: *mut c_char, length: c_int, device: c_int);
    /// Reads the attribute `which` of a device.
    fn cuDeviceGetAttribute(value: *mut c_int, which: c_int, device: c_int);
    /// Retains the primary context of a device, which all users of a process share.
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    /// Releases the primary context of a device, once for each retain.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    /// Makes a context the current one of the calling thread.
    fn cuCtxSetCurrent(context: Handle);
    /// Creates a stream in the current context of the calling thread.
    fn cuStreamCreate(stream: *mut Handle, flags: c_uint);
    /// Waits until all work in a stream is done.
    fn cuStreamSynchronize(stream: Handle);
    /// Returns the default memory pool of a device, from which its allocations come.
    fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    /// Reads the attribute `which` of a memory pool.
    fn cuMemPoolGetAttribute(pool: Handle, which: c_int, value: *mut c_void);
    /// Sets the attribute `which` of a memory pool.
    fn cuMemPoolSetAttribute(pool: Handle, which: c_int, value: *mut c_void);
    /// Returns unused memory of a pool to the driver, but keeps at least `keep` bytes, used and unused together, in the
    /// pool.
    fn cuMemPoolTrimTo(pool: Handle, keep: usize);
    /// Returns the free and the total memory of the current context's device, in bytes.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Allocates memory, in stream order.
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle);
    /// Releases memory, in stream order.
    fn cuMemFreeAsync(address: u64, stream: Handle);
    /// Queues setting `bytes` bytes to the value `byte`.
    fn cuMemsetD8Async(address: u64, byte: u8, bytes: usize, stream: Handle);
    /// Queues a copy from the host to the device.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    /// Queues a copy from the device to the host.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    /// Queues a copy within a device.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    /// Loads a CUBIN image as a module.
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void);
    /// Looks a kernel of a module up by its name.
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    /// Sets the attribute `which` of a kernel.
    fn cuFuncSetAttribute(function: Handle, which: c_int, value: c_int);
    /// Queues a kernel in a stream: `blocks_*` blocks of `threads_*` threads, each block with `shared` bytes of dynamic
    /// shared memory. `arguments` has a pointer to each argument.
    fn cuLaunchKernel(
        function: Handle,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
}

functions! { NVML;
    /// Initializes NVML; may be called several times.
    fn nvmlInit_v2();
    /// Looks a device up by its address on the PCI bus.
    fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, device: *mut Handle);
    /// Returns the energy in millijoules that a device took since the driver was loaded.
    fn nvmlDeviceGetTotalEnergyConsumption(device: Handle, millijoules: *mut u64);
}

functions! { COMPILER;
    /// Returns the version of NVRTC.
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    /// The number of architectures that NVRTC compiles for.
    fn nvrtcGetNumSupportedArchs(count: *mut c_int);
    /// Writes the compute capabilities that NVRTC compiles for, as 90 for `sm_90`.
    fn nvrtcGetSupportedArchs(architectures: *mut c_int);
    /// Creates a program from the source `text`. `name` stands for it in error messages; `headers` is the number of
    /// headers.
    fn nvrtcCreateProgram(
        program: *mut Handle,
        text: *const c_char,
        name: *const c_char,
        headers: c_int,
        header_texts: *const *const c_char,
        header_names: *const *const c_char,
    );
    /// Destroys a program.
    fn nvrtcDestroyProgram(program: *mut Handle);
    /// Compiles a program with `count` options.
    fn nvrtcCompileProgram(program: Handle, count: c_int, options: *const *const c_char);
    /// Returns the length of a program's compile log in bytes.
    fn nvrtcGetProgramLogSize(program: Handle, size: *mut usize);
    /// Writes the compile log of a program.
    fn nvrtcGetProgramLog(program: Handle, log: *mut c_char);
    /// Returns the length of a program's machine code in bytes.
    fn nvrtcGetCUBINSize(program: Handle, size: *mut usize);
    /// Writes the machine code of a program.
    fn nvrtcGetCUBIN(program: Handle, code: *mut c_char);
}

functions! { CUBLAS;
    /// Creates a cuBLAS handle in the current context of the calling thread.
    fn cublasCreate_v2(blas: *mut Handle);
    /// Sets the stream into which cuBLAS queues its work.
    fn cublasSetStream_v2(blas: Handle, stream: Handle);
    /// Sets the math mode, which says whether sums may lose precision.
    fn cublasSetMathMode(blas: Handle, mode: c_int);
    /// Returns the version of cuBLAS: 130100 for 13.1.
    fn cublasGetVersion_v2(blas: Handle, version: *mut c_int);
    /// Queues `batch_count` products `C ← alpha · A · B + beta · C` of column-major matrices, A and B transposed if
    /// `transa` and `transb` are 1. C is `[m, n]`, and `k` terms are summed for each element. `ld*` are the distances
    /// between columns and `stride_*` those between the matrices of a batch, in elements.
    fn cublasGemmStridedBatchedEx(
        blas: Handle,
        transa: c_int,
        transb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: u64,
        a_type: c_int,
        lda: c_int,
        stride_a: c_longlong,
        b: u64,
        b_type: c_int,
        ldb: c_int,
        stride_b: c_longlong,
        beta: *const c_void,
        c: u64,
        c_type: c_int,
        ldc: c_int,
        stride_c: c_longlong,
        batch_count: c_int,
        compute_type: c_int,
        algorithm: c_int,
    );
}

/// The driver's text for an error code. `None` for a code that it does not know.
fn driver_words(code: c_int) -> Option<String> {
    let mut words = std::ptr::null();
    // SAFETY: room for one pointer.
    unsafe { cuGetErrorString(code, &raw mut words) }.ok()?;
    // SAFETY: the driver's words end with a zero byte and stay where they are.
    (!words.is_null()).then(|| unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned())
}

/// A text for the error codes of cuBLAS that are likely; cuBLAS itself has only names of constants. `None` for any
/// other code.
fn cublas_words(code: c_int) -> Option<String> {
    let words = match code {
        1 => "it does not start",
        3 => "there is no memory for it",
        7 => "an argument is not allowed",
        8 => "the GPU does not have it",
        13 => "it broke off",
        15 => "these types are not supported",
        _ => return None,
    };
    Some(format!("cuBLAS: {words}"))
}
