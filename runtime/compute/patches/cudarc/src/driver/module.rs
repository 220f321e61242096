//! Code on a device.

use std::ffi::CString;
use std::sync::Arc;

use super::context::CudaContext;
use super::result::DriverError;
use super::sys;
use crate::nvrtc::Ptx;

/// Code that is loaded.
#[derive(Debug)]
pub struct CudaModule {
    module: sys::CUmodule,
    context: Arc<CudaContext>,
}

// SAFETY: the driver's modules may be used from every thread.
unsafe impl Send for CudaModule {}
// SAFETY: as above.
unsafe impl Sync for CudaModule {}

impl Drop for CudaModule {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: the only end of what was loaded; every function of it holds it.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

impl CudaContext {
    /// Loads code: the driver's text, or machine code.
    pub fn load_module(self: &Arc<Self>, code: Ptx) -> Result<Arc<CudaModule>, DriverError> {
        let mut module = std::ptr::null_mut();
        self.bind_to_thread()?;
        let code = code.image();
        // SAFETY: a place for one pointer, and an image that ends by itself: a text with a zero byte, machine code by
        // what its head says.
        unsafe { sys::cuModuleLoadData(&raw mut module, code.as_ptr().cast()) }.result()?;
        Ok(Arc::new(CudaModule { module, context: Arc::clone(self) }))
    }
}

/// A kernel.
#[derive(Debug, Clone)]
pub struct CudaFunction {
    function: sys::CUfunction,
    module: Arc<CudaModule>,
}

// SAFETY: the driver's functions may be used from every thread.
unsafe impl Send for CudaFunction {}
// SAFETY: as above.
unsafe impl Sync for CudaFunction {}

impl CudaModule {
    /// A kernel by its name.
    pub fn load_function(self: &Arc<Self>, name: &str) -> Result<CudaFunction, DriverError> {
        let mut function = std::ptr::null_mut();
        // A name with a zero byte is that of no kernel, and neither is the empty one.
        let name = CString::new(name).unwrap_or_default();
        self.context.bind_to_thread()?;
        // SAFETY: a place for one pointer, a module that is loaded, a name that ends.
        unsafe { sys::cuModuleGetFunction(&raw mut function, self.module, name.as_ptr()) }.result()?;
        Ok(CudaFunction { function, module: Arc::clone(self) })
    }
}

impl CudaFunction {
    pub(super) fn cu_function(&self) -> sys::CUfunction {
        self.function
    }

    /// Gives its blocks leave for so many bytes of shared memory.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), DriverError> {
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.module.context.bind_to_thread()?;
        // SAFETY: a function of a module that is loaded.
        unsafe { sys::cuFuncSetAttribute(self.function, which, bytes) }.result()
    }
}
