//! The committed inputs of a target.

use std::path::PathBuf;

/// The folder with a target's inputs.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(target)
}

/// The committed inputs of a target with the names of their files, sorted; none where there is no folder.
#[must_use]
pub fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder(target)).into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((name, std::fs::read(entry.path()).ok()?))
    };
    let mut inputs: Vec<_> = entries.filter_map(read).collect();
    inputs.sort();
    inputs
}
