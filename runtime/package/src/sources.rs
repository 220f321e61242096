//! The SDK that is embedded in this program.
//!
//! A method's `Cargo.toml` takes the SDK from the path `.tunebox/sdk/rust`, and the program that builds the method
//! writes its own SDK there. A crate of that name in a registry is never used. The path lies *below the root of the
//! method's workspace*, because cargo mixes a crate's path, without that root, into the names of its functions. With an
//! SDK that all folders share, a path of this machine would remain, and the same source would give other bytes on
//! another machine.

mod standalone;
mod warnings;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use toml::{Table, Value};

use crate::{Error, files};
pub use warnings::{prints, undeclared};

/// The crate that methods depend on.
pub const CRATE: &str = "tunebox";

/// The folder into which builds write the SDK, below the root of a method's workspace.
pub const FOLDER: &str = ".tunebox";

/// The path of the SDK's crate in [`FOLDER`].
pub(crate) const SDK_PATH: &str = "sdk/rust";

/// The contents of files by their paths.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Every file of the SDK, unaltered, and the repository's `Cargo.toml`, as (path in the repository, contents). Written
/// by the build script.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// Returns the files of the SDK by their paths in [`FOLDER`]. Their `Cargo.toml` files are rewritten to need no
/// workspace.
pub fn files() -> &'static Files {
    static STANDALONE: LazyLock<Files> = LazyLock::new(|| {
        let standalone = |(name, bytes): &(&str, &[u8])| {
            let manifest = |folder| standalone::standalone(&String::from_utf8_lossy(bytes), &workspace_table(), folder);
            let manifest = name.strip_suffix("/Cargo.toml").map(manifest);
            ((*name).to_owned(), manifest.map_or_else(|| bytes.to_vec(), String::into_bytes))
        };
        FILES.iter().filter(|(name, _)| *name != "Cargo.toml").map(standalone).collect()
    });
    &STANDALONE
}

/// Returns the table `[workspace]` of the repository's `Cargo.toml`.
fn workspace_table() -> Table {
    let text = FILES.iter().find(|(name, _)| *name == "Cargo.toml").map_or(&b""[..], |(_, bytes)| *bytes);
    let manifest: Table = String::from_utf8_lossy(text).parse().unwrap_or_default();
    manifest.get("workspace").and_then(Value::as_table).cloned().unwrap_or_default()
}

/// Returns the entry of the dependency `name` in the repository's `[workspace.dependencies]`, as a table for another
/// `Cargo.toml`; a `path` gets `../` in front. `None` if the workspace does not declare the dependency.
pub(crate) fn dependency(name: &str) -> Option<Value> {
    let mut entry = Value::Table(Table::from_iter([("workspace".to_owned(), Value::Boolean(true))]));
    standalone::resolve_dependency(name, &mut entry, &workspace_table(), "..");
    Some(entry).filter(|entry| entry.get("workspace").is_none())
}

/// Whether [`FOLDER`] below `root` has every one of these files, unaltered. Other files there do not count.
pub(crate) fn has_files(root: &Path, files: &Files) -> bool {
    let folder = root.join(FOLDER);
    files.iter().all(|(name, bytes)| files::has_content(&folder.join(name), bytes))
}

/// Writes files to [`FOLDER`] below `root`. Does nothing if all of them are there unaltered.
///
/// Writes to a temporary folder in `root`, then moves each entry at the top of the files into [`FOLDER`], in the place
/// of an old entry of that name. Other entries there stay; if [`FOLDER`] is a link, it becomes a real folder first.
/// Errors: a folder that cannot be written.
pub(crate) fn write_files(root: &Path, files: &Files) -> Result<(), Error> {
    if has_files(root, files) {
        return Ok(());
    }
    let folder = &root.join(FOLDER);
    let draft = tempfile::Builder::new().prefix(".tunebox-").tempdir_in(root);
    let draft = draft.map_err(Error::file("written to", root))?;
    let (new, old) = (draft.path().join("new"), draft.path().join("old"));
    for (name, bytes) in files {
        files::write(&new.join(name), bytes)?;
    }
    fs::create_dir(&old).map_err(Error::file("written to", root))?;
    if folder.is_symlink() {
        fs::rename(folder, old.join("link")).map_err(Error::file("replaced", folder))?;
    }
    files::create_folder(folder)?;
    // Other files there are the user's.
    for entry in new.read_dir().map_err(Error::file("read", &new))? {
        let part = entry.map_err(Error::file("read", &new))?.file_name();
        let (ours, place) = (new.join(&part), folder.join(&part));
        if place.symlink_metadata().is_ok() {
            fs::rename(&place, old.join(&part)).map_err(Error::file("replaced", &place))?;
        }
        fs::rename(&ours, &place).map_err(Error::file("written", &place))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_of_the_sdk_stand_alone_and_their_paths_lead_into_the_folder() {
        let (mut manifests, mut paths) = (0, 0);
        for (name, bytes) in files().iter().filter(|(name, _)| name.ends_with("Cargo.toml")) {
            let text = std::str::from_utf8(bytes).unwrap();
            let manifest: Table = text.parse().unwrap();
            assert!(!text.contains("workspace"), "{name} leans on a workspace:\n{text}");
            assert!(manifest["package"]["version"].is_str(), "{name}");
            manifests += 1;
            let dependencies = manifest["dependencies"].as_table().unwrap().values();
            for path in dependencies.filter_map(|entry| entry.get("path").and_then(Value::as_str)) {
                let found = path.strip_prefix("../../").unwrap_or_else(|| panic!("{name}: {path}"));
                assert!(files().contains_key(&format!("{found}/Cargo.toml")), "{name}: {path}");
                paths += 1;
            }
        }
        assert!(manifests >= 2 && paths > 0, "the SDK depends on its own derive by path");
        assert!(files().contains_key("sdk/rust/src/lib.rs"));
        assert!(files().contains_key("sdk/rust/wit/world.wit"));
    }

    #[test]
    fn the_sdk_is_written_once_and_repaired_when_it_was_damaged() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(FOLDER).join(SDK_PATH).join("src/lib.rs");
        write_files(root.path(), files()).unwrap();
        let written = || fs::metadata(&file).unwrap().modified().unwrap();
        let first = written();
        write_files(root.path(), files()).unwrap();
        assert_eq!(written(), first, "what is there already is left alone");

        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        write_files(root.path(), files()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), files()["sdk/rust/src/lib.rs"], "what never ends is replaced");

        let other = root.path().join(FOLDER).join("store");
        fs::create_dir(&other).unwrap();
        fs::write(&file, "damaged").unwrap();
        write_files(root.path(), files()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), files()["sdk/rust/src/lib.rs"]);
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [FOLDER]);
        assert!(other.is_dir(), "what else lies there stays");
    }
}
