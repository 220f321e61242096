//! `pyproject.toml`: the name, version, description and license of a method in Python.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::failure::{no_method_error, unusable_manifest};
use crate::constants::PYPROJECT;
use crate::{Error, Manifest, files};

/// The parts of `pyproject.toml` that are read.
#[derive(Deserialize)]
struct File {
    project: Project,
}

/// The table `[project]` of `pyproject.toml`.
#[derive(Deserialize)]
pub(super) struct Project {
    name: String,
    version: String,
    description: String,
    /// An SPDX expression; files of an older form have a table here.
    license: Option<toml::Value>,
}

impl Project {
    /// Returns the name of the Python module that declares the method: the project's name with underscores in place of
    /// hyphens.
    pub(super) fn module(&self) -> String {
        self.name.replace('-', "_")
    }

    /// Returns the manifest as JSON: `entries`, which the source declares, with name, version and description of
    /// `pyproject.toml` in place of entries of the same names. The license is added only if it is a text in
    /// `pyproject.toml`. Errors: an entry that is missing, unknown or of the wrong type; the other rules of manifests
    /// are not checked here.
    pub(super) fn manifest(&self, mut entries: Map<String, Value>) -> Result<Vec<u8>, Error> {
        let own = [("name", &self.name), ("version", &self.version), ("description", &self.description)];
        entries.extend(own.map(|(key, text)| (key.to_owned(), Value::from(text.as_str()))));
        let license = self.license.as_ref().and_then(toml::Value::as_str);
        entries.extend(license.map(|license| ("license".to_owned(), license.into())));
        let manifest: Result<Manifest, _> = serde_json::from_value(Value::Object(entries));
        let text = manifest.and_then(|manifest| serde_json::to_vec(&manifest));
        text.map_err(|error| unusable_manifest(&error.to_string()))
    }
}

/// Reads `[project]` of the folder's `pyproject.toml`. Errors: no such file or table, or no `name`, `version` or
/// `description`.
pub(super) fn read(folder: &Path) -> Result<Project, Error> {
    let text = files::read_text(&folder.join(PYPROJECT))?;
    let file: File = toml::from_str(&text).map_err(|error| no_method_error(folder, error.message()))?;
    Ok(file.project)
}

/// Returns the file name of the component, `<name>.wasm` with the project's name, without building. Errors: no
/// `pyproject.toml`, or one without `name`, `version` or `description`.
pub(in super::super) fn component_name(folder: &Path) -> Result<String, Error> {
    read(folder).map(|project| format!("{}.wasm", project.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(PYPROJECT), text).unwrap();
        folder
    }

    #[test]
    fn a_project_names_its_module_and_its_component() {
        let folder = folder("[project]\nname = \"my-dpo\"\nversion = \"0.1.0\"\ndescription = \"One\"\n");
        assert!(crate::digest::is_python(folder.path()));
        assert_eq!(read(folder.path()).unwrap().module(), "my_dpo");
        assert_eq!(component_name(folder.path()).unwrap(), "my-dpo.wasm");
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |text: &str| read(folder(text).path()).err().unwrap().to_string();
        assert!(refused("[tool]\n").contains("`project`"));
        assert!(refused("[project]\nname = \"a\"\nversion = \"1.0.0\"\n").contains("`description`"));
        assert!(refused("[project\n").contains("holds no method"));
    }
}
