//! What the operating system denies to a process that runs a stranger's method: the rings behind the sandbox, on Linux.
//!
//! [`confine_files`] comes before any other thread starts, [`deny_calls`] and [`limit_memory`] before the first
//! instruction of the method. A ring that the system does not have is left out; [`Ring::list`] says which there are. Other
//! systems have none.

use std::io;
use std::path::PathBuf;

use rustix::process::Resource;
use serde::Serialize;
use tunebox_compute::memory;

use crate::child;

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
/// what a device needs; TCP; and signals to other processes. Returns whether the system does so. Paths that do not exist
/// are left out.
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

/// Ends this process from now on if one of its threads opens a socket, starts a program or another process, or looks into
/// another process. Does nothing where the system has no such ring.
///
/// # Errors
/// When the system refuses.
pub fn deny_calls() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::deny_calls().map_err(io::Error::other)?;
    Ok(())
}

/// Limits the memory that this process may write to (files in memory left out) to `bytes` more than it has now. Does
/// nothing where the system does not tell how much that is.
///
/// # Errors
/// When the system refuses.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    let Some(most) = memory::data().map(|held| held.saturating_add(bytes)) else { return Ok(()) };
    child::limit(Resource::Data, most, most)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::error::Error;
    use std::path::PathBuf;

    use landlock::{
        ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
        path_beneath_rules,
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        apply_filter_all_threads,
    };

    /// Folders and files of the system that any process may read: libraries, the drivers of devices, and itself.
    const SYSTEM: [&str; 14] = [
        "/usr",
        "/lib",
        "/lib64",
        "/opt",
        "/nix",
        "/gnu",
        "/etc",
        "/sys",
        "/proc/self",
        "/proc/meminfo",
        "/proc/cpuinfo",
        "/proc/devices",
        "/proc/driver",
        "/proc/sys",
    ];

    /// What may be started: this program, to compile a component, with the loader of libraries.
    const PROGRAMS: [&str; 4] = ["/proc/self/exe", "/lib", "/lib64", "/usr/lib"];

    /// Devices without a file behind them, and the figures of this process.
    const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/shm", "/proc/self"];

    /// Sockets, programs and processes, other processes, and the kernel itself. `SYS_clone` stands apart: it makes threads.
    const DENIED: [i64; 42] = [
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_kill,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_kexec_load,
        libc::SYS_open_by_handle_at,
    ];

    type Failed = Box<dyn Error + Send + Sync>;

    /// Applies Landlock to this thread; see [`super::confine_files`].
    pub(super) fn confine_files(read: &[PathBuf], write: &[PathBuf]) -> Result<bool, Failed> {
        let (all, reading) = (AccessFs::from_all(ABI::V3), AccessFs::ReadFile | AccessFs::ReadDir);
        let accelerators = devices();
        let status = Ruleset::default()
            .handle_access(all)?
            .handle_access(AccessNet::from_all(ABI::V4))?
            .scope(Scope::from_all(ABI::V6))?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM, reading))?
            .add_rules(path_beneath_rules(PROGRAMS, reading | AccessFs::Execute))?
            .add_rules(path_beneath_rules(
                DEVICES.iter().map(PathBuf::from).chain(accelerators),
                all & !AccessFs::Execute,
            ))?
            .add_rules(path_beneath_rules(read, reading))?
            .add_rules(path_beneath_rules(write, all & !AccessFs::Execute))?
            .restrict_self()?;
        Ok(status.ruleset != RulesetStatus::NotEnforced)
    }

    /// The device files of NVIDIA's driver.
    fn devices() -> Vec<PathBuf> {
        let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
        found.map(|entry| entry.path()).collect()
    }

    /// Applies two filters of system calls to every thread; see [`super::deny_calls`].
    pub(super) fn deny_calls() -> Result<(), Failed> {
        let mut denied: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
        let thread = libc::CLONE_THREAD as u64;
        let process = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), 0)?;
        denied.insert(libc::SYS_clone, vec![SeccompRule::new(vec![process])?]);
        #[cfg(target_arch = "x86_64")]
        {
            denied.extend([(libc::SYS_fork, Vec::new()), (libc::SYS_vfork, Vec::new())]);
            // The same calls, and some of their own numbers, of the form of this processor with short pointers.
            let others: Vec<i64> = denied.keys().copied().chain(512..548).map(|call| call | 0x4000_0000).collect();
            denied.extend(others.into_iter().map(|call| (call, Vec::new())));
        }
        apply(denied, SeccompAction::KillProcess)?;
        // Its arguments are in memory, where no filter looks. Without it the C library takes `clone`.
        apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), SeccompAction::Errno(libc::ENOSYS as u32))
    }

    /// Applies a filter to every thread that takes `action` for the calls in `rules` and allows all others.
    fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> Result<(), Failed> {
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, std::env::consts::ARCH.try_into()?)?;
        let program: BpfProgram = filter.try_into()?;
        Ok(apply_filter_all_threads(&program)?)
    }
}
