//! The process of a native twin, in either language: how it is started, and how its folder's own tests run.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tunebox_foundation::files::FileError;
use tunebox_package::build::python;
use tunebox_sandbox::native::{ADDRESS, Arrival, Twin, TwinListener};

use super::native_build::NativeBuild;
use super::{CALL_TIMEOUT, CONNECT_TIMEOUT};
use crate::terminal::Failure;
use crate::terminal::shell::quote;

/// The environment variable with the path of this program, for tests that start `tunebox host`.
const PROGRAM_VARIABLE: &str = "TUNEBOX";

/// Time a twin has to exit before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the twin of a method is: the source of the method, outside of the sandbox.
pub(super) enum NativeTwin {
    /// The test executable of a crate.
    Rust(NativeBuild, PathBuf),
    /// Plain Python.
    Python(Box<python::Twin>),
}

impl NativeTwin {
    /// What the twin is called in messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rust(..) => "native twin",
            Self::Python(_) => "plain Python (the source runs unsandboxed, as your own)",
        }
    }

    /// Starts the twin, which connects to the listener. Its output is discarded unless `verbose`; errors are shown
    /// unless `quiet`.
    pub(super) fn start(&self, listener: &TwinListener, quiet: bool, verbose: bool) -> Result<TwinProcess, Failure> {
        let mut twin = self.process_command()?;
        twin.stdin(Stdio::null()).stdout(if verbose { Stdio::from(io::stderr()) } else { Stdio::null() });
        if quiet {
            twin.stderr(Stdio::null());
        }
        twin.env(ADDRESS, listener.address());
        let program = PathBuf::from(twin.get_program());
        Ok(TwinProcess(twin.spawn().map_err(FileError::at("used", &program))?))
    }

    /// The shell command that starts the twin under a debugger, gdb or pdb, with the path of the listener's socket, in
    /// the method folder.
    pub(super) fn debugger_command(&self, listener: &TwinListener) -> Result<String, Failure> {
        let twin = self.process_command()?;
        let debugger: &[&str] = match self {
            Self::Rust(..) => &["gdb", "--args"],
            Self::Python(_) => &[],
        };
        let mut words: Vec<String> = debugger.iter().map(|word| (*word).to_owned()).collect();
        words.push(quote(&twin.get_program().to_string_lossy()));
        if let Self::Python(_) = self {
            words.extend(["-m", "pdb"].map(str::to_owned));
        }
        words.extend(twin.get_args().map(|word| quote(&word.to_string_lossy())));
        let root = twin.get_current_dir().map(|root| quote(&root.display().to_string())).unwrap_or_default();
        let known = twin.get_envs().find(|(name, _)| *name == "PYTHONPATH").and_then(|(_, value)| value);
        let known = known.map_or_else(String::new, |path| format!("PYTHONPATH={} ", quote(&path.to_string_lossy())));
        let address = quote(&listener.address().display().to_string());
        Ok(format!("cd {root}; {ADDRESS}={address} {known}{}", words.join(" ")))
    }

    /// Prepares the process, in the method folder.
    fn process_command(&self) -> Result<Command, Failure> {
        match self {
            Self::Rust(build, executable) => build.twin_command(executable),
            Self::Python(twin) => Ok(twin.process()?),
        }
    }
}

/// Starts plain Python with a method's source and waits until it is connected; its output is discarded. A thread waits
/// for its end, which comes with that of the connection. Errors: it does not start, ends before it connects, or takes
/// longer than [`CONNECT_TIMEOUT`].
pub(crate) fn start_process(twin: &python::Twin) -> io::Result<Twin> {
    let listener = TwinListener::open()?;
    let mut command = twin.process().map_err(io::Error::other)?;
    command.env(ADDRESS, listener.address()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C lets the run finish its step, for which it needs the process.
    command.process_group(0);
    let mut child = command.spawn()?;
    let ended = || !matches!(child.try_wait(), Ok(None));
    let arrival = listener.wait(Some(CONNECT_TIMEOUT), Some(CALL_TIMEOUT), ended)?;
    let problem = match arrival {
        Arrival::Connected(twin) => {
            std::thread::spawn(move || child.wait());
            return Ok(twin);
        }
        Arrival::TimedOut => "it did not connect in time",
        Arrival::Cancelled => "it ended before it connected",
    };
    // One that has ended cannot be killed.
    let _ = child.kill();
    child.wait()?;
    Err(io::Error::other(problem))
}

/// Runs the tests of a method, such as `cargo test` or `python -m pytest`, to their end, with the path of this program
/// for tests that start a host. Returns whether all passed. What they print goes to stderr: with `quiet` only if one
/// fails.
pub(super) fn run_tests(mut tests: Command, quiet: bool) -> Result<bool, Failure> {
    if let Ok(program) = std::env::current_exe() {
        tests.env(PROGRAM_VARIABLE, program);
    }
    // The output of tests is not data of this program.
    let stream = || if quiet { Stdio::piped() } else { Stdio::from(io::stderr()) };
    tests.stdin(Stdio::null()).stdout(stream()).stderr(stream()).env_remove(ADDRESS);
    let program = PathBuf::from(tests.get_program());
    let output = tests.output().map_err(FileError::at("used", &program))?;
    if !output.status.success() {
        write_stderr(&output.stdout);
        write_stderr(&output.stderr);
    }
    Ok(output.status.success())
}

/// Writes bytes to stderr and ignores errors.
pub(super) fn write_stderr(bytes: &[u8]) {
    // A failure to report has nowhere to be reported.
    let _ = io::stderr().write_all(bytes);
}

/// A running twin. Dropping it waits for its exit, and kills it after a timeout.
pub(super) struct TwinProcess(Child);

impl TwinProcess {
    /// Whether the process has exited.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for TwinProcess {
    /// Waits up to 5 seconds for the process to exit, then kills it.
    fn drop(&mut self) {
        let start = Instant::now();
        while !self.has_ended() && start.elapsed() < EXIT_TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The error of killing a process that has exited is expected.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use tunebox_package::toolchain::{Library, Toolchain};

    use super::*;

    #[test]
    fn a_debugger_starts_where_the_twin_does() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("my method");
        std::fs::create_dir(&folder).unwrap();
        let (cargo, rustc, sysroot) = (PathBuf::from("cargo"), PathBuf::from("rustc"), PathBuf::new());
        let (release, library) = (String::new(), Library::Installed);
        let toolchain = Toolchain { cargo, rustc, release, library, sysroot, linker: None };
        let native = NativeBuild { toolchain, folder: folder.clone(), offline: false, quiet: false };
        let command = NativeTwin::Rust(native, "/target/calm-1".into());
        let command = command.debugger_command(&TwinListener::open().unwrap()).unwrap();
        assert!(command.starts_with(&format!("cd '{}'; ", folder.canonicalize().unwrap().display())), "{command}");
        assert!(command.ends_with(" gdb --args /target/calm-1 tunebox_twin --nocapture --test-threads=1"), "{command}");
    }
}
