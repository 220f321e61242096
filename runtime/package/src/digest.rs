//! SHA-256 of bytes, and of the source of a method.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tunebox_compute::hexadecimal::hexadecimal;

use crate::build::python::{PROJECT, is_python};
use crate::reference::LARGEST;
use crate::{Error, bounded};

/// The digest of bytes in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The folder in which Python keeps what it compiled: no source.
pub(crate) const COMPILED_PYTHON: &str = "__pycache__";

/// The digest of what a method folder is built from: `Cargo.toml` or `pyproject.toml`, and everything under `src`.
///
/// Names and contents count, times and places do not. Line ends count as one line feed, so that
/// a checkout on another system has the same digest.
pub fn source(folder: &Path) -> Result<String, Error> {
    let mut files = vec![PathBuf::from(if is_python(folder) { PROJECT } else { "Cargo.toml" })];
    collect(folder, Path::new("src"), &mut files)?;
    files.sort();

    let mut digest = Sha256::new();
    for file in files {
        let path = folder.join(&file);
        let mut contents = bounded::read(&path, LARGEST).map_err(Error::file("read", &path))?;
        contents.retain(|byte| *byte != b'\r');
        let name = file.to_string_lossy().replace('\\', "/");
        for part in [name.as_bytes(), &contents] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    Ok(hexadecimal(&digest.finalize()))
}

/// Adds every file below `folder`/`inside`, by its path in `folder`.
fn collect(folder: &Path, inside: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let path = folder.join(inside);
    for entry in fs::read_dir(&path).map_err(Error::file("read", &path))? {
        let entry = entry.map_err(Error::file("read", &path))?;
        if is_of_editor(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let (kind, name) =
            (entry.file_type().map_err(Error::file("read", entry.path()))?, inside.join(entry.file_name()));
        if entry.file_name() == COMPILED_PYTHON {
            continue;
        }
        if kind.is_dir() {
            collect(folder, &name, files)?;
        } else {
            files.push(name);
        }
    }
    Ok(())
}

/// Whether a file is what an editor keeps beside a source: a swap file, a lock, a copy of before.
pub(crate) fn is_of_editor(name: &str) -> bool {
    name.starts_with(['.', '#']) || name.ends_with('~')
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
        let write = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("src")).unwrap();
            fs::write(folder.path().join("Cargo.toml"), "[package]\n").unwrap();
            fs::write(folder.path().join("src/lib.rs"), text).unwrap();
            source(folder.path()).unwrap()
        };
        assert_eq!(write("//! one\n"), write("//! one\r\n"));
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        for (name, text) in
            [("Cargo.toml", "[package]\n"), ("src/lib.rs", "//! one\n"), ("src/.lib.rs.swp", "x"), ("src/lib.rs~", "y")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(source(folder.path()).unwrap(), write("//! one\n"), "what an editor leaves is no source");
        assert_ne!(write("//! one\n"), write("//! two\n"));
    }
}
