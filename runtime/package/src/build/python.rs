//! From a folder with a method in Python to a component.
//!
//! The source is asked what it declares, by the author's own Python; the contract is narrowed to the interfaces that
//! it names; `componentize-py` makes the component, with every call to a system replaced by a trap. Packages of this
//! machine do not get in; those of the folder's own `.venv` do.

mod describe;
mod editors;
mod project;
mod sources;
mod tools;
mod workspace;

use std::path::Path;

use super::{Compiled, Record, Watch, componentize};
use crate::Error;

pub use crate::constants::PYPROJECT as PROJECT;
pub use crate::digest::is_python;
pub use tools::{Tools, find, find_on_path};

pub(crate) use editors::files as files_for_editors;
pub(super) use project::component_name;

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
