//! Asks Python what the source of a method declares.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use tunebox_foundation::explain::{Explanation, Snippet};

use super::tools::{componentize_error, python_command};
use super::workspace::{SOURCE, Workspace};
use crate::{Error, World, files};

/// What the source declares.
#[derive(Deserialize)]
pub(super) struct Described {
    /// The entries of the manifest that do not come from `pyproject.toml`.
    pub(super) manifest: Map<String, Value>,
    /// The world of the contract that it is written for.
    pub(super) world: World,
    /// The WIT interfaces that the source names, and those that they depend on.
    pub(super) interfaces: BTreeSet<String>,
}

/// The JSON that `python -m tunebox.describe` prints as its last line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Described(Described),
    Fault { fault: Fault },
}

/// An error in the source. `file` is empty if the error has no location in the source.
#[derive(Deserialize)]
struct Fault {
    message: String,
    file: String,
    line: usize,
    column: usize,
}

/// Imports the method's module, named `module`, with the Python of this machine by `python -m tunebox.describe`.
/// Returns the manifest entries and interfaces that it declares. The source runs. Errors: a fault in the source, with
/// its line, or no JSON as the last line of the output; the error then has the last line of the error output.
pub(super) fn describe(python: &Path, workspace: &Workspace, module: &str) -> Result<Described, Error> {
    let source = workspace.subfolder(SOURCE);
    let mut command = python_command(python, workspace, &[])?;
    command.args(["-m", "tunebox.describe", module]).arg(source);
    let output = command.output().map_err(Error::file("started", python))?;
    // What the source prints stands before the answer.
    let line = output.stdout.rsplit(|byte| *byte == b'\n').find(|line| !line.is_empty());
    match line.and_then(|line| serde_json::from_slice(line).ok()) {
        Some(Answer::Described(described)) => Ok(described),
        Some(Answer::Fault { fault }) => Err(fault.into_error(workspace)),
        None => {
            let problem = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no answer").to_owned();
            Err(componentize_error(&problem))
        }
    }
}

impl Fault {
    /// Turns the fault into an error with the location `file:line:column`; without a location if `file` is empty. The
    /// source line, counted from 1, is shown if the file is below `src/` and has that line.
    fn into_error(self, workspace: &Workspace) -> Error {
        let Self { message, file, line, column } = self;
        let inside = file.strip_prefix("src/").map(|inside| workspace.subfolder(SOURCE).join(inside));
        let text = inside.and_then(|path| files::read_text(&path).ok());
        let text = text.and_then(|text| text.lines().nth(line.checked_sub(1)?).map(str::to_owned));
        let snippet = text.map(|text| Snippet { line, text, column, width: 1, note: None });
        let location = (!file.is_empty()).then(|| format!("{file}:{line}:{column}"));
        Explanation { location, snippet, ..Explanation::new("build", message) }.into()
    }
}
