//! Released versions of the contract stay as they are, and the contract keeps every one of them.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tunebox_package::digest::sha256;
use wit_component::semver_check;
use wit_parser::{Resolve, UnresolvedPackageGroup};

use crate::support::golden::root;

/// Every released version, and what `sha256sum *.wit | sha256sum` says in its folder. None is released yet.
const RELEASED: [(&str, &str); 0] = [];

/// What to do about a promise that was broken.
const MEND: &str = "methods that were built for it would not run any more: put it back as it was and give the new form a \
     name of its own, or begin a new track by the second number of the version in `wit/world.wit`";

/// What to do about something new in a version that is out already.
const RAISE: &str = "what is built for it now would not run where that version is kept: raise the third number of the \
     version in `wit/world.wit` and of `CONTRACT` in `runtime/foundation`";

/// The files of a folder of the contract, by name.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let wit = entries.filter(|path| path.extension().is_some_and(|end| end == "wit"));
    let named = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())
    };
    let mut files: Vec<_> = wit.map(named).collect();
    files.sort();
    files
}

/// As the shell has it: a digest of the list of digests.
fn digest(folder: &Path) -> String {
    let line = |(name, text): &(String, String)| format!("{}  {name}\n", sha256(text.as_bytes()));
    sha256(files(folder).iter().map(line).collect::<String>().as_bytes())
}

/// The version that the files of a folder state.
pub(super) fn version(folder: &Path) -> String {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(folder).unwrap();
    resolve.packages[package].name.version.as_ref().unwrap().to_string()
}

/// Whether all that was built for `old` runs where `new` is kept; else the first difference.
fn keeps(new: &Path, old: &Path) -> Result<(), String> {
    let mut group = UnresolvedPackageGroup::parse_dir(old).unwrap();
    // Two packages of one name and version cannot stand beside each other; the check leaves versions out.
    group.main.name.version.as_mut().unwrap().patch += 1_000;
    let mut resolve = Resolve::default();
    let old = resolve.push_group(group).unwrap();
    let (new, _) = resolve.push_dir(new).unwrap();
    for name in ["method", "verifier"] {
        let [was, is] = [old, new].map(|package| resolve.select_world(&[package], Some(name)).unwrap());
        semver_check(resolve.clone(), was, is).map_err(|error| format!("world `{name}`: {error:#}"))?;
    }
    Ok(())
}

#[test]
fn a_released_version_is_never_edited() {
    let folders = fs::read_dir(root().join("wit/released")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<(String, String)> = folders
        .filter(|path| path.is_dir())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), digest(&path)))
        .collect();
    found.sort();
    let listed: Vec<_> = RELEASED.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
    assert_eq!(found, listed, "what is released is frozen: change `wit/` itself, and release that as a folder more");
    for (name, _) in RELEASED {
        assert_eq!(version(&root().join("wit/released").join(name)), name);
    }
}

#[test]
fn the_contract_keeps_every_released_version() {
    for (name, _) in RELEASED {
        let kept = keeps(&root().join("wit"), &root().join("wit/released").join(name));
        assert!(kept.is_ok(), "`wit/` does not keep {name}, {}\n{MEND}", kept.unwrap_err());
    }
}

#[test]
fn a_released_version_gets_nothing_new() {
    let version = version(&root().join("wit"));
    if RELEASED.iter().any(|(name, _)| *name == version) {
        let more = keeps(&root().join("wit/released").join(&version), &root().join("wit"));
        assert!(more.is_ok(), "`wit/` has more than {version}, {}\n{RAISE}", more.unwrap_err());
    }
}

#[test]
fn a_folder_that_was_edited_has_another_digest() {
    let negate = "    negate: func() -> result<tensor, error>;\n";
    let edited = changed("tensor.wit", negate, &format!("{negate} "));
    assert_eq!(digest(test_track().path()), digest(&root().join("wit")));
    assert_ne!(digest(edited.path()), digest(&root().join("wit")));
}

#[test]
fn the_program_keeps_the_version_that_the_contract_states() {
    let stated = version(&root().join("wit"));
    assert_eq!(tunebox_foundation::contract::CONTRACT.to_string(), stated);
}

/// The contract as it stands, in a folder of its own: a version that is released, as far as the checks can tell.
fn test_track() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files(&root().join("wit")) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// The contract in a folder of its own, with a text in a file replaced.
pub(super) fn changed(file: &str, from: &str, to: &str) -> TempDir {
    let folder = test_track();
    let path = folder.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "`{from}` in `{file}`");
    fs::write(path, text.replace(from, to)).unwrap();
    folder
}

#[test]
fn what_would_end_an_older_method_is_a_broken_promise_and_what_is_added_is_not() {
    let negate = "    negate: func() -> result<tensor, error>;\n";
    let finish = "  finish: func() -> result<_, string>;\n";
    let pause = format!("{finish}\n  /// Later.\n  pause: func();\n");
    let broken = [
        ("tensor.wit", negate, "", "negate"),
        ("tensor.wit", negate, "    negate: func() -> tensor;\n", "negate"),
        ("tensor.wit", "add-scalar: func(value: f64)", "add-scalar: func(value: f32)", "add-scalar"),
        ("types.wit", "%f64 }", "%f64, later }", ""),
        // The host would call what an old component does not have.
        ("world.wit", finish, pause.as_str(), "pause"),
    ];
    let released = test_track();
    for (file, from, to, named) in broken {
        let difference = keeps(changed(file, from, to).path(), released.path()).unwrap_err();
        assert!(difference.contains(named), "{file}: {difference}");
    }
    let more = changed("tensor.wit", negate, &format!("{negate}    /// Later.\n    whisper: func() -> u32;\n"));
    assert_eq!(keeps(more.path(), released.path()), Ok(()));
    assert!(keeps(released.path(), more.path()).unwrap_err().contains("whisper"));
}
