//! Builds a component from a folder with a method, verifier or environment in Python.
//!
//! The author's own Python imports the source and reports what it declares. The workspace's copy of the WIT world is
//! reduced to the interfaces that the source names. `componentize-py` then makes the component, with every WASI call
//! replaced by a trap. The component contains packages of the folder's own `.venv`, and no others of this machine.
//!
//! [`twin`] runs the same source in CPython without a sandbox, for the tests of its author.

mod describe;
mod editors;
mod project;
mod tools;
mod twin;
mod types;
mod workspace;

use std::path::Path;

use super::{Built, Event, Record, Watch, componentize};
use crate::{Error, sources};

pub use crate::constants::PYPROJECT as PROJECT;
pub use crate::digest::is_python;
pub use tools::{Tools, find_tools};
pub use twin::Twin;
pub use types::check_types;

pub(crate) use editors::editor_files as files_for_editors;
pub(super) use project::component_name;

/// The files of `sdk/python` as (path, contents): the package `tunebox`, the modules of a native process, the stubs for
/// editors, the README and the cookbook. Written by the build script.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/python.rs"));

/// The WIT file with the worlds, which list what a component may import.
const WORLD_FILE: &str = "world.wit";

/// Iterates over the WIT files that define the interface between methods and the host, as (file name, contents).
fn contract_files() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    sources::files().iter().filter_map(|(path, bytes)| Some((path.strip_prefix("sdk/rust/wit/")?, bytes.as_slice())))
}

/// Iterates over the modules of the Python package `tunebox`, as (path, contents), with paths such as
/// `tunebox/describe.py`. Type stubs are left out.
fn package_modules() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied().filter(|(path, _)| path.ends_with(".py") && path.starts_with("tunebox/"))
}

/// Iterates over the modules that a process of plain Python needs beside the package, as (path, contents): those that
/// have the names of `componentize-py`'s bindings, and their connection to a host.
fn native_modules() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied().filter(|(path, _)| path.ends_with(".py") && !path.starts_with("tunebox/"))
}

/// Builds the component of a folder in Python: its manifest from `pyproject.toml` and the class that it declares, its
/// code from `src`. First writes the files for editors into the folder, if [`editors::write_editor_files`] has to;
/// `watch` gets an event if that waits for a lock. Imports the source in the Python of this machine, which runs it.
/// Errors: no `componentize-py` or no Python 3.11, source that declares no method or cannot be built, a manifest or an
/// import that breaks a rule. What `mypy` finds are warnings; `watch` gets an event if it checks nothing.
pub(super) fn compile(folder: &Path, watch: &mut Watch<'_>) -> Result<Built, Error> {
    editors::write_editor_files(folder, watch)?;
    let tools = find_tools(Some(folder))?;
    let project = project::read(folder)?;
    let record = Record { toolchain: tools.release.clone(), source: crate::digest::source(folder)?, debug: false };

    let place = workspace::create_workspace(folder, &project.module())?;
    let described = describe::describe(&tools.python, &place, &project.module())?;
    place.write_entry(described.world, &project.module())?;
    place.limit_imports(&described.interfaces)?;
    let warnings = check_types(folder).unwrap_or_else(|reason| {
        watch(Event::TypesNotChecked(&reason));
        Vec::new()
    });
    let bytes = tools.componentize(&place, folder, described.world)?;
    let built = componentize::add_sections(bytes, &project.manifest(described.manifest)?, &record)?;
    Ok(Built { warnings, ..built })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::files_below;

    #[test]
    fn every_file_of_the_contract_and_of_the_package_travels() {
        let contract: Vec<String> = contract_files().map(|(name, _)| name.to_owned()).collect();
        let modules: Vec<String> = package_modules().map(|(name, _)| name.replacen("tunebox/", "", 1)).collect();
        assert!(modules.contains(&"contract.py".to_owned()));
        let modules: Vec<String> = modules.into_iter().filter(|name| name != "contract.py").collect();
        let native: Vec<String> = native_modules().map(|(name, _)| name.to_owned()).collect();
        let package = ("sdk/python/tunebox", "py", modules);
        for (folder, ending, list) in [("wit", "wit", contract), package, ("sdk/python/native", "py", native)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
            let found = files_below(&path, Path::new(""), "released").unwrap();
            let found = found.into_iter().filter(|path| path.extension().is_some_and(|found| found == ending));
            let names: Vec<String> = found.map(|path| path.display().to_string()).collect();
            assert_eq!(names, list, "{folder}");
        }
    }
}
