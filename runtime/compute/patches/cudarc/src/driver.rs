//! Memory of a device as candle owns and copies it, and the other calls that candle would make of the driver.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

use crate::refuse;

/// An error of the driver.
pub type DriverError = crate::CallError<'d'>;

/// Bytes on a device, released when they are dropped. Calls return after the copy or in the order of one stream.
pub trait Memory: Any + std::fmt::Debug + Send + Sync {
    /// Copies all bytes of `from` (host) into this memory, at byte offset `start`.
    fn write(&self, start: usize, from: &[u8]) -> Result<(), String>;

    /// Fills `into` (host) with bytes of this memory, from byte offset `start` on. Waits until they are copied.
    fn read(&self, start: usize, into: &mut [u8]) -> Result<(), String>;

    /// Copies `count` bytes of `other`, another memory of the same device, from its byte offset `other_start` into this
    /// memory at byte offset `start`.
    fn copy(&self, start: usize, other: &dyn Memory, other_start: usize, count: usize) -> Result<(), String>;
}

/// The allocator of a device.
pub trait Allocator: std::fmt::Debug + Send + Sync {
    /// Allocates `bytes` bytes: zeroed if `cleared`, else with unspecified content.
    fn allocate(&self, bytes: usize, cleared: bool) -> Result<Arc<dyn Memory>, String>;
}

/// The context of a device: its number alone.
#[derive(Debug)]
pub struct CudaContext(usize);

impl CudaContext {
    /// Creates the context of the device `ordinal` without asking the driver: the device need not exist. Never fails.
    pub fn new(ordinal: usize) -> Result<Arc<Self>, DriverError> {
        Ok(Arc::new(Self(ordinal)))
    }

    /// The number of the device.
    pub fn ordinal(&self) -> usize {
        self.0
    }

    /// Returns nothing: there is no device number of the driver here.
    pub fn cu_device(&self) {}

    /// Creates a stream without an allocator. Never fails.
    pub fn new_stream(self: &Arc<Self>) -> Result<Arc<CudaStream>, DriverError> {
        Ok(self.per_thread_stream())
    }

    /// Creates a stream without an allocator. The streams of two calls are not related, nor bound to a thread.
    pub fn per_thread_stream(self: &Arc<Self>) -> Arc<CudaStream> {
        Arc::new(CudaStream { context: Arc::clone(self), allocator: OnceLock::new() })
    }

    /// Returns an empty module whatever the text is. [`CudaModule::load_function`] finds nothing in it.
    pub fn load_module(&self, _text: String) -> Result<Arc<CudaModule>, DriverError> {
        Ok(Arc::new(CudaModule))
    }

    /// Returns `false`: there are no events.
    pub fn is_event_tracking(&self) -> bool {
        false
    }

    /// Does nothing: there are no events.
    ///
    /// # Safety
    /// Always sound.
    pub unsafe fn disable_event_tracking(&self) {}
}

/// Code of candle's.
#[derive(Debug)]
pub struct CudaModule;

/// A kernel of candle's.
#[derive(Debug, Clone)]
pub struct CudaFunction;

impl CudaModule {
    /// Always fails, with an error that names the kernel.
    pub fn load_function(&self, name: &str) -> Result<CudaFunction, DriverError> {
        refuse(name)
    }
}

/// The stream of a device. Before [`CudaStream::set_allocator`], it allocates nothing.
#[derive(Debug)]
pub struct CudaStream {
    context: Arc<CudaContext>,
    allocator: OnceLock<Arc<dyn Allocator>>,
}

impl CudaStream {
    /// Sets the allocator of the stream. Does nothing if it has been set before.
    pub fn set_allocator(&self, allocator: Arc<dyn Allocator>) {
        let _ = self.allocator.set(allocator);
    }

    /// Allocates memory for `count` numbers of type `T`, zeroed if `cleared`. Fails if no allocator has been set.
    fn allocate<T>(self: &Arc<Self>, count: usize, cleared: bool) -> Result<CudaSlice<T>, DriverError> {
        let Some(allocator) = self.allocator.get() else { return refuse("alloc") };
        let memory = allocator.allocate(count * size_of::<T>(), cleared).map_err(crate::CallError)?;
        Ok(CudaSlice::new(memory, count, Arc::clone(self)))
    }

    /// The context that created the stream.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns a null pointer: there is no stream of the driver here.
    pub fn cu_stream(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    /// Always fails: this stream does not know of the work of the device.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        refuse("synchronize")
    }

