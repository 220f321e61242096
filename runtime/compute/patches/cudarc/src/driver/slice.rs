//! Numbers on a device.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::result::DriverError;
use super::stream::CudaStream;
use super::sys;

/// What goes to a device as it lies, and comes back as it was written there.
///
/// # Safety
/// The type is of that kind.
pub unsafe trait DeviceRepr {}

/// Numbers of which zero bits are one.
///
/// # Safety
/// The type is of that kind.
pub unsafe trait ValidAsZeroBits {}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        // SAFETY: a plain number.
        unsafe impl DeviceRepr for $kind {}
        // SAFETY: as above.
        unsafe impl ValidAsZeroBits for $kind {}
    )*};
}

// SAFETY: a byte. Only a launch could leave another pattern of bits in its place, and a launch is the caller's word.
unsafe impl DeviceRepr for bool {}

numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 half::f16 half::bf16 float8::F8E4M3 }

/// Keeps a borrow for as long as the address is used; there is nothing to do when it goes.
#[derive(Debug, Default)]
#[must_use]
pub struct SyncOnDrop<'a>(PhantomData<&'a CudaStream>);

/// Memory of a device that ends with this, in the order of its stream.
#[derive(Debug)]
pub struct CudaSlice<T> {
    address: sys::CUdeviceptr,
    count: usize,
    stream: Arc<CudaStream>,
    kind: PhantomData<T>,
}

impl<T> Drop for CudaSlice<T> {
    fn drop(&mut self) {
        // The last to hold it may be a thread that never used the device.
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: the only end of memory that was had in this stream.
        let _ = unsafe { sys::cuMemFreeAsync(self.address, self.stream.cu_stream()) };
    }
}

impl<T> CudaSlice<T> {
    pub(super) fn new(address: sys::CUdeviceptr, count: usize, stream: Arc<CudaStream>) -> Self {
        Self { address, count, stream, kind: PhantomData }
    }

    pub(super) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The stream that it is of.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Some of the numbers.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> CudaView<'_, T> {
        let (first, count) = part(range, self.count);
        CudaView { address: moved::<T>(self.address, first), count, stream: &self.stream, kind: PhantomData }
    }

    /// The same to be written.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        let (first, count) = part(range, self.count);
        CudaViewMut { address: moved::<T>(self.address, first), count, stream: &self.stream, kind: PhantomData }
    }
}

impl<T: DeviceRepr> CudaSlice<T> {
    /// The same numbers in other memory.
    pub fn try_clone(&self) -> Result<Self, DriverError> {
        self.stream.clone_dtod(self)
    }
}

impl<T: DeviceRepr> Clone for CudaSlice<T> {
    fn clone(&self) -> Self {
        match self.try_clone() {
            Ok(copy) => copy,
            // A copy cannot be refused in another way; candle asks for none where we use it.
            Err(error) => panic!("memory of a device is not copied: {error}"),
        }
    }
}

/// Some numbers of a slice.
#[derive(Debug)]
pub struct CudaView<'a, T> {
    address: sys::CUdeviceptr,
    count: usize,
    stream: &'a Arc<CudaStream>,
    kind: PhantomData<&'a [T]>,
}

impl<'a, T> CudaView<'a, T> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Some of them.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> CudaView<'a, T> {
        let (first, count) = part(range, self.count);
        CudaView { address: moved::<T>(self.address, first), count, stream: self.stream, kind: PhantomData }
    }
}

/// Some numbers of a slice, to be written.
#[derive(Debug)]
pub struct CudaViewMut<'a, T> {
    address: sys::CUdeviceptr,
    count: usize,
    stream: &'a Arc<CudaStream>,
    kind: PhantomData<&'a mut [T]>,
}

/// The first place and the number of places of a range.
fn part(range: impl RangeBounds<usize>, count: usize) -> (usize, usize) {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => count,
    };
    assert!(first <= end && end <= count, "numbers {first}..{end} of {count} are not there");
    (first, end - first)
}

fn moved<T>(address: sys::CUdeviceptr, places: usize) -> sys::CUdeviceptr {
    address + (places * size_of::<T>()) as u64
}

/// Numbers on a device, however they are held.
pub trait DeviceSlice<T> {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stream that they are of.
    fn stream(&self) -> &Arc<CudaStream>;
}

/// Such numbers to be read.
pub trait DevicePtr<T>: DeviceSlice<T> {
    /// Where they are, for as long as the second value lives.
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>);
}

/// Such numbers to be written.
pub trait DevicePtrMut<T>: DeviceSlice<T> {
    /// Where they are, for as long as the second value lives.
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>);
}

macro_rules! readable {
    ($([$($lifetime:lifetime)?] $kind:ty;)*) => {$(
        impl<$($lifetime,)? T> DeviceSlice<T> for $kind {
            fn len(&self) -> usize {
                self.count
            }

            fn stream(&self) -> &Arc<CudaStream> {
                &self.stream
            }
        }

        impl<$($lifetime,)? T> DevicePtr<T> for $kind {
            fn device_ptr<'a>(&'a self, _stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
                (self.address, SyncOnDrop::default())
            }
        }

        impl<$($lifetime,)? T> $kind {
            /// The place of the address, for a launch.
            pub(super) fn held(&self) -> &sys::CUdeviceptr {
                &self.address
            }
        }
    )*};
}

macro_rules! writable {
    ($([$($lifetime:lifetime)?] $kind:ty;)*) => {$(
        impl<$($lifetime,)? T> DevicePtrMut<T> for $kind {
            fn device_ptr_mut<'a>(&'a mut self, _stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
                (self.address, SyncOnDrop::default())
            }
        }
    )*};
}

readable! {
    [] CudaSlice<T>;
    ['v] CudaView<'v, T>;
    ['v] CudaViewMut<'v, T>;
}

writable! {
    [] CudaSlice<T>;
    ['v] CudaViewMut<'v, T>;
}
