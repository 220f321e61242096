//! `componentize-py`, and the Python that belongs to it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::PythonError;
use super::workspace::{ENTRY, Workspace};
use crate::Error;
use crate::toolchain::command;

/// The version from which the generated bindings can be read.
const LEAST: (u32, u32) = (3, 11);

/// The same in words.
const LEAST_IN_WORDS: &str = "3.11";

/// A method folder's own environment.
const ENVIRONMENT: &str = ".venv";

/// What makes components of Python here.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The compiler.
    pub componentize: PathBuf,
    /// The interpreter that reads a method's declaration.
    pub python: PathBuf,
    /// The compiler's name and version.
    pub release: String,
}

/// Finds the tools for a folder: in its `.venv`, else on the path. Errors: none there, or a Python that is too old.
pub fn find(folder: &Path) -> Result<Tools, PythonError> {
    let own = folder.join(ENVIRONMENT);
    let own = own.canonicalize().unwrap_or(own);
    among([own.join("bin"), own.join("Scripts")].into())
}

/// Finds the tools on the path alone, where no folder is trusted. Errors: as for a folder.
pub fn find_on_path() -> Result<Tools, PythonError> {
    among(Vec::new())
}

/// The tools in these folders, else on the path. What is found is asked for its version, and so is run.
fn among(mut folders: Vec<PathBuf>) -> Result<Tools, PythonError> {
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let program = |name: &str, folders: &[PathBuf]| {
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        folders.iter().map(|folder| folder.join(&file)).find(|file| file.is_file())
    };
    let componentize = program("componentize-py", &folders).ok_or(PythonError::NoCompiler)?;
    let release = first_line(command(&componentize).arg("--version")).ok_or(PythonError::NoCompiler)?;

    let beside: Vec<PathBuf> = componentize.parent().map(Path::to_owned).into_iter().chain(folders).collect();
    let none = |found| PythonError::NoPython { least: LEAST_IN_WORDS, found };
    let python = ["python3", "python"].into_iter().find_map(|name| program(name, &beside)).ok_or_else(|| none(None))?;
    let found = first_line(command(&python).arg("--version"));
    if found.as_deref().and_then(version).is_none_or(|version| version < LEAST) {
        return Err(none(found));
    }
    Ok(Tools { componentize, python, release })
}

impl Tools {
    /// Writes bindings for the whole contract, to read the source with.
    pub(super) fn bind(&self, place: &Workspace) -> Result<(), Error> {
        let mut command = self.componentizer(place);
        run(command.arg("bindings").arg(place.bindings()), &self.componentize).map(|_| ())
    }

    /// Makes the component. `folder` may bring packages in an environment of its own.
    pub(super) fn componentize(&self, place: &Workspace, folder: &Path) -> Result<Vec<u8>, Error> {
        let output = place.path().join("method.wasm");
        let mut command = self.componentizer(place);
        command.arg("componentize").arg("-p").arg(place.source()).arg("-p").arg(place.package());
        command.arg("--stub-wasi").arg("-o").arg(&output).arg(ENTRY);
        // Without one, every package of this machine would get in.
        let own = folder.join(ENVIRONMENT);
        command.env("VIRTUAL_ENV", if own.is_dir() { own } else { place.empty_environment() });
        run(&mut command, &self.componentize)?;
        std::fs::read(&output).map_err(Error::file("read", output))
    }

    /// Asks Python with the bindings and the package on its path.
    pub(super) fn ask(&self, place: &Workspace, arguments: &[&str]) -> Result<Output, Error> {
        let folders = [place.package(), place.bindings()];
        let path = std::env::join_paths(folders).map_err(|error| PythonError::NotMade { problem: error.to_string() });
        let mut command = command(&self.python);
        command.arg("-B").args(arguments).current_dir(place.path());
        command.env("PYTHONPATH", path?).env("PYTHONUTF8", "1").env_remove("PYTHONHOME");
        command.output().map_err(Error::file("start", &self.python))
    }

    fn componentizer(&self, place: &Workspace) -> Command {
        let mut command = command(&self.componentize);
        command.arg("-q").arg("-d").arg(place.contract()).args(["-w", "method"]).current_dir(place.path());
        command.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        command
    }
}

/// Runs a program that must succeed.
fn run(command: &mut Command, program: &Path) -> Result<Output, Error> {
    let output = command.output().map_err(Error::file("start", program))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(PythonError::NotMade { problem: last_words(&String::from_utf8_lossy(&output.stderr)) }.into())
}

/// The error among a program's words: the last line of a Python traceback, else what it says first.
fn last_words(words: &str) -> String {
    let lines = || words.lines().map(str::trim).filter(|line| !line.is_empty());
    let named = |line: &&str| line.split_once(": ").is_some_and(|(kind, _)| kind.ends_with("Error"));
    lines().rfind(named).or_else(|| lines().next()).unwrap_or("it says nothing").to_owned()
}

/// The first line that a program answers.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The version in a line such as `Python 3.11.2`.
fn version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.strip_prefix("Python ")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_python_is_two_numbers() {
        assert_eq!(version("Python 3.11.2"), Some((3, 11)));
        assert_eq!(version("Python 3.14.0rc1"), Some((3, 14)));
        assert_eq!(version("pypy"), None);
    }

    #[test]
    fn the_error_is_the_last_line_of_a_traceback_or_the_first_of_other_words() {
        let traceback =
            "Caused by:\n  Traceback (most recent call last):\n  ModuleNotFoundError: No module named 'a'\n";
        assert_eq!(last_words(traceback), "ModuleNotFoundError: No module named 'a'");
        assert_eq!(last_words("cannot open wit\nCaused by:\n  nothing\n"), "cannot open wit");
    }
}
