//! A device that is open.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::result::{self, DriverError};
use super::stream::CudaStream;
use super::sys;

/// The context that all of a process share on one device.
#[derive(Debug)]
pub struct CudaContext {
    device: sys::CUdevice,
    context: sys::CUcontext,
    ordinal: usize,
    /// What candle is told when it asks; there are no events either way.
    tracking: AtomicBool,
}

// SAFETY: the driver's contexts may be used from every thread; each call makes its own the current one first.
unsafe impl Send for CudaContext {}
// SAFETY: as above.
unsafe impl Sync for CudaContext {}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // SAFETY: given back once, by whoever holds it last.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl CudaContext {
    /// How many devices there are.
    pub fn device_count() -> Result<i32, DriverError> {
        let mut count = 0;
        // SAFETY: a place for one number, after the driver's start.
        unsafe {
            sys::cuInit(0).result()?;
            sys::cuDeviceGetCount(&raw mut count).result()?;
        }
        Ok(count)
    }

    /// The newest version of CUDA that the driver is made for: 13000 for 13.0.
    pub fn driver_version() -> Result<i32, DriverError> {
        let mut version = 0;
        // SAFETY: a place for one number.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
        Ok(version)
    }

    /// Opens a device by its number.
    pub fn new(ordinal: usize) -> Result<Arc<Self>, DriverError> {
        let (mut device, mut context) = (0, std::ptr::null_mut());
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        // SAFETY: places for a number and a pointer, after the driver's start.
        unsafe {
            sys::cuInit(0).result()?;
            sys::cuDeviceGet(&raw mut device, number).result()?;
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device).result()?;
        }
        let opened = Self { device, context, ordinal, tracking: AtomicBool::new(false) };
        opened.bind_to_thread()?;
        Ok(Arc::new(opened))
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The driver's own number of it.
    pub fn cu_device(&self) -> sys::CUdevice {
        self.device
    }

    /// Makes it the context of this thread.
    pub fn bind_to_thread(&self) -> Result<(), DriverError> {
        let mut current = std::ptr::null_mut();
        // SAFETY: a place for one pointer, and a context that is open.
        unsafe {
            sys::cuCtxGetCurrent(&raw mut current).result()?;
            if current != self.context {
                sys::cuCtxSetCurrent(self.context).result()?;
            }
        }
        Ok(())
    }

    /// A number of it.
    pub fn attribute(&self, which: sys::CUdevice_attribute) -> Result<i32, DriverError> {
        // SAFETY: a device that is open.
        unsafe { result::device::get_attribute(self.device, which) }
    }

    /// Its compute capability.
    pub fn compute_capability(&self) -> Result<(i32, i32), DriverError> {
        let major = self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok((major, minor))
    }

    /// What its maker calls it.
    pub fn name(&self) -> Result<String, DriverError> {
        let mut name = [0_u8; 256];
        // SAFETY: as many bytes as are named.
        unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 256, self.device) }.result()?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Bytes that are free, and all.
    pub fn mem_get_info(&self) -> Result<(usize, usize), DriverError> {
        let (mut free, mut total) = (0, 0);
        self.bind_to_thread()?;
        // SAFETY: places for two numbers.
        unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }.result()?;
        Ok((free, total))
    }

    /// The pool that its memory comes from.
    fn pool(&self) -> Result<sys::CUmemoryPool, DriverError> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: a place for one pointer, and a device that is open.
        unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, self.device) }.result()?;
        Ok(pool)
    }

    /// A number of bytes of its pool.
    pub fn pool_bytes(&self, which: sys::CUmemPool_attribute) -> Result<u64, DriverError> {
        let mut bytes = 0_u64;
        // SAFETY: all attributes with names here are 64 bits.
        unsafe { sys::cuMemPoolGetAttribute(self.pool()?, which, (&raw mut bytes).cast()) }.result()?;
        Ok(bytes)
    }

    /// Has its pool keep what is freed: given back at every wait, it would have to be asked for again.
    pub fn keep_pool(&self) -> Result<(), DriverError> {
        self.set_pool(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
    }

    /// Lets its pool's count of the most that was used begin again at what is used now.
    pub fn forget_pool_peak(&self) -> Result<(), DriverError> {
        // The driver takes a zero here and nothing else.
        self.set_pool(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    fn set_pool(&self, which: sys::CUmemPool_attribute, mut number: u64) -> Result<(), DriverError> {
        // SAFETY: all attributes with names here are 64 bits.
        unsafe { sys::cuMemPoolSetAttribute(self.pool()?, which, (&raw mut number).cast()) }.result()
    }

    /// Gives back what its pool holds and nobody uses.
    pub fn trim_pool(&self) -> Result<(), DriverError> {
        // SAFETY: the pool of a device that is open.
        unsafe { sys::cuMemPoolTrimTo(self.pool()?, 0) }.result()
    }

    /// A stream of its own.
    pub fn new_stream(self: &Arc<Self>) -> Result<Arc<CudaStream>, DriverError> {
        CudaStream::new(self)
    }

    /// The same: work of one thread is in the order of one stream either way.
    pub fn per_thread_stream(self: &Arc<Self>) -> Arc<CudaStream> {
        CudaStream::of_thread(self)
    }

    /// Whether candle was told that uses are tracked.
    pub fn is_event_tracking(&self) -> bool {
        self.tracking.load(Ordering::Relaxed)
    }

    /// Nothing to turn off.
    ///
    /// # Safety
    /// Always sound.
    pub unsafe fn disable_event_tracking(&self) {
        self.tracking.store(false, Ordering::Relaxed);
    }
}
