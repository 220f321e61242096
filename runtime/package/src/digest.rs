//! SHA-256 of bytes, and of the source of a method.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tunebox_foundation::hexadecimal::hexadecimal;

use crate::constants::PYPROJECT;
use crate::{Error, files};

/// Whether a folder holds a method in Python: it has `pyproject.toml` and no `Cargo.toml`.
#[must_use]
pub fn is_python(folder: &Path) -> bool {
    folder.join(PYPROJECT).is_file() && !folder.join("Cargo.toml").is_file()
}

/// Returns the SHA-256 of bytes in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Whether a text is a SHA-256 in 64 lower-case hexadecimal digits.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The folder in which Python caches its bytecode, which is no source.
pub(crate) const COMPILED_PYTHON: &str = "__pycache__";

/// Returns the SHA-256, in hexadecimal, of what a method folder is built from: `Cargo.toml` or `pyproject.toml`,
/// `build.rs` if there is one, and everything under `src`.
///
/// For each file, in the order of paths, hashes its path in the folder and its contents, each after its length in bytes
/// as a little-endian `u64`. Carriage returns in contents are left out, so that a checkout on another system has the
/// same digest. Times and the folder's own path do not count. A file that an editor keeps for itself while a source is
/// open counts only if a counted file contains its name, as in `#[path = ".before.swp"]`: it may be compiled then. A
/// name that a source assembles from parts is not detected. A backup that an editor leaves, as `lib.rs~`, always
/// counts. Errors: no `src`, or a file that cannot be read or has more than 64 MiB.
pub fn source(folder: &Path) -> Result<String, Error> {
    // Cargo compiles what lies in a folder of that name where a source says so; Python never does.
    let (manifest, left_out) = if is_python(folder) { (PYPROJECT, COMPILED_PYTHON) } else { ("Cargo.toml", "") };
    let found = files_below(folder, Path::new("src"), left_out)?;
    let (left, mut files): (Vec<_>, Vec<_>) = found.into_iter().partition(|file| is_of_editor(file));
    files.push(manifest.into());
    files.extend(Some(PathBuf::from("build.rs")).filter(|script| folder.join(script).is_file()));
    move_named_files(folder, &mut files, left)?;
    files.sort();

    let mut digest = Sha256::new();
    for file in files {
        let mut contents = files::read(&folder.join(&file))?;
        contents.retain(|byte| *byte != b'\r');
        let name = file.to_string_lossy().replace('\\', "/");
        for part in [name.as_bytes(), &contents] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    Ok(hexadecimal(&digest.finalize()))
}

/// Lists the files below `folder`/`inside`, recursively, by their paths in `folder`, sorted. Leaves out folders called
/// `left_out` with everything in them. A symbolic link is listed as a file and not followed. Errors: a folder that
/// cannot be read.
pub(crate) fn files_below(folder: &Path, inside: &Path, left_out: &str) -> Result<Vec<PathBuf>, Error> {
    let (path, mut files) = (folder.join(inside), Vec::new());
    for entry in fs::read_dir(&path).map_err(Error::file("read", &path))? {
        let entry = entry.map_err(Error::file("read", &path))?;
        let kind = entry.file_type().map_err(Error::file("read", entry.path()))?;
        let place = inside.join(entry.file_name());
        if !kind.is_dir() {
            files.push(place);
        } else if entry.file_name() != left_out {
            files.extend(files_below(folder, &place, left_out)?);
        }
    }
    files.sort();
    Ok(files)
}

/// Moves files from `left` to `files`: every file whose name, without its folder, occurs in the contents of a file in
/// `files`, moved ones included. Both lists hold paths in `folder`. Errors: a file of `files` that cannot be read or
/// has more than 64 MiB.
fn move_named_files(folder: &Path, files: &mut Vec<PathBuf>, mut left: Vec<PathBuf>) -> Result<(), Error> {
    let mut next = 0;
    while next < files.len() && !left.is_empty() {
        let text = files::read(&folder.join(&files[next]))?;
        let is_named = |file: &mut PathBuf| {
            let name = file.file_name().unwrap_or_default().as_encoded_bytes();
            text.windows(name.len().max(1)).any(|part| part == name)
        };
        files.extend(left.extract_if(.., is_named));
        next += 1;
    }
    Ok(())
}

/// Whether the name of a file is one that an editor or the Finder uses for itself: a swap file of Vim (a dot in front
/// and an ending of three letters that begins with `sw`, as `.x.swp`), a lock (`.#x`) or unsaved text (`#x#`) of Emacs,
/// or `.DS_Store`. Backups such as `x~` are not among them.
pub(crate) fn is_of_editor(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_swap = name.starts_with('.') && ending.len() == 3 && ending.starts_with("sw");
    let is_unsaved = name.len() > 1 && name.starts_with('#') && name.ends_with('#');
    is_swap || is_unsaved || name.starts_with(".#") || name == ".DS_Store"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_abc_is_the_standards() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn moving_a_folder_keeps_the_source_digest_and_editing_it_does_not() {
        let write = |text: &str| digest_of(&[("lib.rs", text)]);
        assert_eq!(write("//! one\n"), write("//! one\r\n"));
        assert_ne!(write("//! one\n"), write("//! two\n"));
    }

    #[test]
    fn what_an_editor_leaves_is_no_source_until_one_names_it() {
        let left = [".lib.rs.swp", ".#lib.rs", "#lib.rs#", ".DS_Store"];
        let plain = digest_of(&[("lib.rs", "//! one\n")]);
        for name in left {
            assert_eq!(digest_of(&[("lib.rs", "//! one\n"), (name, "x")]), plain, "{name}");
            // One that is named may name the next.
            let (names, between) = ("include!(\".between.swo\");", format!("include!(\"{name}\");"));
            let with = |left: &str| digest_of(&[("lib.rs", names), (".between.swo", &between), (name, left)]);
            assert_ne!(with("x"), with("y"), "{name}");
        }
    }

    #[test]
    fn every_other_name_is_a_sources() {
        for name in [".x.rs", ".swift", "#", "#x", "lib.rs~", ".hidden/x.rs", "__pycache__/x.rs", "~x"] {
            let with = |text: &str| digest_of(&[("lib.rs", ""), (name, text)]);
            assert_ne!(with("x"), with("y"), "{name}");
        }
    }

    /// The digest of a method in Rust with these files below `src`.
    fn digest_of(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[package]\n").unwrap();
        for (name, text) in files {
            let path = folder.path().join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        source(folder.path()).unwrap()
    }
}
