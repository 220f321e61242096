//! The most memory of one part of a benchmark, where the system or the device can count anew.

use tunebox_compute::{Device, device};

use crate::error::Error;

/// Lets the counts of the largest memory, the system's of the process and that of the device, begin again at what is held
/// now. Where the system cannot, its count
/// goes on, and a peak is that of everything since the start. Whoever watches the process from outside is told the new
/// count, so what is forgotten must not be what was measured: this comes before the first part, and between two.
///
/// # Errors
/// What the device says.
pub(super) fn reset_peak(device: &Device) -> Result<(), Error> {
    // See proc_pid_clear_refs(5). Its failure is the case described above.
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
