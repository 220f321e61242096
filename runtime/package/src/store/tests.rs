use std::fs;

use tunebox_foundation::explain::{Exit, Explain};

use super::*;
use crate::{builtin, section};

/// A built-in method as a package of another version, and so of other bytes.
fn package(name: &str, version: &str) -> Artifact {
    let bytes = builtin::find(name).unwrap().bytes;
    let text = section::find(bytes, crate::manifest::SECTION).unwrap().unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(text).unwrap();
    manifest["version"] = version.into();
    let mut wasm = section::without(bytes, crate::manifest::SECTION).unwrap();
    section::append(&mut wasm, crate::manifest::SECTION, manifest.to_string().as_bytes());
    Artifact { wasm, signature: None }
}

fn store() -> (tempfile::TempDir, Store) {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    (home, store)
}

fn get(store: &Store, name: &str, version: Option<&str>) -> Result<(Stored, Artifact), Error> {
    store.find(Wanted { name: Some(name), version, source: None })
}

fn is_not_layout(error: &Error) -> bool {
    error.to_string().ends_with("holds no packages")
}

fn blobs(home: &Path) -> usize {
    fs::read_dir(home.join("store/blobs/sha256")).unwrap().count()
}

#[test]
fn what_was_put_comes_back_and_the_highest_version_is_the_one_without_a_number() {
    let (_home, store) = store();
    for version in ["0.9.0", "0.10.0"] {
        store.put(&package("lora", version), "registry.example/me/lora").unwrap();
    }
    let (stored, artifact) = get(&store, "lora", None).unwrap();
    assert_eq!((stored.version.as_str(), &artifact), ("0.10.0", &package("lora", "0.10.0")));
    assert_eq!(stored.digest, digest::sha256(&artifact.wasm));
    assert_eq!(get(&store, "lora", Some("0.9.0")).unwrap().1, package("lora", "0.9.0"));
    assert_eq!(store.list().unwrap().len(), 2);
}

#[test]
fn two_sources_of_one_name_are_told_apart_only_by_their_source() {
    let (_home, store) = store();
    let (here, there) = ("registry.example/me/lora", "registry.example/you/lora");
    store.put(&package("lora", "0.1.0"), here).unwrap();
    store.put(&package("lora", "0.2.0"), there).unwrap();
    let error = get(&store, "lora", None).unwrap_err();
    let why = error.why().unwrap();
    assert!(why.contains(here) && why.contains(there), "{why}");
    assert_eq!(get(&store, "lora", Some("0.1.0")).unwrap().0.source, here);
    let wanted = Wanted { name: Some("lora"), source: Some(there), ..Wanted::default() };
    assert_eq!(store.find(wanted).unwrap().0.version, "0.2.0");
}

#[test]
fn one_package_from_two_paths_is_one_package() {
    let (_home, store) = store();
    for source in ["/media/stick", "/mnt/stick"] {
        store.put(&package("lora", "0.1.0"), source).unwrap();
    }
    assert_eq!(get(&store, "lora", None).unwrap().1, package("lora", "0.1.0"));
    store.put(&package("lora", "0.1.0"), "registry.example/me/lora").unwrap();
    let why = get(&store, "lora", None).unwrap_err().why().unwrap();
    assert_eq!(why.matches("stick").count(), 2, "a registry's is another one, and all are listed: {why}");

    let stored = |source: &str, digest: &str, signer: Option<&str>| Stored {
        name: "lora".into(),
        version: "0.1.0".into(),
        source: source.into(),
        digest: digest.into(),
        manifest_digest: String::new(),
        size: 1,
        signer: signer.map(str::to_owned),
    };
    let chosen = |other: Stored| {
        let known = [stored("/a", "one", None), other];
        choice::choose_package(&known, Wanted { name: Some("lora"), ..Wanted::default() }, None).map(|one| one.source)
    };
    assert_eq!(chosen(stored("/b", "one", Some("RW"))).unwrap(), "/b", "the signed one");
    assert!(chosen(stored("/b", "other", None)).is_err());
}

