//! The native build of a method: its cargo tests, one of which is the native twin.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::files::FileError;
use tunebox_package::build::cargo_in;
use tunebox_package::toolchain::{Toolchain, command};
use tunebox_sandbox::native::{ADDRESS, TwinListener};

use crate::terminal::Failure;
use crate::terminal::shell::quote;

/// The test that `method!` adds, which is the twin.
const TEST: &str = "tunebox_twin";

/// The environment variable with the path of this program, for tests that start `tunebox host`.
const PROGRAM: &str = "TUNEBOX";

/// Arguments of the test executable: run only the twin, with its output.
const ARGUMENTS: [&str; 3] = [TEST, "--nocapture", "--test-threads=1"];

/// Time a twin has to exit before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A method folder and how to compile it.
pub(super) struct NativeBuild {
    pub(super) toolchain: Toolchain,
    pub(super) folder: PathBuf,
    pub(super) offline: bool,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
}

impl NativeBuild {
    /// Compiles the tests of the method with cargo and returns the path of the library's test executable. Fails if they
    /// do not compile or the package has no library with tests.
    pub(super) fn build_tests(&self) -> Result<PathBuf, Failure> {
        let mut cargo = self.cargo(&["test", "--no-run", "--message-format", "json-render-diagnostics"])?;
        let output = self.run(&mut cargo)?;
        if !output.status.success() {
            return Err(self.failure("the tests of the method do not compile", "see cargo's errors above"));
        }
        let here = self.root()?.join("Cargo.toml");
        let messages = output.stdout.split(|byte| *byte == b'\n');
        let found = messages
            .filter_map(|line| serde_json::from_slice(line).ok())
            .find_map(|message| library_tests(&message, &here));
        found.ok_or_else(|| {
            self.failure("the method has no tests", "`Cargo.toml` has no library, or one with `test = false`")
        })
    }

    /// Runs the method's own tests with cargo; they may start this program as their host. Returns whether all passed.
    /// Their output goes to stderr; with `--quiet` only if a test fails.
    pub(super) fn run_tests(&self) -> Result<bool, Failure> {
        let mut cargo = self.cargo(&["test"])?;
        if let Ok(program) = std::env::current_exe() {
            cargo.env(PROGRAM, program);
        }
        if !self.quiet {
            // The output of tests is not data of this program.
            cargo.stdout(Stdio::from(io::stderr()));
        }
        let output = self.run(&mut cargo)?;
        if !output.status.success() {
            write_stderr(&output.stdout);
        }
        Ok(output.status.success())
    }

    /// Runs cargo to its end and returns its output and status; a failed status is not an error. Its messages go to
    /// stderr, with `--quiet` only if it fails.
    fn run(&self, cargo: &mut Command) -> Result<Output, Failure> {
        cargo.stderr(if self.quiet { Stdio::piped() } else { Stdio::inherit() });
        let output = cargo.output().map_err(FileError::at("used", &self.toolchain.cargo))?;
        if !output.status.success() {
            write_stderr(&output.stderr);
        }
        Ok(output)
    }

    /// Starts the test executable as the native twin in the method folder; it connects to the listener. Its output is
    /// discarded unless `--verbose` is given.
    pub(super) fn start_twin(&self, executable: &Path, listener: &TwinListener) -> Result<TwinProcess, Failure> {
        let output = if self.verbose { Stdio::from(io::stderr()) } else { Stdio::null() };
        let mut twin = command(executable);
        if self.quiet {
            twin.stderr(Stdio::null());
        }
        twin.env(ADDRESS, listener.address()).stdin(Stdio::null()).stdout(output);
        twin.args(ARGUMENTS).current_dir(self.root()?);
        Ok(TwinProcess(twin.spawn().map_err(FileError::at("used", executable))?))
    }

