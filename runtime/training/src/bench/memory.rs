//! The peak memory of one phase of a benchmark.

use tunebox_compute::{Device, device};

use crate::error::Error;

/// Resets the peak memory of the process and of the device to the memory in use now. On a system that cannot reset it, a later
/// peak is that since the start of the process. Also resets the peak that other processes see.
///
/// # Errors
/// An error of the device.
pub(super) fn reset_peak(device: &Device) -> Result<(), Error> {
    // See proc_pid_clear_refs(5). A failure means that the system cannot reset it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    Ok(device::reset_peak(device)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::peak;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_held_before_is_forgotten() {
        const BYTES: usize = 512 << 20;
        let block = vec![1_u8; BYTES];
        let before = peak().unwrap();
        assert!(before >= block.iter().map(|byte| u64::from(*byte)).sum());
        drop(block);
        reset_peak(&Device::Cpu).unwrap();
        // Other tests of this process hold something as well.
        assert!(peak().unwrap() < before - (BYTES as u64) / 2);
    }
}
