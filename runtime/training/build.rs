//! Puts the files of the `sample` folder into the program.

#[path = "../package/build/embed.rs"]
mod embed;

use std::path::PathBuf;
use std::{env, fs, io};

/// Writes `sample.rs` into `OUT_DIR`: a list of (path, bytes) of every file of the `sample` folder, sorted by path.
fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("sample");
    // The whole path: a copy of the repository elsewhere that shares the target folder has other ones in its list.
    println!("cargo::rerun-if-changed={}", root.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("sample.rs"), embed::embedded(&embed::below(&root, "")?))
}
