//! Files that help an editor in the folder of a method in Python: the package `tunebox`, type stubs of the contract,
//! a README and a cookbook. None of them gets into a component.
//!
//! They are written only if the folder's `pyproject.toml` names the path `.tunebox/python`.

use std::path::Path;
use std::sync::LazyLock;

use super::super::Watch;
use super::super::sdk::write_locked;
use super::FILES;
use crate::constants::PYPROJECT;
use crate::sources::{self, Files};
use crate::{Error, files};

/// The folder of the files for editors, in the folder [`sources::FOLDER`].
pub(super) const EDITOR_FOLDER: &str = "python";

/// Returns the package `tunebox`, its stubs and its pages by their paths in [`sources::FOLDER`], such as
/// `python/README.md`.
pub(crate) fn editor_files() -> &'static Files {
    static EDITOR_FILES: LazyLock<Files> = LazyLock::new(|| {
        FILES.iter().map(|(name, bytes)| (format!("{EDITOR_FOLDER}/{name}"), bytes.to_vec())).collect()
    });
    &EDITOR_FILES
}

/// Writes the files for editors below `.tunebox/python` of the method's folder. Does nothing if the text of
/// `pyproject.toml` does not contain that path, or if the same files are there. Holds the lock of `pyproject.toml`
/// meanwhile; `watch` gets an event if another build holds it. Errors: a folder that cannot be written, or a lock that
/// is not released within 15 minutes.
pub(super) fn write_editor_files(folder: &Path, watch: &mut Watch<'_>) -> Result<(), Error> {
    let path = folder.join(PYPROJECT);
    let place = format!("{}/{EDITOR_FOLDER}", sources::FOLDER);
    let looks_there = files::read_text(&path).is_ok_and(|text| text.contains(&place));
    if looks_there { write_locked(folder, editor_files(), &path, watch) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::digest::files_below;

    fn repository(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
    }

    #[test]
    fn every_stub_travels() {
        let found = files_below(&repository("sdk/python/stubs"), Path::new(""), "").unwrap();
        assert!(!found.is_empty());
        for path in found.iter().filter(|path| path.extension().is_some_and(|ending| ending == "pyi")) {
            let name = path.to_str().unwrap().replace('\\', "/");
            assert!(FILES.iter().any(|(stub, _)| *stub == name), "{name}");
        }
    }

    #[test]
    fn it_is_written_and_repaired_only_where_the_project_looks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(folder.path().join(PYPROJECT), text).unwrap();
        write("[project]\n");
        write_editor_files(folder.path(), &mut |_| {}).unwrap();
        assert!(!folder.path().join(sources::FOLDER).exists());

        write(&fs::read_to_string(repository("sdk/template/python/pyproject.toml")).unwrap());
        let page = folder.path().join(sources::FOLDER).join("python/README.md");
        for _ in 0..2 {
            write_editor_files(folder.path(), &mut |_| {}).unwrap();
            assert_eq!(fs::read(&page).unwrap(), editor_files()["python/README.md"]);
            fs::write(&page, "of an earlier version").unwrap();
        }
    }

    #[test]
    fn what_the_package_gives_is_in_its_stub_and_on_its_page() {
        let text = |path: &str| fs::read_to_string(repository("sdk/python").join(path)).unwrap();
        let (source, stub, page) = (text("tunebox/__init__.py"), text("tunebox/__init__.pyi"), text("README.md"));
        let lists = source.split_once("_PLAIN = ").unwrap().1.split_once("_HOME = ").unwrap().0;
        let mut names: Vec<&str> = lists.split('"').skip(1).step_by(2).filter(|word| !word.contains('.')).collect();
        names.extend(["loss", "run"]);
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            assert!(stub.contains(&format!("{name} as {name}")), "`{name}` is not in the stub");
            assert!(page.contains(&format!("`{name}`")), "`{name}` is not on the page");
        }
    }
}
