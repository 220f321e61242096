//! Pairs that must not drift apart: the crate graph and its picture, the contract and its page,
//! the commands and theirs, the README and the method it shows.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "drift/code.rs"]
mod code;
#[path = "drift/contract.rs"]
mod contract;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/method_table.rs"]
mod method_table;
#[path = "drift/pages.rs"]
mod pages;
#[path = "support/picture.rs"]
mod picture;
#[path = "drift/stubs.rs"]
mod stubs;

use golden::root;

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
