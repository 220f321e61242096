//! Files as Rust source, for the build scripts that put files into the program.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// A file: where it is, and what it is called in the program.
pub(crate) type Named = (PathBuf, String);

/// Returns Rust source for a slice of `(name, include_bytes!(path))` pairs, in the given order.
pub(crate) fn embedded(files: &[Named]) -> String {
    slice(files.iter().map(|(path, name)| format!("({name:?}, include_bytes!({path:?})),\n")).collect())
}

/// Returns Rust source for a slice of these elements, each of which ends in a comma.
pub(crate) fn slice(elements: Vec<String>) -> String {
    format!("&[\n{}]\n", elements.concat())
}

/// Lists every file below `folder`, recursively and sorted by name: its path, and `prefix` plus its path in the folder.
/// Skips `target`, names that begin with a dot, symbolic links and names that are not UTF-8.
pub(crate) fn below(folder: &Path, prefix: &str) -> io::Result<Vec<Named>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name == "target" || name.starts_with('.') || entry.file_type()?.is_symlink() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            files.extend(below(&entry.path(), &format!("{prefix}{name}/"))?);
        } else {
            files.push((entry.path(), format!("{prefix}{name}")));
        }
    }
    Ok(files)
}
