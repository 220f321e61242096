//! The native build of a method: its cargo tests, one of which is the native twin.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::files::FileError;
use tunebox_package::build::{cargo_in, find_library_tests};
use tunebox_package::toolchain::{Toolchain, command};
use tunebox_sandbox::native::ADDRESS;

use super::twin_process::write_stderr;
use crate::terminal::Failure;

/// The test that `method!` adds, which is the twin.
const TWIN_TEST: &str = "tunebox_twin";

/// Arguments of the test executable: run only the twin, with its output.
const TEST_ARGUMENTS: [&str; 3] = [TWIN_TEST, "--nocapture", "--test-threads=1"];

/// A method folder and how to compile it.
pub(super) struct NativeBuild {
    pub(super) toolchain: Toolchain,
    pub(super) folder: PathBuf,
    pub(super) offline: bool,
    pub(super) quiet: bool,
}

impl NativeBuild {
    /// Compiles the tests of the method with cargo and returns the path of the library's test executable. Fails if they
    /// do not compile or the package has no library with tests.
    pub(super) fn build_tests(&self) -> Result<PathBuf, Failure> {
        let mut cargo = self.cargo_command(&["test", "--no-run", "--message-format", "json-render-diagnostics"])?;
        // With `--quiet` its messages are shown only if it fails.
        cargo.stderr(if self.quiet { Stdio::piped() } else { Stdio::inherit() });
        let output = cargo.output().map_err(FileError::at("used", &self.toolchain.cargo))?;
        if !output.status.success() {
            write_stderr(&output.stderr);
            return Err(self.build_failure("the tests of the method do not compile", "see cargo's errors above"));
        }
        let here = self.absolute_folder()?.join("Cargo.toml");
        find_library_tests(&output.stdout, &here).ok_or_else(|| {
            self.build_failure("the method has no tests", "`Cargo.toml` has no library, or one with `test = false`")
        })
    }

    /// Prepares the method's own tests, by cargo.
    pub(super) fn test_command(&self) -> Result<Command, Failure> {
        self.cargo_command(&["test"])
    }

    /// Prepares the test executable as the native twin, in the method folder.
    pub(super) fn twin_command(&self, executable: &Path) -> Result<Command, Failure> {
        let mut twin = command(executable);
        twin.args(TEST_ARGUMENTS).current_dir(self.absolute_folder()?);
        Ok(twin)
    }

    /// Prepares a cargo command for the method folder, without input and without the environment variable that would
    /// make its tests connect to a listener of this process's parent.
    fn cargo_command(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut cargo = cargo_in(&self.folder, &self.toolchain, self.offline)?;
        cargo.args(arguments).stdin(Stdio::null()).env_remove(ADDRESS);
        Ok(cargo)
    }

    /// The absolute path of the method folder.
    fn absolute_folder(&self) -> Result<PathBuf, Failure> {
        Ok(self.folder.canonicalize().map_err(FileError::at("used", &self.folder))?)
    }

    /// Creates a build failure of the method folder with a reason and a hint how to run cargo: exit code 2.
    fn build_failure(&self, what: &str, why: &str) -> Failure {
        let explanation =
            Explanation::new("build", what).with_location(self.folder.display().to_string()).with_why(why);
        let hint = format!("`cargo test --manifest-path {}/Cargo.toml` shows all of it", self.folder.display());
        Failure::new(explanation.with_hint(hint), Exit::Usage)
    }
}
