//! Restricts this process on Linux, with Landlock, capabilities and seccomp.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
    path_beneath_rules,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

/// Files and folders that every confined process may read: libraries, and what the system says of the machine and of
/// the process itself.
const READABLE_PATHS: [&str; 18] = [
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/sys/vm",
];

/// Devices that every confined process may read and write.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/random", "/dev/urandom"];

/// Calls that open sockets, start programs and processes, act on other processes or on the kernel, share memory or
/// messages with other processes, or change files in ways that Landlock does not restrict.
const DENIED_CALLS: [i64; 67] = [
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
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_kcmp,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    PROCESS_MRELEASE,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
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
    libc::SYS_open_by_handle_at,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_mq_open,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// The numbers of newer system calls, the same on every processor architecture.
const MEMFD_SECRET: i64 = 447;
const PROCESS_MRELEASE: i64 = 448;
const FCHMODAT2: i64 = 452;

/// Further denied calls that x86-64 has and newer processor architectures lack.
#[cfg(target_arch = "x86_64")]
const DENIED_OLD_CALLS: [i64; 8] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];

type Failed = Box<dyn Error + Send + Sync>;

/// Drops the capabilities of this thread, then applies Landlock rules to it: everything below `READABLE_PATHS` and
/// `read` may be read, `DEVICES` also written, and files below `write` also written, created and removed; TCP and
/// signals to processes without these rules are denied. Returns false only if the kernel enforces none of them. See
/// [`super::confine_files`].
pub(super) fn confine_files(read: &[PathBuf], write: &[PathBuf]) -> Result<bool, Failed> {
    drop_capabilities()?;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = reading
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V9))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::from_all(ABI::V6))?
        .create()?
        .add_rules(path_beneath_rules(READABLE_PATHS, reading))?
        .add_rules(path_beneath_rules(DEVICES, reading | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(read, reading))?
        .add_rules(path_beneath_rules(write, writing))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// The version of the structures of `capset`, with two words for each set.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The numbers of `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH` and `CAP_FOWNER`: the files of other users.
const FILES_OF_OTHERS: u32 = 1 << 1 | 1 << 2 | 1 << 3;

/// Drops all capabilities of this thread except those for the files of other users, which the rules of Landlock
/// restrict. Programs that it starts inherit none. Errors: the kernel does not report or change the capabilities.
#[expect(unsafe_code, reason = "no crate of this workspace drops capabilities")]
fn drop_capabilities() -> io::Result<()> {
    // 0 is this thread. The sets are the effective, permitted and inheritable one, in two words each.
    let head = [CAPABILITY_VERSION, 0];
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the kernel reads 8 bytes of `head` and writes 24 bytes of `sets`.
    let read = unsafe { libc::syscall(libc::SYS_capget, head.as_ptr(), sets.as_mut_ptr()) };
    let [[effective, permitted, _], _] = sets;
    let kept = [[effective & FILES_OF_OTHERS, permitted & FILES_OF_OTHERS, 0], [0; 3]];
    // SAFETY: the kernel reads 8 bytes of `head` and 24 bytes of `kept`.
    let written = unsafe { libc::syscall(libc::SYS_capset, head.as_ptr(), kept.as_ptr()) };
    if read == 0 && written == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Applies two filters of system calls to every thread: the first ends the process at a denied call (on x86-64 also
/// under its x32 number), the second lets `clone3`, `memfd_create` and `memfd_secret` fail with `ENOSYS`, as libraries
/// do without them. See [`super::deny_calls`], and for `edits_lines` [`super::deny_calls_to_line_editor`].
pub(super) fn deny_calls(edits_lines: bool) -> Result<(), Failed> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = DENIED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    denied.extend(denied_by_arguments()?);
    if edits_lines {
        denied.extend(denied_to_line_editor()?);
    }
    #[cfg(target_arch = "x86_64")]
    {
        denied.extend(DENIED_OLD_CALLS.map(|call| (call, Vec::new())));
        // The x32 numbers of these calls (with bit 30 set), and the numbers that only x32 has.
        let others: Vec<i64> = denied.keys().copied().chain(512..548).map(|call| call | 0x4000_0000).collect();
        denied.extend(others.into_iter().map(|call| (call, Vec::new())));
    }
    install_filter(denied, SeccompAction::KillProcess)?;
    // The arguments of `clone3` are in memory, where no filter looks. Without it the C library takes `clone`, and
    // without `memfd_create` the engine copies instead of mapping.
    let lacking = [libc::SYS_clone3, libc::SYS_memfd_create, MEMFD_SECRET].map(|call| (call, Vec::new()));
    install_filter(lacking.into(), SeccompAction::Errno(libc::ENOSYS as u32))
}

/// Returns rules for calls that are denied with some arguments only: `clone` unless it starts a thread; signals to, and
/// limits of, other processes; `fcntl` commands that have signals sent; changing the signal at the parent's death;
/// shared memory without a file; `fchmod` with another mode than 0644, and `utimensat` with a path.
fn denied_by_arguments() -> Result<BTreeMap<i64, Vec<SeccompRule>>, Failed> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let this = u64::from(std::process::id());
    let rule = |conditions| SeccompRule::new(conditions);
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    let thread = libc::CLONE_THREAD as u64;
    let owners = [libc::F_SETOWN as u64, F_SETOWN_EX, F_SETSIG];
    let owners = owners.map(|command| rule(vec![condition(1, Eq, command)?]));
    Ok(BTreeMap::from([
        (libc::SYS_clone, vec![rule(vec![condition(0, MaskedEq(thread), 0)?])?]),
        (libc::SYS_tgkill, vec![rule(vec![condition(0, Ne, this)?])?]),
        (libc::SYS_prlimit64, vec![rule(vec![condition(0, Ne, 0)?, condition(0, Ne, this)?])?]),
        (libc::SYS_fcntl, owners.into_iter().collect::<Result<_, _>>()?),
        (libc::SYS_prctl, vec![rule(vec![condition(0, Eq, libc::PR_SET_PDEATHSIG as u64)?])?]),
        (libc::SYS_mmap, vec![rule(vec![condition(3, MaskedEq(shared), shared)?])?]),
        (libc::SYS_fchmod, vec![rule(vec![condition(1, Ne, 0o644)?])?]),
        (libc::SYS_utimensat, vec![rule(vec![condition(1, Ne, 0)?])?]),
    ]))
}

/// Returns rules that deny two calls except in the form that a line editor needs: a connected pair of local stream
/// sockets, and a signal to its own process group.
fn denied_to_line_editor() -> Result<BTreeMap<i64, Vec<SeccompRule>>, Failed> {
    let unless = |argument, value| SeccompRule::new(vec![condition(argument, SeccompCmpOp::Ne, value)?]);
    let stream = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    Ok(BTreeMap::from([
        (libc::SYS_socketpair, vec![unless(0, libc::AF_UNIX as u64)?, unless(1, stream)?]),
        (libc::SYS_kill, vec![unless(0, 0)?]),
    ]))
}

/// Builds a condition on the low 32 bits of a call's argument number `argument`, from 0: its `comparison` with `value`
/// holds.
fn condition(argument: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)
}

/// Commands of `fcntl` that have signals sent to a process: the same on every processor of Linux.
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// Installs a filter on every thread of this process: it takes `action` for calls that match `rules`, where an empty
/// list matches any arguments, and allows all other calls.
fn install_filter(rules: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> Result<(), Failed> {
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(apply_filter_all_threads(&program)?)
}