    /// Reports that the stream is not being captured into a graph. Never fails.
    pub fn capture_status(&self) -> Result<sys::CUstreamCaptureStatus, DriverError> {
        Ok(sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Begins a launch of a kernel of candle's. [`LaunchArgs::launch`] always fails.
    pub fn launch_builder<'a>(&'a self, _function: &'a CudaFunction) -> LaunchArgs<'a> {
        LaunchArgs(PhantomData)
    }

    /// Allocates memory for `count` numbers, with unspecified content.
    ///
    /// # Safety
    /// They are written before they are read.
    pub unsafe fn alloc<T>(self: &Arc<Self>, count: usize) -> Result<CudaSlice<T>, DriverError> {
        self.allocate(count, false)
    }

    /// Allocates memory for `count` numbers, all zero.
    pub fn alloc_zeros<T>(self: &Arc<Self>, count: usize) -> Result<CudaSlice<T>, DriverError> {
        self.allocate(count, true)
    }

    /// Copies numbers of the host into new memory.
    pub fn clone_htod<T: DeviceRepr, F: HostSlice<T> + ?Sized>(
        self: &Arc<Self>,
        from: &F,
    ) -> Result<CudaSlice<T>, DriverError> {
        let mut to = self.allocate(from.len(), false)?;
        self.memcpy_htod(from, &mut to)?;
        Ok(to)
    }

    /// Copies numbers of the host into memory that holds at least as many.
    pub fn memcpy_htod<T: DeviceRepr, F: HostSlice<T> + ?Sized, U: DevicePtr<T>>(
        &self,
        from: &F,
        to: &mut U,
    ) -> Result<(), DriverError> {
        assert!(to.len() >= from.len(), "more numbers than there is memory for");
        let to = to.view();
        to.memory.write(to.start * size_of::<T>(), bytes(from.as_ref())).map_err(crate::CallError)
    }

    /// Copies numbers of the device into a new list of the host, and waits for them.
    pub fn clone_dtoh<T: DeviceRepr, F: DevicePtr<T>>(&self, from: &F) -> Result<Vec<T>, DriverError> {
        let mut to = vec![T::default(); from.len()];
        self.memcpy_dtoh(from, &mut to)?;
        Ok(to)
    }

    /// Copies numbers of the device into memory of the host that holds at least as many, and waits for them.
    pub fn memcpy_dtoh<T: DeviceRepr, F: DevicePtr<T>, U: HostSlice<T> + ?Sized>(
        &self,
        from: &F,
        to: &mut U,
    ) -> Result<(), DriverError> {
        let (from, to) = (from.view(), &mut to.as_mut()[..from.len()]);
        from.memory.read(from.start * size_of::<T>(), bytes_mut(to)).map_err(crate::CallError)
    }

    /// Copies numbers of the device into new memory.
    pub fn clone_dtod<T: DeviceRepr, F: DevicePtr<T>>(self: &Arc<Self>, from: &F) -> Result<CudaSlice<T>, DriverError> {
        let mut to = self.allocate(from.len(), false)?;
        self.memcpy_dtod(from, &mut to)?;
        Ok(to)
    }

    /// Copies all numbers of `from` into `to`, both on the device. Panics if `to` holds fewer numbers.
    pub fn memcpy_dtod<T, F: DevicePtr<T>, U: DevicePtr<T>>(&self, from: &F, to: &mut U) -> Result<(), DriverError> {
        assert!(to.len() >= from.len(), "more numbers than there is memory for");
        let (from, to, size) = (from.view(), to.view(), size_of::<T>());
        to.memory.copy(to.start * size, &*from.memory, from.start * size, from.count * size).map_err(crate::CallError)
    }
}

/// Reinterprets numbers as their bytes, in the byte order of the host.
fn bytes<T: DeviceRepr>(numbers: &[T]) -> &[u8] {
    // SAFETY: a type that goes to a device as it lies is a plain number, without padding.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Reinterprets numbers as their bytes, to be overwritten.
fn bytes_mut<T: DeviceRepr>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: a type that goes to a device as it lies is a plain number, of which all patterns of bits are valid.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// A launch that candle puts together.
#[derive(Debug)]
pub struct LaunchArgs<'a>(PhantomData<&'a CudaStream>);

impl LaunchArgs<'_> {
    /// Always fails: candle's own kernels do not exist in this build.
    ///
    /// # Safety
    /// Always sound.
    pub unsafe fn launch(&mut self, _config: LaunchConfig) -> Result<(), DriverError> {
        refuse("launch")
    }
}

/// The method by which candle adds an argument to a launch.
pub trait PushKernelArg<T> {
    /// Drops the argument and returns the launch.
    fn arg(&mut self, _argument: T) -> &mut Self {
        self
    }
}

impl<T> PushKernelArg<T> for LaunchArgs<'_> {}

/// How many blocks of how many threads, and the shared memory of each block in bytes.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "cudarc's names")]
pub struct LaunchConfig {
    pub grid_dim: (u32, u32, u32),
    pub block_dim: (u32, u32, u32),
    pub shared_mem_bytes: u32,
}

impl LaunchConfig {
    /// A launch of `count` blocks of one thread each.
    pub fn for_num_elems(count: u32) -> Self {
        Self { grid_dim: (count, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 }
    }
}

/// Numbers on a device. The memory is released with the last slice or view of it.
#[derive(Debug, Clone)]
pub struct CudaView<'a, T> {
    memory: Arc<dyn Memory>,
    /// The first number in the memory.
    start: usize,
    count: usize,
    stream: Arc<CudaStream>,
    kind: PhantomData<(T, &'a ())>,
}

/// Numbers on a device, as a tensor of candle owns them.
pub type CudaSlice<T> = CudaView<'static, T>;

/// Numbers on a device, to be written.
pub type CudaViewMut<'a, T> = CudaView<'a, T>;

impl<T> CudaSlice<T> {
    /// Wraps memory of a device that holds at least `count` numbers, beginning at its first byte, as a slice of
    /// candle's.
    pub fn new(memory: Arc<dyn Memory>, count: usize, stream: Arc<CudaStream>) -> Self {
        Self { memory, start: 0, count, stream, kind: PhantomData }
    }

