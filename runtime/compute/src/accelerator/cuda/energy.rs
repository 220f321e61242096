//! The energy of a device, as NVML counts it.
#![expect(unsafe_code, reason = "functions of C")]

use super::context::Context;
use super::sys;

impl Context {
    /// Returns the energy in joules that the device took since NVIDIA's driver was loaded, all programs together.
    /// `None` if NVML cannot be opened, or does not count it for this device. Initializes NVML at each call and leaves
    /// it open.
    pub(super) fn joules(&self) -> Option<f64> {
        sys::NVML.open(&[]).ok()?;
        let mut name = [0_u8; 32];
        // SAFETY: as many bytes as the length says.
        unsafe { sys::cuDeviceGetPCIBusId(name.as_mut_ptr().cast(), 32, self.device()) }.ok()?;
        let (mut device, mut millijoules) = (0, 0_u64);
        // SAFETY: NVML counts how often it was initialized.
        unsafe { sys::nvmlInit_v2() }.ok()?;
        // SAFETY: a name that the driver ended with a zero byte, and room for one handle.
        unsafe { sys::nvmlDeviceGetHandleByPciBusId_v2(name.as_ptr().cast(), &raw mut device) }.ok()?;
        // SAFETY: a handle of NVML, and room for one number.
        unsafe { sys::nvmlDeviceGetTotalEnergyConsumption(device, &raw mut millijoules) }.ok()?;
        Some(millijoules as f64 / 1e3)
    }
}
