//! Checks whether a folder holds a method, and suggests other folders if it does not.

use std::path::{Path, PathBuf};

use tunebox_foundation::paths::{most_similar, simplify};

use super::failure::{build_error_because, quote};
use crate::Error;
use crate::constants::PYPROJECT;
use crate::files;

/// The most other folders that an error lists.
const MAX_LISTED: usize = 5;

/// Fails unless the folder holds a method: `Cargo.toml` or `pyproject.toml`, and the folder `src`. If there is no such
/// folder, the error suggests the method folder beside it with the most similar name. Else it lists up to five methods
/// in the folder, or beside it if there is none in it.
pub fn expect_method(folder: &Path) -> Result<(), Error> {
    if has_method(folder) {
        return Ok(());
    }
    let is_folder = folder.is_dir();
    let mut others = if is_folder { methods_in(folder) } else { Vec::new() };
    if others.is_empty() && folder.file_name().is_some() {
        others = methods_in(files::parent(folder));
    }
    let meant = if is_folder { None } else { most_similar(folder, &others) };
    others.truncate(MAX_LISTED);
    let hint = match meant {
        Some(meant) => format!("did you mean `{}`?", meant.display()),
        None if others.is_empty() => "`tunebox new NAME` begins one".to_owned(),
        None => {
            let others: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
            format!("methods are in {}; `tunebox new NAME` begins another", quote(&others))
        }
    };
    let why = match is_folder {
        false => "there is no such file or folder",
        true => "a method's folder has `Cargo.toml`, or `pyproject.toml`, and the folder `src`",
    };
    Err(build_error_because(format!("there is no method in `{}`", simplify(folder).display()), why, hint))
}

/// Whether a folder has `Cargo.toml` or `pyproject.toml`, and a folder `src`.
fn has_method(folder: &Path) -> bool {
    let is_file = |name: &str| folder.join(name).is_file();
    (is_file("Cargo.toml") || is_file(PYPROJECT)) && folder.join("src").is_dir()
}

/// Returns the folders directly in `folder` that hold a method, sorted by path. Empty if `folder` cannot be read.
pub(crate) fn methods_in(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let found = entries.map(|entry| simplify(&entry.path())).filter(|path| has_method(path));
    let mut found: Vec<PathBuf> = found.collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tunebox_foundation::explain::Explain as _;

    use super::*;

    fn folder_with(methods: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in methods {
            fs::create_dir_all(folder.path().join(name).join("src")).unwrap();
            fs::write(folder.path().join(name).join("Cargo.toml"), "").unwrap();
        }
        fs::create_dir(folder.path().join("notes")).unwrap();
        folder
    }

    #[test]
    fn a_folder_without_a_method_is_answered_with_those_that_have_one() {
        let folder = folder_with(&["fresh", "calm"]);
        let hint = |name: &str| {
            let error = expect_method(&folder.path().join(name)).unwrap_err();
            (error.to_string(), error.why().unwrap(), error.hint().unwrap())
        };
        let path = |name: &str| folder.path().join(name).display().to_string();
        assert!(expect_method(&folder.path().join("fresh")).is_ok());

        let (what, why, advice) = hint("frsh");
        assert_eq!(what, format!("there is no method in `{}`", path("frsh")));
        assert_eq!(
            (why.as_str(), advice),
            ("there is no such file or folder", format!("did you mean `{}`?", path("fresh")))
        );
        let both = format!("`{}`, `{}`", path("calm"), path("fresh"));
        for name in ["elsewhere", "notes", ""] {
            assert!(hint(name).2.contains(&both), "{name}: {:?}", hint(name));
        }
        assert!(hint("notes").1.contains("pyproject.toml"), "{:?}", hint("notes"));
    }

    #[test]
    fn where_there_is_no_method_at_all_one_is_begun() {
        let folder = folder_with(&[]);
        // One level down, since the folder beside is asked as well, and beside this one lies what others left.
        let error = expect_method(&folder.path().join("notes")).unwrap_err();
        assert_eq!(error.hint().unwrap(), "`tunebox new NAME` begins one");
    }
}
