//! Folders of packages: the store of a person, and the stick that goes from hand to hand.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tunebox_foundation::explain::Explain;
use tunebox_package::error::Reason;
use tunebox_package::registry::{Location, pull, push};
use tunebox_package::store::Wanted;
use tunebox_package::{Artifact, Error, Store, Stored, section};

use super::{location, lora, registry_with_package, silent, version};

/// The package `lora` of a store, its highest version if none is named.
fn get(store: &Store, version: Option<&str>) -> Result<(Stored, Artifact), Error> {
    store.find(Wanted { name: Some("lora"), version, source: None })
}

#[test]
fn a_package_goes_through_a_folder_as_through_a_registry() {
    let stick = tempfile::tempdir().unwrap();
    let folder = stick.path().display().to_string();
    let pushed = push(&Location::parse(&folder).unwrap(), &lora(), &mut silent).unwrap();
    push(&Location::parse(&folder).unwrap(), &version("0.2.0"), &mut silent).unwrap();
    let named = |text: &str| pull(&Location::parse(&format!("{folder}{text}")).unwrap(), &mut silent);
    assert_eq!(named("//lora:0.1.0").unwrap(), (lora(), pushed));
    for newest in ["", "//lora", "//lora:0.2.0"] {
        assert_eq!(named(newest).unwrap().0, version("0.2.0"), "{newest}");
    }
    assert!(matches!(named("//lora:0.3.0"), Err(Error::Explained { reason: Reason::NoPackage, .. })));

    let mut other = lora();
    section::append(&mut other.wasm, "later", b"bytes");
    let error = push(&Location::parse(&folder).unwrap(), &other, &mut silent).unwrap_err();
    assert!(error.to_string().starts_with("there is another package at "), "{error}");
}

#[test]
fn a_path_that_leads_into_a_folder_is_told_with_its_two_slashes() {
    let stick = tempfile::tempdir().unwrap();
    let folder = stick.path().display().to_string();
    push(&Location::parse(&folder).unwrap(), &lora(), &mut silent).unwrap();
    let failed = |text: &str| pull(&Location::parse(&format!("{folder}{text}")).unwrap(), &mut silent).unwrap_err();
    let error = failed("/lora:0.1.0");
    assert!(error.to_string().ends_with("is no folder of packages"), "{error}");
    assert_eq!(error.hint().unwrap(), format!("`tunebox pull {folder}//lora:0.1.0`"));
    assert_eq!(failed("//lorra:0.1.0").hint().unwrap(), "did you mean `lora`?");
    std::fs::write(stick.path().join("lora.wasm"), lora().wasm).unwrap();
    assert!(failed("/lora.wasm").to_string().ends_with("is a file, not a folder of packages"));
    assert!(failed("/nothing/lora").to_string().ends_with("holds no packages"));
}

#[test]
fn a_layout_that_another_tool_wrote_is_a_folder_of_packages() {
    let stick = tempfile::tempdir().unwrap();
    let folder = stick.path().display().to_string();
    push(&Location::parse(&folder).unwrap(), &lora(), &mut silent).unwrap();
    // As `skopeo` and `oras` write it: no word of ours in the index, and a container image beside the package.
    let index = stick.path().join("index.json");
    let mut document: serde_json::Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
    document["manifests"][0]["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": "0.1.0" });
    let image = serde_json::json!({ "mediaType": "application/vnd.oci.image.index.v1+json", "size": 2,
        "digest": format!("sha256:{}", "0".repeat(64)), "platform": { "os": "linux", "architecture": "amd64" } });
    document["manifests"].as_array_mut().unwrap().push(image.clone());
    std::fs::write(&index, document.to_string()).unwrap();
    assert_eq!(pull(&Location::parse(&folder).unwrap(), &mut silent).unwrap().0, lora());

    push(&Location::parse(&folder).unwrap(), &version("0.2.0"), &mut silent).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
    assert!(document["manifests"].as_array().unwrap().contains(&image), "{document}");
    assert_eq!(pull(&Location::parse(&format!("{folder}//lora:0.1.0")).unwrap(), &mut silent).unwrap().0, lora());
}

#[test]
fn packages_put_at_the_same_time_are_all_there() {
    let home = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let home = home.path();
            scope.spawn(move || {
                let package = version(&format!("0.{writer}.0"));
                Store::open(home).unwrap().put(&package, "registry.example/me/lora").unwrap();
            });
        }
    });
    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.list().unwrap().len(), 8);
    for writer in 0..8 {
        let number = format!("0.{writer}.0");
        assert_eq!(get(&store, Some(&number)).unwrap().1, version(&number));
    }
}

/// Where the child of the next test puts packages.
const CHILD: &str = "TUNEBOX_TEST_STORE";

#[test]
fn a_writer_that_is_killed_leaves_the_store_whole() {
    if let Some(home) = std::env::var_os(CHILD) {
        let store = Store::open(Path::new(&home)).unwrap();
        let mut number = 0;
        loop {
            number = (number + 1) % 5;
            let package = version(&format!("0.0.{number}"));
            store.put(&package, "registry.example/me/lora").unwrap();
            store.remove(&store.list().unwrap()[0]).unwrap();
        }
    }
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.put(&version("1.0.0"), "registry.example/me/other").unwrap();
    let written = || {
        let mut list = store.list().unwrap();
        list.retain(|stored| stored.version.starts_with("0.0."));
        list
    };
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "registry::stores::a_writer_that_is_killed_leaves_the_store_whole"])
            .env(CHILD, home.path());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // From its first package on, at various moments.
        let late = Instant::now() + Duration::from_secs(60);
        while written().is_empty() {
            assert!(Instant::now() < late, "the writer does not write");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(7 * round));
        assert!(child.try_wait().unwrap().is_none(), "the writer ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        for stored in store.list().unwrap() {
            get(&store, Some(&stored.version)).unwrap();
        }
        written().iter().for_each(|stored| store.remove(stored).unwrap());
        store.put(&version("2.0.0"), "registry.example/me/lora").unwrap();
        assert_eq!(get(&store, Some("2.0.0")).unwrap().1, version("2.0.0"));
    }
    let leftover =
        |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().starts_with('.');
    assert!(!home.path().join("store/blobs/sha256").read_dir().unwrap().any(leftover));
}

#[test]
fn a_package_in_the_store_that_changed_is_pulled_again() {
    let (registry, home) = (registry_with_package(|_| None), tempfile::tempdir().unwrap());
    let (store, place) = (Store::open(home.path()).unwrap(), location(&registry.host()));
    let fetch = || store.put(&pull(&place, &mut silent).unwrap().0, &place.source()).unwrap();
    let path = home.path().join("store/blobs/sha256").join(fetch().digest);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "something else").unwrap();
    let error = get(&store, None).unwrap_err();
    assert_eq!(error.to_string(), "the package is not what was kept");
    fetch();
    assert_eq!(get(&store, None).unwrap().1, lora());
}
