//! From a folder with a method in Python to a component.
//!
//! The source is asked what it declares, by the author's own Python; the contract is narrowed to the interfaces that
//! it names; `componentize-py` makes the component, with every call to a system replaced by a trap. Packages of this
//! machine do not get in; those of the folder's own `.venv` do.

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

/// The files of `sdk/python` by their paths: the package, the stubs for editors, and the page. Written by the build
/// script.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/python.rs"));

/// The file of the contract that lists what a method may import.
const WORLD: &str = "world.wit";

/// Iterates over the WIT files of the contract: file name and contents.
fn contract() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    sources::files().iter().filter_map(|(path, bytes)| Some((path.strip_prefix("sdk/rust/wit/")?, bytes.as_slice())))
}

/// Iterates over the modules of the package `tunebox`: path, such as `tunebox/describe.py`, and contents. Stubs are not
/// among them.
fn modules() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied().filter(|(path, _)| path.ends_with(".py"))
}

/// Builds the component of a method in Python: its manifest from `pyproject.toml` and `@method`, its code from `src`.
/// Writes the files for editors into the folder first. Errors: no tools, source that declares no method or cannot be
/// built, a manifest or an import that breaks a rule.
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
