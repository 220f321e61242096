//! Writes the SDK of this program into a method's workspace, if the method's `Cargo.toml` takes the SDK from there.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use semver::{Version, VersionReq};

use super::failure::build_error_because;
use super::{Watch, wait_for_build};
use crate::constants::VERSION;
use crate::sources::{self, Files};
use crate::{Error, files};

/// Writes this program's SDK below the workspace's root, if `[dependencies]` of the method's `Cargo.toml` takes
/// `tunebox` from `.tunebox/sdk/rust` there. Does nothing if it takes the SDK from elsewhere, if `Cargo.toml` cannot be
/// read or parsed, or if the same files are there. Holds the lock of the root's `Cargo.toml` meanwhile, or of the
/// method's if the root has none; `watch` gets an event if another build holds it. Errors: the dependency has a
/// `version` that this program's version does not match (one that cannot be parsed is no error), a folder that cannot
/// be written, or a lock that is not released within 15 minutes.
pub(super) fn write_sdk(folder: &Path, watch: &mut Watch<'_>) -> Result<(), Error> {
    let manifest = files::read_text(&folder.join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = manifest.parse().unwrap_or_default();
    let sdk = manifest.get("dependencies").and_then(|dependencies| dependencies.get(sources::CRATE)?.as_table());
    let word = |key: &str| sdk.and_then(|sdk| sdk.get(key)?.as_str());
    let Some(root) = word("path").and_then(|path| workspace_of(folder, path)) else { return Ok(()) };
    let wanted = word("version").unwrap_or("*");
    let carried = Version::parse(VERSION).ok();
    let fits = VersionReq::parse(wanted).ok().zip(carried).is_none_or(|(wanted, carried)| wanted.matches(&carried));
    if !fits {
        let set = format!("set `version = \"{VERSION}\"` for `tunebox` in its `Cargo.toml`");
        return Err(build_error_because(
            format!("`{}` asks for version `{wanted}` of the SDK", folder.display()),
            format!("this program carries {VERSION}, which is another"),
            format!("{set}, or build it with the tunebox of that version"),
        ));
    }
    // A file that is there in any case: a temporary file would be left in the user's folder.
    let manifest = |folder: &Path| folder.join("Cargo.toml");
    let lock = Some(manifest(&root)).filter(|path| path.is_file()).unwrap_or_else(|| manifest(folder));
    write_locked(&root, sources::files(), &lock, watch)
}

/// Writes files below [`sources::FOLDER`] in `root`. Does nothing if the same files are there. Holds the lock of the
/// existing file `lock` meanwhile; `watch` gets an event if another build holds it. Errors: a folder that cannot be
/// written, no file `lock`, or a lock that is not released within 15 minutes.
pub(super) fn write_locked(root: &Path, files: &Files, lock: &Path, watch: &mut Watch<'_>) -> Result<(), Error> {
    if sources::has_files(root, files) {
        return Ok(());
    }
    let file = File::open(lock).map_err(Error::file("opened", lock))?;
    let _turn = wait_for_build(file, lock, watch)?;
    sources::write_files(root, files)
}

/// Returns the workspace whose `.tunebox/sdk/rust` a dependency path such as `../../.tunebox/sdk/rust` names: `folder`
/// joined with what stands before. `None` if the path does not end so, or has anything but `.` and `..` before.
fn workspace_of(folder: &Path, path: &str) -> Option<PathBuf> {
    let sdk = Path::new(sources::FOLDER).join(sources::SDK_PATH);
    let above =
        Path::new(path).ends_with(&sdk).then(|| Path::new(path).ancestors().nth(sdk.components().count()))??;
    let is_above = above.components().all(|part| matches!(part, Component::CurDir | Component::ParentDir));
    is_above.then(|| folder.join(above))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_that_begin_at_once_put_the_sdk_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = "[package]\nname = \"calm\"\n[dependencies]\ntunebox = { path = \".tunebox/sdk/rust\" }\n";
        std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let begin = || {
                start.wait();
                write_sdk(folder.path(), &mut |_| {})
            };
            let begun: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            for thread in begun {
                thread.join().unwrap().unwrap();
            }
        });
        assert!(sources::has_files(folder.path(), sources::files()));
        assert_eq!(std::fs::read_to_string(folder.path().join("Cargo.toml")).unwrap(), manifest);
    }

    #[test]
    fn the_sdk_is_put_below_the_folder_that_the_manifest_means_and_nowhere_else() {
        let method = Path::new("/methods/calm");
        let root = |path: &str| workspace_of(method, path);
        assert_eq!(root(".tunebox/sdk/rust"), Some(method.join("")));
        assert_eq!(root("./.tunebox/sdk/rust/"), Some(method.join(".")));
        assert_eq!(root("../../.tunebox/sdk/rust"), Some(method.join("../..")));
        for elsewhere in [
            "../../sdk/rust",
            "/.tunebox/sdk/rust",
            "other/.tunebox/sdk/rust",
            "x.tunebox/sdk/rust",
            "..tunebox/sdk/rust",
        ] {
            assert_eq!(root(elsewhere), None, "{elsewhere}");
        }
    }
}
