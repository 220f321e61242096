//! Finds and runs `componentize-py`, and the Python interpreter that belongs to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tunebox_foundation::explain::Explanation;

use super::workspace::{CONTRACT, EMPTY_ENVIRONMENT, ENTRY, NATIVE, PACKAGE, SOURCE, Workspace};
use crate::error::Reason;
use crate::toolchain::{command, find_program, first_output_line, path_folders};
use crate::{Error, World};

/// The lowest version of Python that can read the generated bindings.
const MIN_PYTHON: (u32, u32) = (3, 11);

/// The program that makes components from Python.
const COMPONENTIZE_PROGRAM: &str = "componentize-py";

/// The folder of a method's own virtual environment.
const VENV_FOLDER: &str = ".venv";

/// The programs that build components from Python.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The path of `componentize-py`.
    pub componentize: PathBuf,
    /// The path of the Python interpreter that imports a method's source to read its declaration.
    pub python: PathBuf,
    /// The name and version that `componentize-py --version` prints.
    pub release: String,
}

/// Finds `componentize-py` and Python in the `.venv/bin` of a method's folder, else on `PATH`; with `None` on `PATH`
/// alone, so that no program of a method's folder runs. Runs both with `--version`. Errors: one of them is missing or
/// fails, or Python is older than 3.11.
pub fn find_tools(folder: Option<&Path>) -> Result<Tools, Error> {
    let componentize = find_program(COMPONENTIZE_PROGRAM, program_folders(folder)).ok_or_else(no_compiler)?;
    let release = version_line(&componentize).ok_or_else(no_compiler)?;
    Ok(Tools { componentize, python: find_python(folder)?, release })
}

/// Returns the folders to search for programs: the one of `.venv` in a method's folder, if `folder` is given, then the
/// folders of `PATH`.
fn program_folders(folder: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let own = folder.map(|folder| folder.join(VENV_FOLDER)).map(|own| own.canonicalize().unwrap_or(own).join("bin"));
    own.into_iter().chain(path_folders())
}

/// Finds the Python that [`find_tools`] finds, beside `componentize-py` or in the same folders, also where there is no
/// `componentize-py`. Runs it with `--version`. Errors: there is none, or it is older than 3.11.
pub(super) fn find_python(folder: Option<&Path>) -> Result<PathBuf, Error> {
    let none = |found: Option<String>| {
        let (needed, found) = (
            format!("Python {}.{} or later", MIN_PYTHON.0, MIN_PYTHON.1),
            found.map(|found| format!("here is {found}, and ")),
        );
        let why = format!("{}the method is read by Python", found.unwrap_or_default());
        let error = Explanation::new("build", format!("no {needed} on this machine")).with_why(why);
        Error::from(error.with_hint(format!("install {needed}")))
    };
    let componentize = find_program(COMPONENTIZE_PROGRAM, program_folders(folder));
    let beside: Vec<PathBuf> = componentize.iter().filter_map(|program| program.parent()).map(Path::to_owned).collect();
    let folders = || beside.iter().cloned().chain(program_folders(folder));
    let python = ["python3", "python"].into_iter().find_map(|name| find_program(name, folders()));
    let python = python.ok_or_else(|| none(None))?;
    let found = version_line(&python);
    if found.as_deref().and_then(parse_version).is_none_or(|version| version < MIN_PYTHON) {
        return Err(none(found));
    }
    Ok(python)
}

