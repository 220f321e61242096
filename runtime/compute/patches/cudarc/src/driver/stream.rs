//! A stream, and memory in its order.

use std::sync::Arc;

use super::context::CudaContext;
use super::launch::LaunchArgs;
use super::module::CudaFunction;
use super::result::DriverError;
use super::slice::{CudaSlice, DevicePtr, DevicePtrMut, DeviceRepr, SyncOnDrop, ValidAsZeroBits};
use super::sys;

/// Work that is done in the order in which it was asked for.
#[derive(Debug)]
pub struct CudaStream {
    stream: sys::CUstream,
    context: Arc<CudaContext>,
    /// Whether it ends with this.
    owned: bool,
}

// SAFETY: the driver's streams may be used from every thread.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.owned {
            let _ = self.context.bind_to_thread();
            // SAFETY: the only end of a stream that was made here.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
    }
}

impl CudaStream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Arc<Self>, DriverError> {
        let mut stream = std::ptr::null_mut();
        context.bind_to_thread()?;
        // SAFETY: a place for one pointer, in the context of this thread.
        unsafe { sys::cuStreamCreate(&raw mut stream, sys::CU_STREAM_NON_BLOCKING) }.result()?;
        Ok(Arc::new(Self { stream, context: Arc::clone(context), owned: true }))
    }

    /// The default stream of whatever thread uses it.
    pub(super) fn of_thread(context: &Arc<CudaContext>) -> Arc<Self> {
        let stream = std::ptr::without_provenance_mut(2);
        Arc::new(Self { stream, context: Arc::clone(context), owned: false })
    }

    /// The driver's own.
    pub fn cu_stream(&self) -> sys::CUstream {
        self.stream
    }

    /// The device.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Waits for all that is in it.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: a stream that is open.
        unsafe { sys::cuStreamSynchronize(self.stream) }.result()
    }

    /// Whether it is being recorded.
    pub fn capture_status(&self) -> Result<sys::CUstreamCaptureStatus, DriverError> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.context.bind_to_thread()?;
        // SAFETY: a place for one number, and a stream that is open.
        unsafe { sys::cuStreamIsCapturing(self.stream, &raw mut status) }.result()?;
        Ok(status)
    }

    /// The beginning of a launch.
    pub fn launch_builder<'a>(&'a self, function: &'a CudaFunction) -> LaunchArgs<'a> {
        LaunchArgs::new(self, function)
    }

    /// Memory for numbers, which are anything until they are written.
    ///
    /// # Safety
    /// They are written before they are read.
    pub unsafe fn alloc<T: DeviceRepr>(self: &Arc<Self>, count: usize) -> Result<CudaSlice<T>, DriverError> {
        let mut address = 0;
        self.context.bind_to_thread()?;
        // The driver takes no request for nothing.
        let bytes = count.saturating_mul(size_of::<T>()).max(1);
        // SAFETY: a place for one address, and a stream that is open.
        unsafe { sys::cuMemAllocAsync(&raw mut address, bytes, self.stream) }.result()?;
        Ok(CudaSlice::new(address, count, Arc::clone(self)))
    }

    /// Memory of zeros.
    pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(
        self: &Arc<Self>,
        count: usize,
    ) -> Result<CudaSlice<T>, DriverError> {
        // SAFETY: written at once.
        let slice = unsafe { self.alloc::<T>(count) }?;
        let (address, bytes) = (slice.address(), count * size_of::<T>());
        // SAFETY: as many bytes as were had.
        unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.stream) }.result()?;
        Ok(slice)
    }

    /// Numbers of the host in new memory.
    pub fn clone_htod<T: DeviceRepr, From: HostSlice<T> + ?Sized>(
        self: &Arc<Self>,
        from: &From,
    ) -> Result<CudaSlice<T>, DriverError> {
        // SAFETY: written at once.
        let mut to = unsafe { self.alloc::<T>(from.len()) }?;
        self.memcpy_htod(from, &mut to)?;
        Ok(to)
    }

    /// Numbers of the host into memory that holds at least as many.
    pub fn memcpy_htod<T: DeviceRepr, From: HostSlice<T> + ?Sized, To: DevicePtrMut<T>>(
        self: &Arc<Self>,
        from: &From,
        to: &mut To,
    ) -> Result<(), DriverError> {
        assert!(to.len() >= from.len(), "more numbers than there is memory for");
        self.context.bind_to_thread()?;
        // SAFETY: the driver has read pageable memory when the call returns.
        let (from, _host) = unsafe { from.stream_synced_slice(self) };
        let (to, _device) = to.device_ptr_mut(self);
        // SAFETY: as many bytes as there are on both sides.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), size_of_val(from), self.stream) }.result()
    }

    /// Numbers of the device in a list of the host; the call returns when they are there.
    pub fn clone_dtoh<T: DeviceRepr, From: DevicePtr<T>>(self: &Arc<Self>, from: &From) -> Result<Vec<T>, DriverError> {
        let count = from.len();
        let mut to = Vec::<T>::with_capacity(count);
        self.context.bind_to_thread()?;
        let (address, _device) = from.device_ptr(self);
        let bytes = count * size_of::<T>();
        // SAFETY: as many bytes as there are on both sides, all written when the wait is over.
        unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, bytes, self.stream).result()?;
            sys::cuStreamSynchronize(self.stream).result()?;
            to.set_len(count);
        }
        Ok(to)
    }

    /// The same into memory of the host that holds at least as many.
    pub fn memcpy_dtoh<T: DeviceRepr, From: DevicePtr<T>, To: HostSlice<T> + ?Sized>(
        self: &Arc<Self>,
        from: &From,
        to: &mut To,
    ) -> Result<(), DriverError> {
        assert!(to.len() >= from.len(), "more numbers than there is memory for");
        self.context.bind_to_thread()?;
        let bytes = from.len() * size_of::<T>();
        let (from, _device) = from.device_ptr(self);
        // SAFETY: as many bytes as there are on both sides, all written when the wait is over.
        unsafe {
            let (to, _host) = to.stream_synced_mut_slice(self);
            sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, bytes, self.stream).result()?;
            sys::cuStreamSynchronize(self.stream).result()
        }
    }

    /// Numbers of the device in new memory.
    pub fn clone_dtod<T: DeviceRepr, From: DevicePtr<T>>(
        self: &Arc<Self>,
        from: &From,
    ) -> Result<CudaSlice<T>, DriverError> {
        // SAFETY: written at once.
        let mut to = unsafe { self.alloc::<T>(from.len()) }?;
        self.memcpy_dtod(from, &mut to)?;
        Ok(to)
    }

    /// The same into memory that holds at least as many.
    pub fn memcpy_dtod<T, From: DevicePtr<T>, To: DevicePtrMut<T>>(
        self: &Arc<Self>,
        from: &From,
        to: &mut To,
    ) -> Result<(), DriverError> {
        assert!(to.len() >= from.len(), "more numbers than there is memory for");
        self.context.bind_to_thread()?;
        let bytes = from.len() * size_of::<T>();
        let (from, _from) = from.device_ptr(self);
        let (to, _to) = to.device_ptr_mut(self);
        // SAFETY: as many bytes as there are on both sides.
        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) }.result()
    }
}