    /// The memory that holds the numbers.
    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }
}

impl<T: DeviceRepr> CudaSlice<T> {
    /// Copies the numbers into new memory.
    pub fn try_clone(&self) -> Result<Self, DriverError> {
        self.stream.clone_dtod(self)
    }
}

impl<T> CudaView<'_, T> {
    /// The number of numbers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The stream of candle's device.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// A view of the numbers in `range`, counted in numbers. Panics if the range is not within this view.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> CudaView<'_, T> {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.count,
        };
        assert!(first <= end && end <= self.count, "numbers {first}..{end} of {} are not there", self.count);
        let (memory, stream) = (Arc::clone(&self.memory), Arc::clone(&self.stream));
        CudaView { memory, start: self.start + first, count: end - first, stream, kind: PhantomData }
    }

    /// A view of the numbers in `range`, to be written. Panics if the range is not within this view.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        self.slice(range)
    }
}

/// What candle keeps while it uses an address.
#[derive(Debug)]
pub struct SyncOnDrop<'a>(PhantomData<&'a CudaStream>);

/// Numbers on a device.
pub trait DevicePtr<T> {
    /// The numbers as a view.
    fn view(&self) -> &CudaView<'_, T>;

    /// The number of numbers.
    fn len(&self) -> usize {
        self.view().count
    }

    /// Returns a null address: no kernel of candle's reads it.
    fn device_ptr<'a>(&'a self, _stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
        (0, SyncOnDrop(PhantomData))
    }
}

/// Numbers on a device, to be written.
pub trait DevicePtrMut<T>: DevicePtr<T> {
    /// Returns a null address: no kernel of candle's writes it.
    fn device_ptr_mut<'a>(&'a mut self, _stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
        (0, SyncOnDrop(PhantomData))
    }
}

impl<T> DevicePtr<T> for CudaView<'_, T> {
    fn view(&self) -> &CudaView<'_, T> {
        self
    }
}

impl<T> DevicePtrMut<T> for CudaView<'_, T> {}

/// Numbers of the host.
pub trait HostSlice<T>: AsRef<[T]> + AsMut<[T]> {
    /// The number of numbers.
    fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether there are no numbers.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers themselves; waits for nothing.
    ///
    /// # Safety
    /// Always sound.
    unsafe fn stream_synced_slice<'a>(&'a self, _stream: &'a CudaStream) -> (&'a [T], SyncOnDrop<'a>) {
        (self.as_ref(), SyncOnDrop(PhantomData))
    }
}

impl<T, S: AsRef<[T]> + AsMut<[T]> + ?Sized> HostSlice<T> for S {}

/// A type that goes to a device as it lies.
///
/// # Safety
/// It is a plain number without padding, of which all patterns of bits are valid.
pub unsafe trait DeviceRepr: Copy + Default {}

/// A type of which zero bits are a value.
pub trait ValidAsZeroBits {}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        // SAFETY: a plain number.
        unsafe impl DeviceRepr for $kind {}
        impl ValidAsZeroBits for $kind {}
    )*};
}

numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 half::f16 half::bf16 float8::F8E4M3 }

/// Enumerations of names that candle writes and nothing reads.
macro_rules! names {
    ($($name:ident { $($member:ident)* })*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($member,)* }
    )*};
}
pub(crate) use names;

/// The module where candle asks for the attributes of a device.
pub mod result {
    /// Attributes of a device.
    pub mod device {
        /// Always fails: no attribute of a device can be asked for here.
        ///
        /// # Safety
        /// Always sound.
        pub unsafe fn get_attribute(
            _device: (),
            _which: crate::driver::sys::CUdevice_attribute,
        ) -> Result<i32, crate::driver::DriverError> {
            crate::refuse("attribute")
        }
    }
}

/// The names of the driver that candle writes.
#[allow(non_camel_case_types, missing_docs, reason = "the driver's names")]
pub mod sys {
    super::names! {
        CUdevice_attribute {
            CU_DEVICE_ATTRIBUTE_WARP_SIZE
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        }
        CUstreamCaptureStatus { CU_STREAM_CAPTURE_STATUS_NONE CU_STREAM_CAPTURE_STATUS_ACTIVE }
    }
}
