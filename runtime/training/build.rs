//! Puts the files of the `sample` folder into the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Writes `sample.rs` into `OUT_DIR`: a list of (path, bytes) of every file of the `sample` folder, sorted by path.
fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("sample");
    let mut list = String::from("&[\n");
    let mut paths = Vec::new();
    // The whole path: a copy of the repository elsewhere that shares the target folder has other ones in its list.
    println!("cargo::rerun-if-changed={}", root.display());
    walk(&root, &mut paths)?;
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        // Writing to a `String` cannot fail.
        let _ = writeln!(list, "    ({name:?}, include_bytes!({:?})),", path.display().to_string());
    }
    list.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("sample.rs"), list)
}

/// Adds the paths of all files in a folder and its subfolders to `paths`.
fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}