#[test]
fn an_edited_torn_or_missing_file_is_refused_and_put_right_by_pulling_again() {
    let (home, store) = store();
    let artifact = package("lora", "0.1.0");
    let stored = store.put(&artifact, "registry.example/me/lora").unwrap();
    let path = home.path().join("store/blobs/sha256").join(&stored.digest);
    let mut edited = artifact.wasm.clone();
    edited[100] ^= 1;
    let torn = &artifact.wasm[..artifact.wasm.len() / 2];
    for damage in [Some(edited.as_slice()), Some(torn), None] {
        fs::remove_file(&path).unwrap();
        damage.iter().for_each(|bytes| fs::write(&path, bytes).unwrap());
        let error = get(&store, "lora", None).unwrap_err();
        assert!(error.to_string().starts_with("the package is not what "), "{error}");
        assert_eq!(error.exit(), Exit::Trust);
        assert!(error.hint().unwrap().contains("`tunebox pull`"), "{:?}", error.hint());
        store.put(&artifact, "registry.example/me/lora").unwrap();
        assert_eq!(get(&store, "lora", None).unwrap().1, artifact);
    }
}

#[test]
fn an_index_that_calls_a_package_by_another_name_is_found_out() {
    let (home, store) = store();
    store.put(&package("lora", "0.1.0"), "").unwrap();
    let index = home.path().join("store/index.json");
    let text = fs::read_to_string(&index).unwrap().replace("\"0.1.0\"", "\"0.7.0\"");
    fs::write(&index, text).unwrap();
    let error = get(&store, "lora", Some("0.7.0")).unwrap_err();
    assert!(error.to_string().starts_with("the index says "), "{error}");
    assert_eq!(error.exit(), Exit::Trust);
}

#[test]
fn removing_takes_only_what_no_other_package_needs() {
    let (home, store) = store();
    let (first, second) = ("registry.example/me/lora", "registry.example/you/lora");
    let stored = store.put(&package("lora", "0.1.0"), first).unwrap();
    store.put(&package("lora", "0.1.0"), second).unwrap();
    assert_eq!(blobs(home.path()), 3);
    store.remove(&stored).unwrap();
    assert_eq!((blobs(home.path()), get(&store, "lora", None).unwrap().0.source.as_str()), (3, second));
    assert!(store.remove(&stored).is_err());
    store.remove(&store.list().unwrap()[0]).unwrap();
    assert_eq!((blobs(home.path()), store.list().unwrap()), (0, vec![]));
}

#[test]
fn a_package_of_the_same_version_and_source_replaces_the_former_one() {
    let (home, store) = store();
    let former = package("lora", "0.1.0");
    let mut other = former.clone();
    section::append(&mut other.wasm, "later", b"bytes");
    store.put(&former, "registry.example/me/lora").unwrap();
    store.put(&other, "registry.example/me/lora").unwrap();
    assert_eq!((store.list().unwrap().len(), blobs(home.path())), (1, 3));
    assert_eq!(get(&store, "lora", None).unwrap().1, other);
}

#[test]
fn a_name_that_is_not_there_is_answered_with_the_nearest() {
    let (_home, store) = store();
    store.put(&package("lora", "0.1.0"), "").unwrap();
    assert_eq!(get(&store, "lorra", None).unwrap_err().hint().unwrap(), "did you mean `lora`?");
    let error = get(&store, "lora", Some("0.2.0")).unwrap_err();
    assert_eq!(error.to_string(), "there is no package `lora@0.2.0` here");
    assert_eq!(error.why().unwrap(), "here are: lora@0.1.0");
}

#[test]
fn a_folder_of_other_things_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    assert!(is_not_layout(&Store::folder(folder.path()).unwrap_err()));
    fs::write(folder.path().join("index.json"), "{}").unwrap();
    assert!(is_not_layout(&Store::make_folder(folder.path()).unwrap_err()));
    assert_eq!(fs::read(folder.path().join("index.json")).unwrap(), b"{}");
}

#[test]
fn the_store_is_this_users_alone_and_its_files_are_read_only() {
    use std::os::unix::fs::PermissionsExt;
    let (home, store) = store();
    let stored = store.put(&package("lora", "0.1.0"), "").unwrap();
    let mode = |path: &str| fs::metadata(home.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("store"), 0o700);
    assert_eq!(mode(&format!("store/blobs/sha256/{}", stored.digest)), 0o444);
}

#[test]
fn control_characters_in_an_index_are_not_shown() {
    let (home, store) = store();
    store.put(&package("lora", "0.1.0"), "registry.example/me/lora").unwrap();
    let index = home.path().join("store/index.json");
    let text = fs::read_to_string(&index).unwrap().replace("registry.example", "\\u001b[2J");
    fs::write(&index, text).unwrap();
    let stored = &store.list().unwrap()[0];
    assert_eq!((stored.name.as_str(), stored.source.as_str()), ("lora", ""));
}

