//! A method in Python as a process of plain Python, for its author's tests: the same source, with the modules of
//! `sdk/python/native` in the place of `componentize-py`'s bindings.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::Watch;
use super::super::componentize::explain_manifest_error;
use super::tools::{find_python, python_command};
use super::workspace::{SOURCE, Workspace, create_workspace};
use super::{describe, editors, project};
use crate::toolchain::first_output_line;
use crate::{Error, Manifest, digest, manifest};

/// The source of a method in Python at one moment, and the programs that run it as a process without a sandbox.
pub struct Twin {
    folder: PathBuf,
    python: PathBuf,
    /// A copy of the source, and the modules that the process needs; removed when dropped.
    place: Workspace,
    module: String,
    /// What the source declares, as the text of a manifest.
    pub text: String,
    /// The manifest in [`text`](Self::text).
    pub manifest: Manifest,
    /// The names of the interfaces that the source uses, such as `learn`.
    pub interfaces: Vec<String>,
    /// The digest of the source.
    pub source: String,
}

impl Twin {
    /// Copies the source of a method's folder, imports it once, and reads what it declares. First writes the files for
    /// editors into the folder; `watch` gets an event if that waits for a lock. Errors: no Python, source that declares
    /// no method or cannot be imported, a manifest that breaks a rule.
    pub fn open(folder: &Path, watch: &mut Watch<'_>) -> Result<Self, Error> {
        editors::write_editor_files(folder, watch)?;
        let (python, project) = (find_python(Some(folder))?, project::read(folder)?);
        let source = digest::source(folder)?;
        let place = create_workspace(folder, &project.module())?;
        let described = describe::describe(&python, &place, &project.module())?;
        let bytes = project.manifest(described.manifest)?;
        let manifest = manifest::parse(&bytes).map_err(explain_manifest_error)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let folder = folder.canonicalize().map_err(Error::file("found", folder))?;
        let (module, interfaces) = (project.module(), described.interfaces.into_iter().collect());
        Ok(Self { folder, python, place, module, text, manifest, interfaces, source })
    }

    /// Prepares the process of the method, which serves the host whose socket the environment variable `TUNEBOX_TWIN`
    /// names.
    pub fn process(&self) -> Result<Command, Error> {
        let mut command = self.python(&[])?;
        command.args(["-m", "tunebox_native", &self.module]).arg(self.place.subfolder(SOURCE)).arg(&self.text);
        Ok(command)
    }

    /// Prepares the folder's own tests: by `pytest` if this Python has it, else by `unittest`. `None` if the folder has
    /// none: no `test_*.py` in its folder `tests` or beside it.
    pub fn tests(&self) -> Result<Option<Command>, Error> {
        let has_tests = |place: &str| {
            let mut entries = self.folder.join(place).read_dir().into_iter().flatten().flatten();
            entries.any(|entry| {
                let name = entry.file_name();
                name.to_str().is_some_and(|name| name.starts_with("test_") && name.ends_with(".py"))
            })
        };
        let Some(place) = ["tests", "."].into_iter().find(|place| has_tests(place)) else { return Ok(None) };
        let mut command = self.python(&[self.folder.join("src")])?;
        if first_output_line(&self.python, &["-c", "import pytest"]).is_some() {
            command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", place]);
        } else {
            command.args(["-m", "unittest", "discover", "-s", place]);
        }
        Ok(Some(command))
    }

    /// Prepares Python in the method's folder with the modules of a native process, and the folders `more`, on its
    /// path.
    fn python(&self, more: &[PathBuf]) -> Result<Command, Error> {
        let mut command = python_command(&self.python, &self.place, more)?;
        command.current_dir(&self.folder);
        Ok(command)
    }
}
