//! What the operating system denies to a process that runs an untrusted method: the rings behind the sandbox, on Linux.
//!
//! [`confine_files`] comes before any other thread starts, [`deny_calls`] and [`limit_memory`] before the first
//! instruction of the method. A ring that the system does not have is left out; [`Ring::list`] says which there are. Other
//! systems have none.

use std::io;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tunebox_compute::memory;

use crate::child;

/// The processes that the rings surround.
pub const CONFINED: [&str; 2] = ["the worker of a run on the CPU", "the child of a command that reads a model"];

/// A ring, and whether this system has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ring {
    /// What it is called: `files and network`, `system calls` or `memory`.
    pub name: &'static str,
    /// Whether this system has it.
    pub is_active: bool,
}

impl Ring {
    /// Returns every ring. Tries the one for files in a thread that ends at once.
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

/// Denies this thread, and those that it starts, all files but those below `read` and `write`, the system's libraries, and
/// what the system says of itself; TCP; signals to other processes; and what only the root user may do, but for the files of
/// other users. Below `write`, only ordinary files and folders can be created. Returns whether the system does so for files.
/// Paths that do not exist are left out.
///
/// # Errors
/// When the system refuses.
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

/// Ends this process from now on if one of its threads opens a socket, starts a program or another process, acts on another
/// process, changes the permissions of a file by its path, takes memory that [`limit_memory`] does not count, or lets this
/// process outlive its parent. Does nothing where the system has no such ring.
///
/// # Errors
/// When the system refuses.
pub fn deny_calls() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::deny_calls(false).map_err(io::Error::other)?;
    Ok(())
}

/// Denies what [`deny_calls`] denies to a process that edits lines of a terminal. It may make pairs of connected sockets, and
/// signal its own process group, for Ctrl-Z.
///
/// # Errors
/// When the system refuses.
pub fn deny_calls_to_line_editor() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::deny_calls(true).map_err(io::Error::other)?;
    Ok(())
}

/// Limits the memory that this process may write to, with the stacks of its threads, to `bytes` more than it has now. Shared
/// memory is not counted: [`deny_calls`] denies it. Does nothing where the system does not tell how much that is.
///
/// # Errors
/// When the system refuses.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    let Some(most) = memory::data().map(|held| held.saturating_add(bytes)) else { return Ok(()) };
    child::limit(Resource::Data, most, most)
}

/// Memory beside what is estimated: stacks of threads, caches of the allocator.
pub const MARGIN: u64 = 768 << 20;

/// Memory for reading a model beside what its files explain.
const READING: u64 = 2 << 30;

/// Limits the memory of this process to what the machine has free, and a margin. Does nothing on a machine with NVIDIA's
/// driver, which counts as memory of the process what it has on the device.
///
/// # Errors
/// When the system refuses.
pub fn limit_to_free_memory() -> io::Result<()> {
    let free = memory::available_with_swap().filter(|_| !has_nvidia_driver());
    free.map_or(Ok(()), |free| limit_memory(free.saturating_add(MARGIN)))
}

/// Whether this machine has NVIDIA's driver, which decides itself what it opens.
#[must_use]
pub fn has_nvidia_driver() -> bool {
    ["/dev/nvidiactl", "/dev/dxg"].iter().any(|device| std::path::Path::new(device).exists())
}

/// The memory for reading a model and data of so many bytes: 2 GiB, and several times their size, as what is read is held
/// in other forms for a time.
#[must_use]
pub fn reading_memory(model: u64, data: u64) -> u64 {
    READING.saturating_add(model.saturating_mul(4)).saturating_add(data.saturating_mul(8))
}

/// A limit of the memory of this process that ends when it is dropped.
pub struct MemoryLimit(Rlimit);

impl MemoryLimit {
    /// Limits the memory of this process to `bytes` more than it has now, or to the limit that it has already.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set(bytes: u64) -> io::Result<Self> {
        let before = getrlimit(Resource::Data);
        if let Some(most) = memory::data().map(|held| held.saturating_add(bytes)) {
            let current = Some(before.current.map_or(most, |current| current.min(most)));
            setrlimit(Resource::Data, Rlimit { current, ..before })?;
        }
        Ok(Self(before))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A limit that was allowed before is allowed again.
        let _ = setrlimit(Resource::Data, self.0);
    }
}

#[cfg(target_os = "linux")]
mod linux;
