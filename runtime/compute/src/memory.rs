//! The memory of this process and of the machine, as the system reports it.

/// Bytes of memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// What it holds: pages in memory that are not those of a file.
    pub held: u64,
    /// What it may still take: of the free memory of the machine, of its control group and of its own limits, the least.
    pub free: u64,
}

impl ProcessMemory {
    /// Reads the memory of this process; `None` where the system does not report it.
    #[must_use]
    pub fn read() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let left = |limit, used| Some(limit_of(&limits, limit)?.saturating_sub(kibibytes(&status, used)?));
        let own = [left("Max data size", "VmData:"), left("Max address space", "VmSize:")];
        let free = [available(), free_of_group()].into_iter().chain(own).flatten().min()?;
        Some(Self { held: kibibytes(&status, "RssAnon:")?, free })
    }
}

/// Available memory of this machine in bytes, from `/proc/meminfo`; `None` where that does not exist.
#[must_use]
pub fn available() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Memory of this machine that can still be taken, and its free swap space, in bytes; `None` where the system does not say.
#[must_use]
pub fn available_with_swap() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(kibibytes(&text, "MemAvailable:")? + kibibytes(&text, "SwapFree:").unwrap_or(0))
}

/// Peak resident memory of this process in bytes, from `/proc/self/status`; `None` where that does not exist.
#[must_use]
pub fn peak() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Resident memory of this process in bytes, from `/proc/self/status`; `None` where that does not exist.
#[must_use]
pub fn resident() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Private memory that this process may write to, in bytes, whether in use or not: what `RLIMIT_DATA` limits. From
/// `/proc/self/status`; `None` where that does not exist.
#[must_use]
pub fn data() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmData:")
}

/// Free bytes of the control group that limits this process, its cached files included; `None` without such a limit.
fn free_of_group() -> Option<u64> {
    let number = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let files = std::fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
    let files = files.lines().find_map(|line| line.strip_prefix("file "))?.parse::<u64>().ok()?;
    Some(number("memory.max")?.saturating_sub(number("memory.current")?.saturating_sub(files)))
}

/// The soft limit of a process in bytes from the text of `/proc/self/limits`; `None` if it has none of this name.
fn limit_of(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The number of the line that begins with `name`, such as `VmHWM:  123 kB`, in bytes; `None` without such a line.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_reported_at_once_and_in_the_peak() {
        let before = ProcessMemory::read().unwrap();
        let block = vec![1_u8; 64 << 20];
        let after = ProcessMemory::read().unwrap();
        let bytes: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        assert!(after.held >= bytes && peak().unwrap() >= bytes && before.free > 0);
    }
}
