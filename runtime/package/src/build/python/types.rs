//! Checks the types of a method in Python by `mypy`, if it is installed beside `componentize-py`.
//!
//! What it finds are warnings: Python runs the source in any case, and a checker may be mistaken about it.

use std::path::{Path, PathBuf};

use super::super::Warning;
use super::tools::find_tools;
use super::{FILES, editors};
use crate::toolchain::{command, find_program};
use crate::{Error, files, sources};

/// Runs `mypy` on `src` of a method's folder, with the folder's own configuration of it, if it has one. The cache is in
/// `.tunebox` of the folder if that exists. Returns what it found; the error is a clause that says why nothing was
/// checked, such as that `mypy` is missing or fails.
pub fn check_types(folder: &Path) -> Result<Vec<Warning>, String> {
    run_mypy(folder).unwrap_or_else(|error| Err(error.to_string()))
}

/// Runs `mypy` as [`check_types`] does; the inner result is that of [`check_types`]. Errors: no `componentize-py` or
/// Python, a temporary folder that cannot be written, a `mypy` that does not start.
fn run_mypy(folder: &Path) -> Result<Result<Vec<Warning>, String>, Error> {
    let tools = find_tools(Some(folder))?;
    let beside: Vec<PathBuf> = tools.componentize.parent().map(Path::to_owned).into_iter().collect();
    let Some(mypy) = find_program("mypy", beside) else {
        let hint = "no `mypy` beside `componentize-py`; `pip install mypy` in the same environment adds it";
        return Ok(Err(hint.to_owned()));
    };
    let place = tempfile::tempdir().map_err(Error::file("created", std::env::temp_dir()))?;
    let (known, cache) = search_folders(folder, place.path())?;
    let mut command = command(&mypy);
    command.args(["--show-column-numbers", "--no-error-summary", "--no-pretty", "--no-color-output"]);
    command.args(["--check-untyped-defs", "--follow-imports=silent", "--cache-dir"]).arg(cache).arg("src");
    command.current_dir(folder).env("MYPYPATH", known);
    let output = command.output().map_err(Error::file("started", &mypy))?;
    let told = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0 | 1) => Ok(Ok(parse_warnings(&told))),
        _ => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let last = complaint.lines().chain(told.lines()).rfind(|line| !line.trim().is_empty());
            Ok(Err(format!("`mypy` failed: {}", last.unwrap_or("it says nothing").trim())))
        }
    }
}

/// Returns the absolute folder with the package `tunebox` and the stubs, and that for the cache. Both are in `.tunebox`
/// of the method's folder if its files for editors are there, so that the cache holds for the next build; else in
/// `temporary`, where the files are written. Errors: a folder that cannot be written.
fn search_folders(folder: &Path, temporary: &Path) -> Result<(PathBuf, PathBuf), Error> {
    let own = folder.join(sources::FOLDER);
    if sources::has_files(folder, editors::editor_files()) {
        let own = own.canonicalize().map_err(Error::file("read", &own))?;
        return Ok((own.join(editors::EDITOR_FOLDER), own.join("mypy")));
    }
    let known = temporary.join(editors::EDITOR_FOLDER);
    for (name, bytes) in FILES {
        files::write(&known.join(name), bytes)?;
    }
    Ok((known, temporary.join("mypy")))
}

/// Parses the output of `mypy`. Each line such as `src/calm.py:12:9: error: …` begins a warning; any other line, such
/// as a `note:`, is appended to the output of the warning before it. Ignores lines before the first error.
fn parse_warnings(output: &str) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    for line in output.lines() {
        if let Some((place, message)) = line.split_once(": error: ") {
            let (message, place) = (message.trim().to_owned(), Some(place.replace('\\', "/")));
            found.push(Warning { message, place, output: line.to_owned() });
        } else if let Some(last) = found.last_mut() {
            last.output += &format!("\n{line}");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_mypy_is_a_warning_with_its_place_and_its_notes() {
        let told = "src/calm.py:7:14: error: Argument 1 has type \"float\"  [arg-type]\nsrc/calm.py:7: note: See there\n\
                    src/calm.py:9:5: error: Name \"a\" is not defined  [name-defined]\n";
        let found = parse_warnings(told);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].place.as_deref(), Some("src/calm.py:7:14"));
        assert_eq!(found[0].message, "Argument 1 has type \"float\"  [arg-type]");
        assert!(found[0].output.ends_with("note: See there"), "{:?}", found[0]);
        assert!(parse_warnings("Success: no issues found\n").is_empty());
    }
}
