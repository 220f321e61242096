//! Child processes of this program: few environment variables, no core dumps, and an end with the parent.
//!
//! The parent makes a [`Program`] and starts it; the child calls [`prepare_as_child`] before anything else. A child
//! that needs the user's folders gets them by [`send_environment`] and [`receive_environment`]. What a child computes
//! is defined elsewhere: in `compile`, and in the worker of a run in `tunebox-training`.

use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::de::DeserializeOwned;
use tunebox_foundation::environment;

use crate::printable::printable;

/// The environment variables that a child inherits, because libraries of others read them there: the number of threads,
/// and which CUDA devices there are.
const INHERITED_VARIABLES: [&str; 4] =
    ["RAYON_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY"];

/// The longest line that [`receive_environment`] reads, in bytes.
const ENVIRONMENT_BYTES: u64 = 1 << 20;

/// How many bytes of a child's standard error are kept: the last ones.
const TAIL_BYTES: usize = 8 << 10;

/// The longest line of a child's standard error in a message, in bytes.
const MESSAGE_BYTES: usize = 400;

/// A program and its first arguments.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Returns the program that runs now, without arguments. On Linux this is `/proc/self/exe`, which stays valid if
    /// the file has been replaced.
    ///
    /// # Errors
    /// When the system does not say which it is.
    pub fn this() -> io::Result<Self> {
        let linux = PathBuf::from("/proc/self/exe");
        let path = if cfg!(target_os = "linux") && linux.exists() { linux } else { std::env::current_exe()? };
        Ok(Self { path, arguments: Vec::new() })
    }

    /// Returns the program at `path`, without arguments.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new() }
    }

    /// Appends an argument.
    #[must_use]
    pub fn with(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Returns a command that starts the program with its arguments under the name `tunebox` (`argv[0]`), with the
    /// streams and the environment of this process. Does not start it.
    #[must_use]
    pub fn inheriting(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0("tunebox").args(&self.arguments);
        command
    }

    /// Returns a command that starts the program, under the name `tunebox`, with the standard streams of this process
    /// and few of its environment variables: only `RAYON_NUM_THREADS`, `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER` and
    /// `CUDA_MPS_PIPE_DIRECTORY`, where they are set. On Linux the program gets no other open file of this process, not
    /// even one that this process inherited. Does not start the program.
    #[must_use]
    pub fn alone(&self) -> Command {
        let kept = INHERITED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut command = self.inheriting();
        close_files(&mut command);
        command.env_clear().envs(kept);
        command
    }

    /// Starts the program as [`alone`](Self::alone) does, with pipes as its three standard streams.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub fn start(&self) -> io::Result<Child> {
        self.alone().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }
}