impl Tools {
    /// Runs `componentize-py componentize` in the workspace for a world of the contract and returns the component's
    /// bytes. Imports of WASI are replaced by traps. Packages of the `.venv` in `folder` get in, no others of this
    /// machine. Errors: the program does not start, or it fails: the error then has a line of its error output, chosen
    /// by [`error_in_output`].
    pub(super) fn componentize(&self, workspace: &Workspace, folder: &Path, world: World) -> Result<Vec<u8>, Error> {
        let output = workspace.path().join("method.wasm");
        let mut command = command(&self.componentize);
        command.arg("-q").arg("-d").arg(workspace.subfolder(CONTRACT)).args(["-w", world.name(), "componentize", "-p"]);
        command.arg(workspace.subfolder(SOURCE)).arg("-p").arg(workspace.subfolder(PACKAGE));
        command.arg("--stub-wasi").arg("-o").arg(&output).arg(ENTRY).current_dir(workspace.path());
        command.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        // Without one, every package of this machine would get in.
        let own = folder.join(VENV_FOLDER);
        command.env("VIRTUAL_ENV", if own.is_dir() { own } else { workspace.subfolder(EMPTY_ENVIRONMENT) });
        let done = command.output().map_err(Error::file("started", &self.componentize))?;
        if !done.status.success() {
            return Err(componentize_error(error_in_output(&String::from_utf8_lossy(&done.stderr))));
        }
        std::fs::read(&output).map_err(Error::file("read", output))
    }
}

/// Prepares a run of Python in the workspace, with the package `tunebox`, the modules of a native process and the
/// folders `more` on its path. No bytecode is written. Errors: a folder whose name cannot be on a path.
pub(super) fn python_command(python: &Path, workspace: &Workspace, more: &[PathBuf]) -> Result<Command, Error> {
    let folders = [workspace.subfolder(PACKAGE), workspace.subfolder(NATIVE)];
    let path =
        std::env::join_paths(folders.iter().chain(more)).map_err(|error| componentize_error(&error.to_string()))?;
    let mut command = command(python);
    command.arg("-B").current_dir(workspace.path());
    command.env("PYTHONPATH", path).env("PYTHONUTF8", "1").env_remove("PYTHONHOME");
    Ok(command)
}

/// Returns the error in a program's output, trimmed: the last line such as `TypeError: …`, whose text before the first
/// colon ends with `Error`; else the first line that is not empty, else the phrase `it says nothing`.
fn error_in_output(words: &str) -> &str {
    let lines = || words.lines().map(str::trim).filter(|line| !line.is_empty());
    let named = |line: &&str| line.split_once(": ").is_some_and(|(kind, _)| kind.ends_with("Error"));
    lines().rfind(named).or_else(|| lines().next()).unwrap_or("it says nothing")
}

/// Returns the first line that a program prints for `--version`. `None` if it cannot be run, fails or prints nothing.
fn version_line(program: &Path) -> Option<String> {
    first_output_line(program, &["--version"]).filter(|line| !line.is_empty())
}

/// Makes the error for a machine without `componentize-py`.
fn no_compiler() -> Error {
    let error = Explanation::new("build", "no `componentize-py` on this machine")
        .with_why("it turns a method in Python into a component, and it is not on the path");
    let own = "`python3 -m venv .venv && .venv/bin/pip install componentize-py` in the method's folder";
    Reason::NoCompiler.error(error.with_hint(format!("`pip install componentize-py`, or {own}")))
}

/// Makes the error for a method that `componentize-py` or Python fails on; `problem` is what they say.
pub(super) fn componentize_error(problem: &str) -> Error {
    let error = Explanation::new("build", "`componentize-py` makes no component of this method").with_why(problem);
    let hint = "a module that a method imports must be pure Python: one with compiled parts does not load there";
    error.with_hint(hint).into()
}

/// Parses the major and minor version in a line such as `Python 3.11.2`. `None` for any other line.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.strip_prefix("Python ")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_python_is_two_numbers() {
        assert_eq!(parse_version("Python 3.11.2"), Some((3, 11)));
        assert_eq!(parse_version("Python 3.14.0rc1"), Some((3, 14)));
        assert_eq!(parse_version("pypy"), None);
    }

    #[test]
    fn the_error_is_the_last_line_of_a_traceback_or_the_first_of_other_words() {
        let traceback =
            "Caused by:\n  Traceback (most recent call last):\n  ModuleNotFoundError: No module named 'a'\n";
        assert_eq!(error_in_output(traceback), "ModuleNotFoundError: No module named 'a'");
        assert_eq!(error_in_output("cannot open wit\nCaused by:\n  nothing\n"), "cannot open wit");
    }
}