/// Numbers of the host.
pub trait HostSlice<T> {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers.
    ///
    /// # Safety
    /// The stream has read them when the second value goes.
    unsafe fn stream_synced_slice<'a>(&'a self, stream: &'a CudaStream) -> (&'a [T], SyncOnDrop<'a>);

    /// The same to be written.
    ///
    /// # Safety
    /// The stream has written them when the second value goes.
    unsafe fn stream_synced_mut_slice<'a>(&'a mut self, stream: &'a CudaStream) -> (&'a mut [T], SyncOnDrop<'a>);
}

macro_rules! host_slices {
    ($([$($generic:tt)*] $kind:ty;)*) => {$(
        impl<T, $($generic)*> HostSlice<T> for $kind {
            fn len(&self) -> usize {
                <[T]>::len(self)
            }

            unsafe fn stream_synced_slice<'a>(&'a self, _stream: &'a CudaStream) -> (&'a [T], SyncOnDrop<'a>) {
                (self, SyncOnDrop::default())
            }

            unsafe fn stream_synced_mut_slice<'a>(
                &'a mut self,
                _stream: &'a CudaStream,
            ) -> (&'a mut [T], SyncOnDrop<'a>) {
                (self, SyncOnDrop::default())
            }
        }
    )*};
}

host_slices! {
    [] [T];
    [] Vec<T>;
    [const N: usize] [T; N];
}