/// Makes the command mark every file of this process but the three standard streams as close-on-exec before it starts
/// the program. Ignores a failure. Does nothing on systems other than Linux.
#[cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "the standard library cannot close the files that this process inherited")
)]
fn close_files(command: &mut Command) {
    // SAFETY: between fork and exec this makes one system call, which touches no memory, and ignores its result.
    #[cfg(target_os = "linux")]
    unsafe {
        command.pre_exec(|| {
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

/// Prepares this process to be a child: disables core dumps, which would hold weights and data, and on Linux lets the
/// kernel kill it when its parent ends.
///
/// # Errors
/// When the system rejects one of these settings.
pub fn prepare_as_child() -> io::Result<()> {
    lower_limit(Resource::Core, 0, 0)?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// Writes the variables that name folders (`tunebox_foundation::environment::child_variables`) to `input`, the standard
/// input of a child that calls [`receive_environment`], as one line of JSON. Call it before anything else is sent.
///
/// # Errors
/// When the child has closed its input, as when it is gone.
pub fn send_environment(input: &mut impl Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(&environment::child_variables())?;
    line.push(b'\n');
    input.write_all(&line)
}

/// Reads the first line of `input`, the JSON that [`send_environment`] writes, and makes
/// `tunebox_foundation::environment` return its variables in place of those of this process. A second call reads the
/// line but changes nothing.
///
/// # Errors
/// When the line is missing, longer than 1 MiB, or not such JSON.
pub fn receive_environment(input: &mut impl BufRead) -> io::Result<()> {
    environment::override_variables(read_line(input, ENVIRONMENT_BYTES)?);
    Ok(())
}

/// Reads one line of at most `most` bytes and parses it as JSON. Errors: the input fails, has ended, or the line is
/// longer or no JSON for a `T`.
pub(crate) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead, most: u64) -> io::Result<T> {
    let mut line = Vec::new();
    input.take(most).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// Waits until a child ends, checking every millisecond, kills it (`SIGKILL`) if that takes longer than `timeout`, and
/// returns its exit status. A `timeout` of 0 kills it at once. Keeps the child's input open until it is killed, since
/// the end of its input would tell it that the parent is gone.
///
/// # Errors
/// When the system does not wait for the child or kill it.
pub fn wait_or_kill(child: &mut Child, timeout: Duration) -> io::Result<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < timeout {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()
}

/// Limits the processor time (seconds) and data memory (bytes) of this process permanently; lower limits stay. Past the
/// time, the system sends `SIGXCPU`, and `SIGKILL` a second later.
pub(crate) fn limit_resources(seconds: u64, bytes: u64) -> io::Result<()> {
    // The soft limit sends `SIGXCPU`, which tells the parent why; the hard limit sends `SIGKILL`, which does not.
    lower_limit(Resource::Cpu, seconds, seconds + 1)?;
    lower_limit(Resource::Data, bytes, bytes)
}

/// Lowers the soft limit (`current`) and hard limit (`maximum`) of a resource of this process. A limit that is lower
/// already stays. Errors: the system rejects it.
pub(crate) fn lower_limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let least = |before: Option<u64>, value: u64| Some(before.map_or(value, |before| before.min(value)));
    let before = rustix::process::getrlimit(resource);
    let after = Rlimit { current: least(before.current, current), maximum: least(before.maximum, maximum) };
    Ok(setrlimit(resource, after)?)
}

/// Describes how a child ended, as words that follow its name: `was killed (signal 9, SIGKILL)`. Exit code 0 is `ended
/// before it was done`, 101, that of a Rust panic, `panicked`, and any other `ended by itself with exit code N`. A
/// signal without a description of its own is `was ended by signal N`.
#[must_use]
pub fn describe_exit(status: ExitStatus) -> String {
    let Some(number) = status.signal() else {
        return match status.code() {
            Some(0) => "ended before it was done".into(),
            Some(101) => "panicked".into(),
            Some(code) => format!("ended by itself with exit code {code}"),
            None => "ended".into(),
        };
    };
    let named = |signal: Signal| Some(signal) == Signal::from_named_raw(number);
    let names = [
        (Signal::KILL, "was killed", "SIGKILL"),
        (Signal::TERM, "was told to end", "SIGTERM"),
        (Signal::ABORT, "aborted", "SIGABRT"),
        (Signal::SEGV, "crashed", "SIGSEGV"),
        (Signal::BUS, "crashed", "SIGBUS"),
        (Signal::ILL, "crashed", "SIGILL"),
        (Signal::XCPU, "used up its processor time", "SIGXCPU"),
        (Signal::SYS, "was ended for a system call that it may not make", "SIGSYS"),
    ];
    match names.iter().find(|(signal, ..)| named(*signal)) {
        Some((_, how, name)) => format!("{how} (signal {number}, {name})"),
        None => format!("was ended by signal {number}"),
    }
}

/// Reads the standard error of a child to its end and keeps the last 8 KiB.
pub struct StderrTail {
    tail: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl StderrTail {
    /// Starts a thread that reads `errors`, a child's standard error, to its end and keeps the last 8 KiB. A failure to
    /// read counts as the end.
    #[must_use]
    pub fn read(mut errors: impl Read + Send + 'static) -> Self {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&tail);
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(count @ 1..) = errors.read(&mut chunk) {
                let mut tail = kept.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend(chunk.iter().take(count));
                let surplus = tail.len().saturating_sub(TAIL_BYTES);
                tail.drain(..surplus);
            }
        });
        Self { tail, reader }
    }

    /// Returns the last line that is neither blank nor begins with `note:`, trimmed, escaped and cut at 400 bytes;
    /// `None` if there is none. Call it after the child has ended: it waits at most 0.1 s for the reading thread, and
    /// then takes what was read so far.
    #[must_use]
    pub fn last_line(self) -> Option<String> {
        // A process that inherited the other end of the pipe may outlive the child, so the wait is short.
        for _ in 0..50 {
            if self.reader.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let is_message = |line: &&str| !line.trim().is_empty() && !line.starts_with("note:");
        text.lines().rev().find(is_message).map(|line| printable(line.trim(), MESSAGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::at("/bin/sh").with("-c").with(script)
    }

    #[test]
    fn a_child_sees_no_variable_that_is_not_on_the_list() {
        let child = shell("env").start().unwrap();
        let told = child.wait_with_output().unwrap().stdout;
        let names = String::from_utf8(told).unwrap();
        let foreign = |line: &&str| {
            let name = line.split('=').next().unwrap_or_default();
            !INHERITED_VARIABLES.contains(&name) && !["PWD", "SHLVL", "_", "OLDPWD"].contains(&name)
        };

        // Cargo sets a dozen of its own for a test.
        assert_eq!(names.lines().find(foreign), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_child_has_no_file_that_was_left_open() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let open = rustix::io::fcntl_dupfd_cloexec(&file, 500).unwrap();
        rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
        let told = shell("echo /proc/self/fd/*").start().unwrap().wait_with_output().unwrap().stdout;
        let files = String::from_utf8(told).unwrap();
        assert!(files.contains("/fd/2") && !files.contains("/fd/50"), "{files}");
    }

    #[test]
    fn a_signal_is_told_by_number_and_name() {
        let status = shell("kill -KILL $$").start().unwrap().wait().unwrap();
        assert_eq!(describe_exit(status), "was killed (signal 9, SIGKILL)");

        let status = shell("exit 7").start().unwrap().wait().unwrap();
        assert_eq!(describe_exit(status), "ended by itself with exit code 7");
    }

    #[test]
    fn the_last_words_are_the_last_line_and_cannot_move_a_terminal() {
        let mut child = shell("echo first >&2; printf 'it \\033[2J died\\n' >&2").start().unwrap();
        let words = StderrTail::read(child.stderr.take().unwrap());
        child.wait().unwrap();

        assert_eq!(words.last_line().unwrap(), "it \\u{1b}[2J died");
    }
}
