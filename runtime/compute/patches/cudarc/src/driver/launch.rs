//! One launch of a kernel.

use std::ffi::c_void;

use super::module::CudaFunction;
use super::result::DriverError;
use super::slice::{CudaSlice, CudaView, CudaViewMut, DeviceRepr};
use super::stream::CudaStream;
use super::sys;

/// How many blocks of how many threads, and the shared memory of each block in bytes.
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig {
    /// Blocks on three axes.
    pub grid_dim: (u32, u32, u32),
    /// Threads on three axes.
    pub block_dim: (u32, u32, u32),
    /// Bytes of shared memory.
    pub shared_mem_bytes: u32,
}

impl LaunchConfig {
    /// A thread a number.
    pub fn for_num_elems(count: u32) -> Self {
        Self { grid_dim: (count.div_ceil(1024), 1, 1), block_dim: (1024, 1, 1), shared_mem_bytes: 0 }
    }
}

/// A launch that is being put together.
#[derive(Debug)]
pub struct LaunchArgs<'a> {
    stream: &'a CudaStream,
    function: &'a CudaFunction,
    arguments: Vec<*mut c_void>,
}

impl<'a> LaunchArgs<'a> {
    pub(super) fn new(stream: &'a CudaStream, function: &'a CudaFunction) -> Self {
        Self { stream, function, arguments: Vec::new() }
    }

    fn push<T>(&mut self, place: &'a T) -> &mut Self {
        self.arguments.push(std::ptr::from_ref(place).cast_mut().cast());
        self
    }

    /// Puts it into the stream.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and what it touches is there.
    pub unsafe fn launch(&mut self, config: LaunchConfig) -> Result<(), DriverError> {
        let ((x, y, z), (across, down, deep)) = (config.grid_dim, config.block_dim);
        self.stream.context().bind_to_thread()?;
        // SAFETY: the driver copies the arguments before it returns; that they are right is the caller's word.
        unsafe {
            sys::cuLaunchKernel(
                self.function.cu_function(),
                x,
                y,
                z,
                across,
                down,
                deep,
                config.shared_mem_bytes,
                self.stream.cu_stream(),
                self.arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
    }
}

/// What may be an argument.
///
/// # Safety
/// The place that is pushed holds what the kernel takes.
pub unsafe trait PushKernelArg<T> {
    /// The next argument.
    fn arg(&mut self, argument: T) -> &mut Self;
}

// SAFETY: a number goes as it lies.
unsafe impl<'a, 'b: 'a, T: DeviceRepr> PushKernelArg<&'b T> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b T) -> &mut Self {
        self.push(argument)
    }
}

// SAFETY: what goes is the address of the numbers.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b CudaSlice<T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b CudaSlice<T>) -> &mut Self {
        self.push(argument.held())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaSlice<T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b mut CudaSlice<T>) -> &mut Self {
        self.push(argument.held())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b CudaView<'c, T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b CudaView<'c, T>) -> &mut Self {
        self.push(argument.held())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b mut CudaViewMut<'c, T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b mut CudaViewMut<'c, T>) -> &mut Self {
        self.push(argument.held())
    }
}
