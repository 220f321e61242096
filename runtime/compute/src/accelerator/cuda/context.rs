//! A CUDA device through the driver API: its context, the one stream of all its work, its memory and its loaded
//! modules. A [`CallError`] is the driver's error, also one of earlier work in the stream.
#![expect(unsafe_code, reason = "the driver is called with addresses")]

use std::any::Any;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

use candle_core::cuda::cudarc::driver;

use super::library::CallError;
use super::sys::{self, Handle};

/// The primary context of a device, which the whole process shares, and the one stream of all work on the device.
#[derive(Debug)]
pub(super) struct Context {
    /// The driver's handle of the device, which need not equal `ordinal`.
    device: c_int,
    context: Handle,
    pub(super) stream: Handle,
    /// The number of the device, counted from 0, as in `cuda:0`.
    pub(super) ordinal: usize,
    /// Whether the device reads ordinary memory of the host by itself. Then the driver may return from an upload before
    /// the device has read the numbers, so an upload waits.
    reads_host_memory: bool,
}

impl Drop for Context {
    /// Releases the primary context, and with it the stream. Ignores a failure.
    fn drop(&mut self) {
        // SAFETY: the context was retained once, and goes with its stream; whatever uses it holds this.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Context {
    /// Initializes the driver and returns the number of CUDA devices.
    pub(super) fn count_devices() -> Result<usize, CallError> {
        // SAFETY: room for one number, after the driver's start.
        let count = read_value(|count| unsafe { sys::cuInit(0).and_then(|()| sys::cuDeviceGetCount(count)) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The newest version of CUDA that the driver supports, as (major, minor).
    pub(super) fn driver_version() -> Result<(i32, i32), CallError> {
        // SAFETY: room for one number.
        let version = read_value(|version| unsafe { sys::cuDriverGetVersion(version) })?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Initializes the driver, retains the primary context of the device `ordinal`, makes it current on this thread,
    /// and creates a non-blocking stream in it. Fails with the driver's error; then the context is not retained.
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, CallError> {
        let mut opened = Self { device: 0, context: 0, stream: 0, ordinal, reads_host_memory: false };
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: room for a number and a handle, after the driver's start.
        let retained = unsafe {
            sys::cuInit(0)
                .and_then(|()| sys::cuDeviceGet(&raw mut opened.device, number))
                .and_then(|()| sys::cuDevicePrimaryCtxRetain(&raw mut opened.context, opened.device))
        };
        if let Err(error) = retained {
            // There is no context to release.
            std::mem::forget(opened);
            return Err(error);
        }
        opened.bind()?;
        // SAFETY: room for one handle, in the context of this thread.
        unsafe { sys::cuStreamCreate(&raw mut opened.stream, sys::NON_BLOCKING) }?;
        opened.reads_host_memory = opened.attribute(sys::PAGEABLE_MEMORY_ACCESS)? != 0;
        Ok(Arc::new(opened))
    }

    /// Makes this context the current one of the calling thread, as most driver calls require.
    pub(super) fn bind(&self) -> Result<(), CallError> {
        // SAFETY: a context that is open.
        unsafe { sys::cuCtxSetCurrent(self.context) }
    }

    /// Reads the device attribute `which`, one of the driver's constants such as `sys::MULTIPROCESSOR_COUNT`.
    pub(super) fn attribute(&self, which: c_int) -> Result<i32, CallError> {
        // SAFETY: room for one number, and a device that is open.
        read_value(|value| unsafe { sys::cuDeviceGetAttribute(value, which, self.device) })
    }

    /// The compute capability of the device as (major, minor).
    pub(super) fn capability(&self) -> Result<(i32, i32), CallError> {
        Ok((self.attribute(sys::CAPABILITY_MAJOR)?, self.attribute(sys::CAPABILITY_MINOR)?))
    }

    /// The driver's handle of the device.
    pub(super) fn device(&self) -> c_int {
        self.device
    }

    /// The name of the device as the driver gives it, such as `NVIDIA H100`.
    pub(super) fn name(&self) -> Result<String, CallError> {
        let mut name = [0_u8; 256];
        // SAFETY: as many bytes as the length says.
        unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 256, self.device) }?;
        Ok(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Returns the (free, total) memory of the device in bytes.
    pub(super) fn free_and_total(&self) -> Result<(u64, u64), CallError> {
        let (mut free, mut total) = (0, 0);
        self.bind()?;
        // SAFETY: room for two numbers.
        unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }?;
        Ok((free as u64, total as u64))
    }

    /// The default memory pool of the device, from which all allocations come.
    fn pool(&self) -> Result<Handle, CallError> {
        // SAFETY: room for one handle, and a device that is open.
        read_value(|pool| unsafe { sys::cuDeviceGetDefaultMemPool(pool, self.device) })
    }

    /// Reads the 64-bit attribute `which` of the device's default memory pool, such as `sys::POOL_USED_CURRENT`.
    pub(super) fn pool_attribute(&self, which: c_int) -> Result<u64, CallError> {
        let pool = self.pool()?;
        // SAFETY: the attributes that `sys` names have 64 bits.
        read_value(|bytes: *mut u64| unsafe { sys::cuMemPoolGetAttribute(pool, which, bytes.cast()) })
    }

    /// Sets the 64-bit attribute `which` of the device's default memory pool, such as `sys::POOL_RELEASE_THRESHOLD`, to
    /// `number`.
    pub(super) fn set_pool_attribute(&self, which: c_int, mut number: u64) -> Result<(), CallError> {
        // SAFETY: the attributes that `sys` names have 64 bits.
        unsafe { sys::cuMemPoolSetAttribute(self.pool()?, which, (&raw mut number).cast()) }
    }

    /// Waits until all work in the stream is done.
    fn synchronize(&self) -> Result<(), CallError> {
        self.bind()?;
        // SAFETY: a stream that is open.
        unsafe { sys::cuStreamSynchronize(self.stream) }
    }

    /// Allocates `bytes` bytes with unspecified content, in stream order; for 0 bytes, memory whose length is 0. If
    /// there is no memory left, waits for all work, returns the unused memory of the pool to the driver, and tries once
    /// more. Fails with the driver's error, `OUT_OF_MEMORY` if there still is none.
    pub(super) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Memory, CallError> {
        let mut address = 0;
        self.bind()?;
        // SAFETY: room for one address, and a stream that is open. The driver refuses a request for no bytes.
        let mut take = || unsafe { sys::cuMemAllocAsync(&raw mut address, bytes.max(1), self.stream) };
        take().or_else(|error| {
            if error.code != sys::OUT_OF_MEMORY {
                return Err(error);
            }
            self.synchronize()?;
            // SAFETY: the pool of a device that is open.
            unsafe { sys::cuMemPoolTrimTo(self.pool()?, 0) }?;
            take()
        })?;
        Ok(Memory(Arc::new(Allocation { context: Arc::clone(self), address, bytes })))
    }

    /// Copies bytes of the device to the host and waits until all are copied. Each part is (memory, byte offset in it,
    /// host buffer to fill).
    ///
    /// # Errors
    /// The error of the driver, or its `INVALID_VALUE` when a part reaches past the end of its memory.
    pub(super) fn read<const N: usize>(&self, parts: [(&Memory, usize, &mut [u8]); N]) -> Result<(), CallError> {
        self.bind()?;
        for (memory, start, into) in parts {
            let from = memory.part(start, into.len())?;
            // SAFETY: as many bytes as there are on both sides; nothing reads them before the wait below.
            unsafe { sys::cuMemcpyDtoHAsync_v2(into.as_mut_ptr().cast(), from, into.len(), self.stream) }?;
        }
        self.synchronize()
    }

    /// Loads a CUBIN image and returns the handle of its module, which is never unloaded. Fails with the driver's
    /// error, such as for code of another architecture.
    pub(super) fn load(&self, code: &[u8]) -> Result<Handle, CallError> {
        self.bind()?;
        // SAFETY: room for one handle, and machine code, whose head says where it ends.
        read_value(|module| unsafe { sys::cuModuleLoadData(module, code.as_ptr().cast()) })
    }

    /// Returns the handle of the kernel `name` in a loaded module. If `shared` is given, also raises the limit of
    /// dynamic shared memory of the kernel's blocks to that many bytes. Fails if the module has no such kernel.
    pub(super) fn function(&self, module: Handle, name: &str, shared: Option<u32>) -> Result<Handle, CallError> {
        // A name with a zero byte is that of no kernel, and neither is the empty one.
        let name = CString::new(name).unwrap_or_default();
        self.bind()?;
        // SAFETY: room for one handle, a module that is loaded, and a name that ends.
        let function = read_value(|function| unsafe { sys::cuModuleGetFunction(function, module, name.as_ptr()) })?;
        if let Some(bytes) = shared {
            let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
            // SAFETY: a function of a module that is loaded.
            unsafe { sys::cuFuncSetAttribute(function, sys::MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) }?;
        }
        Ok(function)
    }
}

/// Returns the value that `call` writes to the address that it is given.
fn read_value<T: Default>(call: impl FnOnce(*mut T) -> Result<(), CallError>) -> Result<T, CallError> {
    let mut value = T::default();
    call(&raw mut value).map(|()| value)
}

/// Device memory. Dropping the last clone frees it in stream order.
#[derive(Debug, Clone)]
pub(super) struct Memory(Arc<Allocation>);

/// One allocation of a device: its device address and its length in bytes. Dropping it frees the memory.
#[derive(Debug)]
struct Allocation {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl Drop for Allocation {
    /// Makes the context current on this thread and queues freeing the memory, in stream order. Ignores failures.
    fn drop(&mut self) {
        // The last to hold it may be a thread that never used the device.
        let _ = self.context.bind();
        // SAFETY: the only end of memory that was allocated in this stream.
        let _ = unsafe { sys::cuMemFreeAsync(self.address, self.context.stream) };
    }
}

impl Memory {
    /// The device address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns the device address of the byte `start`. Fails if `count` bytes from there reach past the end.
    fn part(&self, start: usize, count: usize) -> Result<u64, CallError> {
        match start.checked_add(count) {
            Some(end) if end <= self.0.bytes => Ok(self.0.address + start as u64),
            _ => Err(CallError { library: &sys::DRIVER, code: sys::INVALID_VALUE }),
        }
    }

    /// Queues setting all bytes to zero.
    pub(super) fn clear(&self) -> Result<(), CallError> {
        self.0.context.bind()?;
        // SAFETY: as many bytes as were allocated.
        unsafe { sys::cuMemsetD8Async(self.0.address, 0, self.0.bytes, self.0.context.stream) }
    }

    /// Queues copying all bytes of `from` (host) into this memory, at byte offset `start`. Has read `from` when it
    /// returns. Fails if the bytes reach past the end.
    pub(super) fn write(&self, start: usize, from: &[u8]) -> Result<(), CallError> {
        let to = self.part(start, from.len())?;
        self.0.context.bind()?;
        // SAFETY: as many bytes as there are on both sides; the driver has read pageable memory when the call returns,
        // unless the device reads it, which is awaited.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.0.context.stream) }?;
        if self.0.context.reads_host_memory { self.0.context.synchronize() } else { Ok(()) }
    }

    /// Queues copying `count` bytes of `other`, from its byte offset `other_start`, into this memory at byte offset
    /// `start`. Fails if they reach past the end of either memory.
    fn copy(&self, start: usize, other: &Self, other_start: usize, count: usize) -> Result<(), CallError> {
        let (to, from) = (self.part(start, count)?, other.part(other_start, count)?);
        self.0.context.bind()?;
        // SAFETY: as many bytes as there are on both sides.
        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, count, self.0.context.stream) }
    }
}

impl driver::Memory for Memory {
    /// Queues copying all bytes of `from` (host) into this memory, at byte offset `start`. Has read `from` when it
    /// returns. Fails if the bytes reach past the end.
    fn write(&self, start: usize, from: &[u8]) -> Result<(), String> {
        Self::write(self, start, from).map_err(|error| error.to_string())
    }

    /// Copies `into.len()` bytes from byte offset `start` on to the host and waits for all work. Fails if they reach
    /// past the end.
    fn read(&self, start: usize, into: &mut [u8]) -> Result<(), String> {
        self.0.context.read([(self, start, into)]).map_err(|error| error.to_string())
    }

    /// Queues copying `count` bytes of `other`, from its byte offset `other_start`, into this memory at byte offset
    /// `start`. Fails if `other` is no [`Memory`], or the bytes reach past the end of either.
    fn copy(&self, start: usize, other: &dyn driver::Memory, other_start: usize, count: usize) -> Result<(), String> {
        let other: &dyn Any = other;
        let other = other.downcast_ref().ok_or("memory of another kind")?;
        Self::copy(self, start, other, other_start, count).map_err(|error| error.to_string())
    }
}

/// The allocator that is given to candle, so that its tensors come from the same memory pool.
#[derive(Debug)]
pub(super) struct Allocator(pub(super) Arc<Context>);

impl driver::Allocator for Allocator {
    /// Allocates `bytes` bytes by [`Context::allocate`]. Queues setting them to zero if `cleared`; else their content
    /// is unspecified.
    fn allocate(&self, bytes: usize, cleared: bool) -> Result<Arc<dyn driver::Memory>, String> {
        let fill = |memory: Memory| if cleared { memory.clear().map(|()| memory) } else { Ok(memory) };
        let memory = self.0.allocate(bytes).and_then(fill).map_err(|error| error.to_string())?;
        Ok(Arc::new(memory))
    }
}