    /// The shell command that starts the twin under gdb, with the path of the listener's socket, in the method folder.
    pub(super) fn debugger_command(&self, executable: &Path, listener: &TwinListener) -> Result<String, Failure> {
        let [root, address, executable] =
            [&self.root()?, &listener.address(), executable].map(|path| quote(&path.display().to_string()));
        Ok(format!("cd {root}; {ADDRESS}={address} gdb --args {executable} {}", ARGUMENTS.join(" ")))
    }

    /// Prepares a cargo command for the method folder, without the environment variables that would make its tests
    /// connect to a listener of this process's parent.
    fn cargo(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut cargo = cargo_in(&self.folder, &self.toolchain, self.offline)?;
        cargo.args(arguments).stdin(Stdio::null()).env_remove(ADDRESS);
        Ok(cargo)
    }

    /// The absolute path of the method folder.
    fn root(&self) -> Result<PathBuf, Failure> {
        Ok(self.folder.canonicalize().map_err(FileError::at("used", &self.folder))?)
    }

    /// Creates a build failure of the method folder with a reason and a hint how to run cargo: exit code 2.
    fn failure(&self, what: &str, why: &str) -> Failure {
        let explanation =
            Explanation::new("build", what).with_location(self.folder.display().to_string()).with_why(why);
        let hint = format!("`cargo test --manifest-path {}/Cargo.toml` shows all of it", self.folder.display());
        Failure::new(explanation.with_hint(hint), Exit::Usage)
    }
}

/// Writes bytes to stderr and ignores errors.
fn write_stderr(bytes: &[u8]) {
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

/// Returns the executable in a JSON message of cargo if it holds the tests of the library of the package at `manifest`,
/// else `None`.
fn library_tests(message: &Value, manifest: &Path) -> Option<PathBuf> {
    let text = |value: &Value, key: &str| value.get(key)?.as_str().map(PathBuf::from);
    let kinds = message.get("target")?.get("kind")?.as_array()?;
    let library = kinds.iter().filter_map(Value::as_str).any(|kind| kind.ends_with("lib"));
    let test = message.get("profile")?.get("test")?.as_bool()?;
    let here = text(message, "manifest_path")?.canonicalize().is_ok_and(|path| path == manifest);
    (library && test && here).then(|| text(message, "executable")).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tunebox_package::toolchain::Library;

    use super::*;

    #[test]
    fn a_debugger_starts_where_the_twin_does() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("my method");
        std::fs::create_dir(&folder).unwrap();
        let (cargo, rustc, sysroot) = (PathBuf::from("cargo"), PathBuf::from("rustc"), PathBuf::new());
        let (release, library) = (String::new(), Library::Installed);
        let toolchain = Toolchain { cargo, rustc, release, library, sysroot, linker: None };
        let native = NativeBuild { toolchain, folder: folder.clone(), offline: false, quiet: false, verbose: false };
        let command = native.debugger_command(Path::new("/target/calm-1"), &TwinListener::open().unwrap()).unwrap();
        assert!(command.starts_with(&format!("cd '{}'; ", folder.canonicalize().unwrap().display())), "{command}");
        assert!(command.ends_with(" gdb --args /target/calm-1 tunebox_twin --nocapture --test-threads=1"), "{command}");
    }

    #[test]
    fn the_tests_of_the_library_are_found_in_messages_of_cargo() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().canonicalize().unwrap().join("Cargo.toml");
        std::fs::write(&manifest, "").unwrap();
        let found = |kind: &str, test: bool, manifest: &Path| {
            let message = json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "executable": "/target/calm-1",
                "target": { "kind": [kind] }, "profile": { "test": test },
            });
            library_tests(&message, &manifest.canonicalize().unwrap_or_default())
        };
        assert_eq!(found("cdylib", true, &manifest), Some(PathBuf::from("/target/calm-1")));
        assert_eq!((found("cdylib", false, &manifest), found("test", true, &manifest)), (None, None));
        assert_eq!(library_tests(&json!({ "reason": "build-finished" }), &manifest), None);
    }
}