/// The message of an error, with its reason and its hint.
fn told(error: Error) -> [String; 3] {
    [error.to_string(), error.why().unwrap_or_default(), error.hint().unwrap_or_default()]
}

#[test]
fn a_folder_of_others_says_what_is_in_it_and_how_to_take_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, path) = (Store::make_folder(folder.path()).unwrap(), folder.path().display());
    for (name, version) in [("lora", "0.1.0"), ("lora", "0.2.0"), ("dpo", "0.1.0")] {
        store.put(&package(name, version), "").unwrap();
    }
    let hint = format!("name one of them, as in `tunebox pull {path}//lora:0.2.0`");
    for (name, version, what, why) in [
        (None, None, "there are several packages in", "it could be dpo:0.1.0 or lora:0.2.0"),
        (Some("calm"), None, "there is no package `calm` in", "there are: dpo:0.1.0, lora:0.2.0"),
        (Some("lora"), Some("0.3.0"), "there is no package `lora@0.3.0` in", "there are: lora:0.1.0, lora:0.2.0"),
    ] {
        let error = store.find(Wanted { name, version, source: None }).unwrap_err();
        assert_eq!(told(error), [format!("{what} `{path}`"), why.to_owned(), hint.clone()]);
    }
}

#[test]
fn a_folder_of_others_that_changed_is_not_told_to_be_pulled_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::make_folder(folder.path()).unwrap();
    let stored = store.put(&package("lora", "0.1.0"), "").unwrap();
    let path = folder.path().join("blobs/sha256").join(&stored.digest);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "something else").unwrap();
    let error = get(&store, "lora", None).unwrap_err();
    assert_eq!(error.exit(), Exit::Trust);
    assert_eq!(error.explanation().kept.unwrap(), "nothing was installed and nothing ran");
    let [what, _, hint] = told(error);
    assert_eq!(what, "the package is not what its folder names");
    assert!(hint.contains("get the folder again"), "{hint}");
}

#[test]
fn a_folder_that_would_take_long_to_look_through_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::make_folder(folder.path()).unwrap();
    store.put(&package("lora", "0.1.0"), "").unwrap();
    let index = folder.path().join("index.json");
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    document["manifests"][0]["annotations"] = serde_json::Value::Null;
    fs::write(&index, document.to_string()).unwrap();
    assert_eq!(store.list_packages(1 << 20).unwrap().len(), 1);
    let [_, why, _] = told(store.list_packages(10_000).unwrap_err());
    assert!(why.contains("more bytes than are read"), "{why}");

    let one = document["manifests"][0].clone();
    document["manifests"] = vec![one; 10_001].into();
    fs::write(&index, document.to_string()).unwrap();
    let [_, why, _] = told(store.list().unwrap_err());
    assert!(why.contains("10001 entries"), "{why}");
}

#[test]
fn a_lock_that_is_held_stops_writers_after_a_while_and_no_readers() {
    let (home, mut store) = store();
    store.put(&package("lora", "0.1.0"), "").unwrap();
    store.layout.timeout = std::time::Duration::from_millis(20);
    let lock = home.path().join("store/index.lock");
    let held = fs::File::options().write(true).open(&lock).unwrap();
    held.lock().unwrap();
    let error = store.put(&package("lora", "0.2.0"), "").unwrap_err();
    assert!(matches!(&error, Error::Held { path } if *path == lock), "{error}");
    assert!(error.hint().unwrap().contains("`lsof`"), "{error}");
    assert_eq!((store.list().unwrap().len(), get(&store, "lora", None).unwrap().1), (1, package("lora", "0.1.0")));
    drop(held);
    assert!(store.put(&package("lora", "0.2.0"), "").is_ok());
}

#[test]
fn what_is_no_file_in_the_place_of_the_lock_is_neither_waited_for_nor_followed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::make_folder(folder.path()).unwrap();
    let (lock, elsewhere) = (folder.path().join("index.lock"), folder.path().join("elsewhere"));
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
    assert!(store.put(&package("lora", "0.1.0"), "").is_err());
    assert!(!elsewhere.exists());

    fs::remove_file(&lock).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    let (said, listed) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.send(store.list().is_ok()));
    assert_eq!(listed.recv_timeout(std::time::Duration::from_secs(5)), Ok(true));
}
