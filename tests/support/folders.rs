//! Folders outside of the repository: copies of its own, and methods that are built against its SDK.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Copies a folder with those in it, without what builds and runs of a reader leave. Links are followed: the SDK has one
/// to the contract.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && ![".tunebox", "__pycache__", "runs", "target"].contains(&name) {
            copy(&path, &to.join(name));
        } else if path.is_file() && !name.ends_with(".wasm") {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// A folder with a method's source, locked to the repository's versions. Cargo tells two folders that build into one by
/// their names.
pub(crate) fn method_folder(name: &str, source: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sdk = Path::new(ROOT).join("sdk/rust").canonicalize().unwrap();
    let manifest = format!(
        "[package]\nname = {name:?}\nversion = '0.1.0'\nedition = '2024'\ndescription = 'A method'\n\n\
         [lib]\ncrate-type = ['cdylib']\n\n[dependencies]\ntunebox = {{ path = {sdk:?} }}\n\n[workspace]\n"
    );
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.path().join("src/lib.rs"), source).unwrap();
    lock(folder.path());
    folder
}

/// Locks a workspace to the repository's versions; packages that the smaller one does not have go out of the file.
pub(crate) fn lock(workspace: &Path) {
    fs::copy(Path::new(ROOT).join("Cargo.lock"), workspace.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(tunebox_package::toolchain::find().unwrap().cargo);
    assert!(cargo.args(["update", "--workspace", "--quiet"]).current_dir(workspace).status().unwrap().success());
}
