//! The memory of this process and of the machine, as the system reports it.

use std::path::Path;

/// Bytes of memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Anonymous resident memory: pages in memory that no file backs (`RssAnon`).
    pub held: u64,
    /// What the process may still allocate: the least of the free memory of the machine, of the control groups and of
    /// the resource limits of the process.
    pub free: u64,
}

impl ProcessMemory {
    /// Reads the memory of this process from `/proc` and `/sys/fs/cgroup`. Of the three kinds of free memory, leaves
    /// out those that the system does not report. `None` where it reports no `RssAnon`, or none of the three.
    #[must_use]
    pub fn read() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let free = [available(), free_of_groups(), free_of_limits(&status)].into_iter().flatten().min()?;
        Some(Self { held: read_bytes_field(&status, "RssAnon:")?, free })
    }
}

/// Bytes that this process may still allocate: the lesser of what its resource limits leave and of the available memory
/// and free swap space of the machine together. Leaves out control groups. `None` where the system reports neither.
#[must_use]
pub fn allocatable() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    [available_with_swap(), free_of_limits(&status)].into_iter().flatten().min()
}

/// Bytes that the soft resource limits leave to this process: the lesser of data limit − `VmData` and address space
/// limit − `VmSize`, each at least 0. `status` is the text of `/proc/self/status`. `None` if neither is limited.
fn free_of_limits(status: &str) -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let left = |limit, used| Some(limit_of(&limits, limit)?.saturating_sub(read_bytes_field(status, used)?));
    [left("Max data size", "VmData:"), left("Max address space", "VmSize:")].into_iter().flatten().min()
}

/// Available memory of this machine in bytes, from `/proc/meminfo`; `None` where that does not exist.
#[must_use]
pub fn available() -> Option<u64> {
    read_bytes_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The sum of available memory and free swap space of this machine, in bytes. `None` where the system does not report
/// available memory; swap space that it does not report counts as 0.
#[must_use]
pub fn available_with_swap() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(read_bytes_field(&text, "MemAvailable:")? + read_bytes_field(&text, "SwapFree:").unwrap_or(0))
}

/// Peak resident memory of this process in bytes, from `/proc/self/status`; `None` where that does not exist.
#[must_use]
pub fn peak() -> Option<u64> {
    read_bytes_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Resident memory of this process in bytes, from `/proc/self/status`; `None` where that does not exist.
#[must_use]
pub fn resident() -> Option<u64> {
    read_bytes_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Private memory that this process may write to, in bytes, whether in use or not: what `RLIMIT_DATA` limits. From
/// `/proc/self/status`; `None` where that does not exist.
#[must_use]
pub fn private_bytes() -> Option<u64> {
    read_bytes_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmData:")
}

/// The fewest free bytes of the control groups that limit this process, where cached files count as free; `None`
/// without such a limit.
fn free_of_groups() -> Option<u64> {
    free_below(Path::new("/sys/fs/cgroup"), &std::fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The names of a control group's files with its memory limit and with the memory in use, both in bytes, and the prefix
/// of the line of `memory.stat` with the bytes of its cached files.
type GroupFiles = [&'static str; 3];

/// The files of control groups of version 2.
const SECOND_VERSION: GroupFiles = ["memory.max", "memory.current", "file "];
/// The files of control groups of version 1.
const FIRST_VERSION: GroupFiles = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache "];

/// Returns the fewest free bytes of the control groups that `groups`, the text of `/proc/self/cgroup`, lists and of
/// their ancestors; `None` if none has a limit. Groups of version 2 are mounted in `root`, those of version 1 in
/// `root/memory`. Leaves out a group that is not mounted there, as in a container.
fn free_below(root: &Path, groups: &str) -> Option<u64> {
    let least = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (folder, files) = match controllers {
            "" => (root.to_owned(), SECOND_VERSION),
            list if list.split(',').any(|name| name == "memory") => (root.join("memory"), FIRST_VERSION),
            _ => return None,
        };
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        groups.filter_map(|group| free_of_group(&folder.join(group), files)).min()
    };
    groups.lines().filter_map(least).min()
}

/// Free bytes of the control group in the folder `group`: limit − (used − cached files), at least 0. `limit` and `used`
/// are file names, `cached` is the prefix of a line of `memory.stat`. `None` if the group has no limit, or one of these
/// is missing.
fn free_of_group(group: &Path, [limit, used, cached]: GroupFiles) -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
    let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
    let files = read("memory.stat")?.lines().find_map(|line| line.strip_prefix(cached))?.parse::<u64>().ok()?;
    Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(files)))
}

/// The soft limit called `name` (such as `Max data size`) in bytes, from `limits`, the text of `/proc/self/limits`.
/// `None` if the text has no such line or the limit is `unlimited`.
fn limit_of(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Returns the number in the first line of `text` that begins with `name`, such as `VmHWM:  123 kB`, times 1024: in
/// bytes. `None` without such a line.
fn read_bytes_field(text: &str, name: &str) -> Option<u64> {
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

    #[test]
    fn control_groups_of_both_versions_and_those_around_them_limit_what_is_free() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, files: GroupFiles, numbers: [&str; 3]| {
            let folder = root.path().join(path);
            std::fs::create_dir_all(&folder).unwrap();
            let [limit, used, cached] = files;
            std::fs::write(folder.join(limit), numbers[0]).unwrap();
            std::fs::write(folder.join(used), numbers[1]).unwrap();
            std::fs::write(folder.join("memory.stat"), format!("anon 1\n{cached}{}\n", numbers[2])).unwrap();
        };
        let free = |groups: &str| free_below(root.path(), groups);
        group("user/run", SECOND_VERSION, ["max\n", "50\n", "10"]);
        assert_eq!(free("0::/user/run\n"), None);
        group("user", SECOND_VERSION, ["100\n", "50\n", "10"]);
        assert_eq!(free("0::/user/run\n"), Some(60));
        group("memory/docker", FIRST_VERSION, ["70\n", "30\n", "5"]);
        assert_eq!(free("5:cpu:/docker\n4:cpuset,memory:/docker/unmounted\n0::/user/run\n"), Some(45));
    }
}
