//! Restricts what a process that runs an untrusted method can do, by means of the operating system, in addition to the
//! sandbox. Each such restriction is called a ring; only Linux has them.
//!
//! Call [`confine_files`] before any other thread starts, [`deny_calls`] and [`limit_memory`] before the first
//! instruction of the method. A ring that the system lacks is left out; [`Ring::list`] returns which ones it has.

use std::io;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tunebox_compute::memory;

use crate::child;

/// Descriptions of the processes that the rings restrict.
pub const CONFINED: [&str; 2] = ["the worker of a run on the CPU", "the child of a command that reads a model"];

/// A ring, and whether this system has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ring {
    /// The name of the ring: `files and network`, `system calls` or `memory`.
    pub name: &'static str,
    /// Whether this system has it.
    pub is_active: bool,
}

impl Ring {
    /// Returns the three rings, each with whether this system has it. Tests the one for files by confining a
    /// short-lived thread, and the one for system calls by the entry `Seccomp:` of `/proc/self/status`. Linux always
    /// has the one for memory.
    #[must_use]
    pub fn list() -> [Self; 3] {
        let files = std::thread::spawn(|| confine_files(&[], &[])).join().is_ok_and(|tried| tried.is_ok_and(|on| on));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ring = |name, is_active| Self { name, is_active };
        [
            ring("files and network", files),
            ring("system calls", status.contains("\nSeccomp:")),
            ring("memory", cfg!(target_os = "linux")),
        ]
    }
}

/// Confines this thread, and those that it starts, permanently. Files below `read` may be read; below `write`, regular
/// files and folders may also be written, created and removed. Of all other files, only the system's libraries,
/// `/dev/null`, the random devices, and the files in which the system describes itself (such as `/proc/self` and
/// `/proc/meminfo`) remain. Files that are open already stay usable. Denies TCP, signals to processes without these
/// rules, and the capabilities of the root user except for files of other users. Returns whether the system enforces
/// the rules for files, even if only a part of them. Skips paths that do not exist.
///
/// # Errors
/// When the system rejects the rules or the change of capabilities.
#[cfg(target_os = "linux")]
pub fn confine_files(read: &[PathBuf], write: &[PathBuf]) -> io::Result<bool> {
    linux::confine_files(read, write).map_err(io::Error::other)
}

/// Denies nothing and returns false: this system has no such ring.
///
/// # Errors
/// Never.
#[cfg(not(target_os = "linux"))]
pub fn confine_files(_: &[PathBuf], _: &[PathBuf]) -> io::Result<bool> {
    Ok(false)
}

/// Makes the system end this process if one of its threads opens a socket, starts a program or another process, acts on
/// another process, changes the permissions of a file by its path, allocates memory that [`limit_memory`] does not
/// count, or cancels the signal that ends this process with its parent. Lets `clone3` and `memfd_create` fail with
/// `ENOSYS`, since libraries do without. Cannot be undone. Does nothing on systems other than Linux.
///
/// # Errors
/// When the system rejects the filters.
pub fn deny_calls() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::deny_calls(false).map_err(io::Error::other)?;
    Ok(())
}

/// Restricts a process that edits lines of a terminal as [`deny_calls`] does, but lets it create pairs of connected
/// local stream sockets and signal its own process group, for Ctrl-Z. Does nothing on systems other than Linux.
///
/// # Errors
/// When the system rejects the filters.
pub fn deny_calls_to_line_editor() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::deny_calls(true).map_err(io::Error::other)?;
    Ok(())
}

/// Limits the private writable memory of this process (`RLIMIT_DATA`), stacks of threads included, permanently to
/// `bytes` more than it has now. A limit that is lower already stays. Does not count shared memory: [`deny_calls`]
/// denies it. Does nothing where the system does not report how much the process has.
///
/// # Errors
/// When the system rejects the limit.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    let Some(most) = memory::private_bytes().map(|held| held.saturating_add(bytes)) else { return Ok(()) };
    child::lower_limit(Resource::Data, most, most)
}

/// Bytes allowed in addition to estimated memory, for stacks of threads and caches of the allocator.
pub const MARGIN: u64 = 768 << 20;

/// Bytes allowed for reading a model in addition to a multiple of the size of its files.
const READING_BYTES: u64 = 2 << 30;

/// Limits the memory of this process, as [`limit_memory`] does, to what it has now plus the machine's free memory and
/// swap plus [`MARGIN`]. Does nothing where the system does not report these sizes, or on a machine with NVIDIA's
/// driver ([`has_nvidia_driver`]): there the memory of the process includes what it has on the device.
///
/// # Errors
/// When the system rejects the limit.
pub fn limit_to_free_memory() -> io::Result<()> {
    let free = memory::available_with_swap().filter(|_| !has_nvidia_driver());
    free.map_or(Ok(()), |free| limit_memory(free.saturating_add(MARGIN)))
}

/// Whether this machine has NVIDIA's driver, which opens files of its own choice: whether
/// `/dev/nvidiactl` exists, or `/dev/dxg` in its place under WSL.
#[must_use]
pub fn has_nvidia_driver() -> bool {
    ["/dev/nvidiactl", "/dev/dxg"].iter().any(|device| std::path::Path::new(device).exists())
}

/// Returns the bytes of memory to allow for reading a model of `model` bytes and data of `data` bytes: 2 GiB plus four
/// times the model plus eight times the data, as what is read is held in several forms for a time.
#[must_use]
pub fn reading_memory(model: u64, data: u64) -> u64 {
    READING_BYTES.saturating_add(model.saturating_mul(4)).saturating_add(data.saturating_mul(8))
}

/// A temporary limit of the memory of this process; dropping it restores the limit before.
pub struct MemoryLimit(Rlimit);

impl MemoryLimit {
    /// Lowers the soft limit `RLIMIT_DATA` of this process to `bytes` more than it has now, until the value is dropped.
    /// Keeps a soft limit that is lower, and changes nothing where the system does not report how much the process has.
    ///
    /// # Errors
    /// When the system rejects the limit.
    pub fn set(bytes: u64) -> io::Result<Self> {
        let before = getrlimit(Resource::Data);
        if let Some(most) = memory::private_bytes().map(|held| held.saturating_add(bytes)) {
            let current = Some(before.current.map_or(most, |current| current.min(most)));
            setrlimit(Resource::Data, Rlimit { current, ..before })?;
        }
        Ok(Self(before))
    }
}

impl Drop for MemoryLimit {
    /// Restores the soft and hard limit that held before [`MemoryLimit::set`]. Ignores a failure.
    fn drop(&mut self) {
        // A limit that was allowed before is allowed again.
        let _ = setrlimit(Resource::Data, self.0);
    }
}

#[cfg(target_os = "linux")]
mod linux;
