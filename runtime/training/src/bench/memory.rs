//! The most memory of one part of a benchmark, where the system can count anew.

/// Lets the system's count of the process's largest memory begin again at what it holds now. Where it cannot, the count
/// goes on, and a peak is that of everything since the start. Whoever watches the process from outside is told the new
/// count, so what is forgotten must not be what was measured: this comes before the first part, and between two.
pub(super) fn forget_peak() {
    // See proc_pid_clear_refs(5). Its failure is the case described above.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
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
        forget_peak();
        // Other tests of this process hold something as well.
        assert!(peak().unwrap() < before - (BYTES as u64) / 2);
    }
}
