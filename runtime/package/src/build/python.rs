//! Builds a component from a folder with a method in Python.
//!
//! The author's own Python imports the source and reports what it declares. The workspace's copy of the WIT world is
//! reduced to the interfaces that the source names. `componentize-py` then makes the component, with every WASI call
//! replaced by a trap. The component contains packages of the folder's own `.venv`, and no others of this machine.

mod describe;
mod editors;
mod project;
mod tools;
mod workspace;

use std::path::Path;

use super::{Compiled, Record, Watch, componentize};
use crate::{Error, sources};

pub use crate::constants::PYPROJECT as PROJECT;
pub use crate::digest::is_python;
use tools::find;
pub use tools::{Tools, find_on_path};

pub(crate) use editors::files as files_for_editors;
pub(super) use project::component_name;

/// The files of `sdk/python` as (path, contents): the package `tunebox`, the stubs for editors, and the README. Written by
/// the build script.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/python.rs"));

/// The WIT file with the worlds, which list what a component may import.
const WORLD: &str = "world.wit";

/// Iterates over the WIT files that define the interface between methods and the host, as (file name, contents).
fn contract() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    sources::files().iter().filter_map(|(path, bytes)| Some((path.strip_prefix("sdk/rust/wit/")?, bytes.as_slice())))
}

/// Iterates over the modules of the Python package `tunebox`, as (path, contents), with paths such as
/// `tunebox/describe.py`. Type stubs are left out.
fn modules() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied().filter(|(path, _)| path.ends_with(".py"))
}

/// Builds the component of a method in Python: its manifest from `pyproject.toml` and `@method`, its code from `src`.
/// First writes the files for editors into the folder; `watch` gets an event if that waits for a lock. Errors: no tools,
/// source that declares no method or cannot be built, a manifest or an import that breaks a rule.
pub(super) fn compile(folder: &Path, watch: &mut Watch<'_>) -> Result<Compiled, Error> {
    editors::write_editor_files(folder, watch)?;
    let tools = find(folder)?;
    let project = project::read(folder)?;
    let record = Record { toolchain: tools.release.clone(), source: crate::digest::source(folder)?, debug: false };

    let place = workspace::create_workspace(folder, &project.module())?;
    tools.bind(&place)?;
    let described = describe::describe(&tools, &place, &project.module())?;
    place.narrow(&described.interfaces)?;
    let bytes = tools.componentize(&place, folder)?;
    componentize::seal(bytes, &project.manifest(described.manifest)?, &record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::files_below;

    #[test]
    fn every_file_of_the_contract_and_of_the_package_travels() {
        let contract: Vec<String> = contract().map(|(name, _)| name.to_owned()).collect();
        let modules: Vec<String> = modules().map(|(name, _)| name.replacen("tunebox/", "", 1)).collect();
        for (folder, ending, list) in [("wit", "wit", contract), ("sdk/python/tunebox", "py", modules)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
            let found = files_below(&path, Path::new(""), "released").unwrap();
            let found = found.into_iter().filter(|path| path.extension().is_some_and(|found| found == ending));
            let names: Vec<String> = found.map(|path| path.display().to_string()).collect();
            assert_eq!(names, list, "{folder}");
        }
    }
}
