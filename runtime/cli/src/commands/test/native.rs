//! The method compiled for this machine: cargo's tests of its folder, and the one of them that is its twin.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_package::build::cargo_in;
use tunebox_package::toolchain::{Toolchain, command};
use tunebox_sandbox::native::{ADDRESS, Door, TOKEN};

use crate::terminal::diagnostic::Failure;
use crate::terminal::shell::word;

/// The test that `method!` adds.
const TEST: &str = "tunebox_twin";

/// The variable that tells a test where this program is.
const PROGRAM: &str = "TUNEBOX";

/// What the test is started with: alone, and with its output as it comes.
const ARGUMENTS: [&str; 3] = [TEST, "--nocapture", "--test-threads=1"];

/// How long a twin that was told to end may take for it.
const FAREWELL: Duration = Duration::from_secs(5);

/// A method's folder, and what compiles it.
pub(super) struct Native {
    pub(super) toolchain: Toolchain,
    pub(super) folder: PathBuf,
    pub(super) offline: bool,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
}

impl Native {
    /// Compiles the tests, and finds those of the library.
    pub(super) fn executable(&self) -> Result<PathBuf, Failure> {
        let mut cargo = self.cargo(&["test", "--no-run", "--message-format", "json-render-diagnostics"])?;
        let output = self.run(&mut cargo)?;
        if !output.status.success() {
            return Err(self.wrong("the tests of the method do not compile", "cargo's words are above"));
        }
        let here = self.manifest()?;
        let messages = output.stdout.split(|byte| *byte == b'\n');
        let found =
            messages.filter_map(|line| serde_json::from_slice(line).ok()).find_map(|told| executable(&told, &here));
        found.ok_or_else(|| {
            self.wrong("the method has no tests", "`Cargo.toml` has no library, or one with `test = false`")
        })
    }

    /// Runs the author's tests, with this program to serve them; whether all passed.
    pub(super) fn own_tests(&self) -> Result<bool, Failure> {
        let mut cargo = self.cargo(&["test"])?;
        if let Ok(program) = std::env::current_exe() {
            cargo.env(PROGRAM, program);
        }
        if !self.quiet {
            // Nothing that tests write is data.
            cargo.stdout(Stdio::from(io::stderr()));
        }
        let output = self.run(&mut cargo)?;
        if !output.status.success() {
            aside(&output.stdout);
        }
        Ok(output.status.success())
    }

    /// Runs cargo. What it says goes to the person; to one who wants to hear of errors alone, only where it fails.
    fn run(&self, cargo: &mut Command) -> Result<Output, Failure> {
        cargo.stderr(if self.quiet { Stdio::piped() } else { Stdio::inherit() });
        let output = cargo.output().map_err(|error| Failure::file(&self.toolchain.cargo, &error))?;
        if !output.status.success() {
            aside(&output.stderr);
        }
        Ok(output)
    }

    /// Starts the twin.
    pub(super) fn start(&self, executable: &Path, door: &Door) -> Result<Running, Failure> {
        let told = if self.verbose { Stdio::from(io::stderr()) } else { Stdio::null() };
        let mut twin = command(executable);
        if self.quiet {
            twin.stderr(Stdio::null());
        }
        twin.args(ARGUMENTS).envs(door.environment()).current_dir(self.root()?).stdin(Stdio::null()).stdout(told);
        twin.spawn().map(Running).map_err(|error| Failure::file(executable, &error))
    }

    /// What a person types to have it under a debugger, in the folder that it otherwise starts in.
    pub(super) fn under_debugger(&self, executable: &Path, door: &Door) -> Result<String, Failure> {
        let variables = door.environment().map(|(name, value)| format!("{name}={value}")).join(" ");
        let (root, executable) = (self.root()?.display().to_string(), executable.display().to_string());
        let (root, executable) = (word(&root), word(&executable));
        Ok(format!("cd {root}; {variables} gdb --args {executable} {}", ARGUMENTS.join(" ")))
    }

    /// Cargo in the folder, as its author would call it, but not as a child of another.
    fn cargo(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut cargo = cargo_in(&self.folder, &self.toolchain, self.offline)?;
        cargo.args(arguments).stdin(Stdio::null()).env_remove(ADDRESS).env_remove(TOKEN);
        Ok(cargo)
    }

    fn root(&self) -> Result<PathBuf, Failure> {
        self.folder.canonicalize().map_err(|error| Failure::file(&self.folder, &error))
    }

    fn manifest(&self) -> Result<PathBuf, Failure> {
        Ok(self.root()?.join("Cargo.toml"))
    }

    fn wrong(&self, what: &str, why: &str) -> Failure {
        let explanation =
            Explanation::new("build", what).with_location(self.folder.display().to_string()).with_why(why);
        let hint = format!("`cargo test --manifest-path {}/Cargo.toml` shows all of it", self.folder.display());
        Failure { explanation: Box::new(explanation.with_hint(hint)), exit: Exit::Usage }
    }
}

/// Shows a person what a program said.
fn aside(words: &[u8]) {
    // Nobody can be told that nobody can be told.
    let _ = io::stderr().write_all(words);
}

/// A twin that was started. It does not outlive this.
pub(super) struct Running(Child);

impl Running {
    /// Whether it is gone.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(10));
        }
        // One that ended by itself needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The executable that a message of cargo tells of, if it holds the tests of this package's library.
fn executable(told: &Value, manifest: &Path) -> Option<PathBuf> {
    let text = |value: &Value, key: &str| value.get(key)?.as_str().map(PathBuf::from);
    let kinds = told.get("target")?.get("kind")?.as_array()?;
    let library = kinds.iter().filter_map(Value::as_str).any(|kind| kind.ends_with("lib"));
    let test = told.get("profile")?.get("test")?.as_bool()?;
    let here = text(told, "manifest_path")?.canonicalize().is_ok_and(|path| path == manifest);
    (library && test && here).then(|| text(told, "executable")).flatten()
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
        let native = Native { toolchain, folder: folder.clone(), offline: false, quiet: false, verbose: false };
        let told = native.under_debugger(Path::new("/target/calm-1"), &Door::open().unwrap()).unwrap();
        assert!(told.starts_with(&format!("cd '{}'; ", folder.canonicalize().unwrap().display())), "{told}");
        assert!(told.ends_with(" gdb --args /target/calm-1 tunebox_twin --nocapture --test-threads=1"), "{told}");
    }

    #[test]
    fn the_tests_of_the_library_are_found_among_what_cargo_made() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().canonicalize().unwrap().join("Cargo.toml");
        std::fs::write(&manifest, "").unwrap();
        let told = |kind: &str, test: bool, manifest: &Path| {
            let message = json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "executable": "/target/calm-1",
                "target": { "kind": [kind] }, "profile": { "test": test },
            });
            executable(&message, &manifest.canonicalize().unwrap_or_default())
        };
        assert_eq!(told("cdylib", true, &manifest), Some(PathBuf::from("/target/calm-1")));
        assert_eq!((told("cdylib", false, &manifest), told("test", true, &manifest)), (None, None));
        assert_eq!(executable(&json!({ "reason": "build-finished" }), &manifest), None);
    }
}
