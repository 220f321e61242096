//! Pairs that must not drift apart: the crate graph and its picture,
//! the commands and theirs, the README and the method it shows.

mod code;
mod pages;

use crate::support::golden::root;

/// The folders in a folder of the repository, by name.
fn folders(parent: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(parent)).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}
