//! What a call of the driver came to.

use std::ffi::CStr;

use super::sys::{self, CUresult};

/// An error of the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DriverError(pub CUresult);

impl CUresult {
    /// Nothing, or the error.
    pub fn result(self) -> Result<(), DriverError> {
        if self == Self::CUDA_SUCCESS { Ok(()) } else { Err(DriverError(self)) }
    }
}

impl DriverError {
    /// What the driver says.
    pub fn words(&self) -> String {
        if self.0 == CUresult::ABSENT {
            return "the driver lacks a function that is called; a newer driver has it".into();
        }
        let mut words = std::ptr::null();
        // SAFETY: a place for one pointer.
        let asked = unsafe { sys::cuGetErrorString(self.0, &raw mut words) }.result();
        if asked.is_err() || words.is_null() {
            return format!("error {} of the driver", self.0.0);
        }
        // SAFETY: the driver's words end with a zero byte and stay where they are.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    }
}

impl std::fmt::Debug for DriverError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.words(), self.0.0)
    }
}

impl std::error::Error for DriverError {}

/// What candle asks of a device by its own number.
pub mod device {
    use super::DriverError;
    use crate::driver::sys;

    /// A number of a device.
    ///
    /// # Safety
    /// The device is one that the driver gave.
    pub unsafe fn get_attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<i32, DriverError> {
        let mut value = 0;
        // SAFETY: a place for one number, and the device that the caller answers for.
        unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) }.result()?;
        Ok(value)
    }
}
