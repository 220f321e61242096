//! Packages between machines: what is pushed comes back with the same bytes, by a registry or by a folder, and no
//! failure on the way leaves anything behind.

mod failures;
mod logins;
mod others;
mod stores;

use std::path::Path;

use crate::support::fake_registry::{Answer, Asked, FakeRegistry};
use tunebox_foundation::explain::Explain;
use tunebox_package::Error;
use tunebox_package::artifact::MANIFEST;
use tunebox_package::registry::{Location, pull, push};
use tunebox_package::signature::{SecretKey, sign};
use tunebox_package::statement::Statement;
use tunebox_package::{Artifact, Store, builtin, manifest, section};

/// A built-in method as a package of another version, and so of other bytes.
fn version(version: &str) -> Artifact {
    let bytes = builtin::find("lora").unwrap().bytes;
    let text = section::find(bytes, manifest::SECTION).unwrap().unwrap();
    let mut about: serde_json::Value = serde_json::from_slice(text).unwrap();
    about["version"] = version.into();
    let mut wasm = section::without(bytes, manifest::SECTION).unwrap();
    section::append(&mut wasm, manifest::SECTION, about.to_string().as_bytes());
    Artifact { wasm, signature: None }
}

fn lora() -> Artifact {
    Artifact { signature: Some("untrusted comment: of a test\n".into()), ..version("0.1.0") }
}

fn location(host: &str) -> Location {
    // No login of the person who runs the tests.
    with_logins(host, Path::new("/nonexistent"))
}

/// A package at this host, reached with the logins in `config.json` of a folder.
fn with_logins(host: &str, folder: &Path) -> Location {
    let mut place = Location::parse(&format!("{host}/me/lora:0.1.0")).unwrap();
    place.logins = Some(folder.join("config.json"));
    place
}

/// A registry that holds the package and answers by a rule first.
fn registry_with_package(rule: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) -> FakeRegistry {
    let registry = FakeRegistry::with(rule);
    let documents = lora().manifest().unwrap();
    registry.keep(&lora().wasm);
    registry.keep(&documents.configuration);
    registry.name("me/lora:0.1.0", MANIFEST, &documents.manifest);
    registry
}

/// A registry that holds a tampered manifest.
fn registry_with_altered_manifest(change: impl FnOnce(&mut serde_json::Value)) -> FakeRegistry {
    let registry = registry_with_package(|_| None);
    let mut document = serde_json::from_slice(&lora().manifest().unwrap().manifest).unwrap();
    change(&mut document);
    registry.name("me/lora:0.1.0", MANIFEST, document.to_string().as_bytes());
    registry
}

/// What `tunebox pull` does, and that a failure leaves nothing in the store.
fn failed_pull(place: &Location) -> Error {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let error =
        pull(place, &mut silent).map(|(artifact, _)| store.put(&artifact, &place.source()).unwrap()).unwrap_err();
    assert!(store.list().unwrap().is_empty());
    assert!(!home.path().join("store/blobs").exists());
    assert!(!error.to_string().is_empty() && error.hint().is_some(), "{error:?}");
    error
}

/// Ignores the progress of a transfer.
fn silent(_: &str, _: u64, _: u64) {}

/// Records each report of progress: what is transferred, the bytes done, and all bytes.
fn note(told: &mut Vec<(String, u64, u64)>) -> impl FnMut(&str, u64, u64) {
    |what, done, total| told.push((what.to_owned(), done, total))
}

#[test]
fn what_was_pushed_is_pulled_with_the_same_bytes_and_digest_and_told_on_the_way() {
    let (registry, mut there, mut back) = (FakeRegistry::start(), Vec::new(), Vec::new());
    let pushed = push(&location(&registry.host()), &lora(), &mut note(&mut there)).unwrap();
    let (artifact, pulled) = pull(&location(&registry.host()), &mut note(&mut back)).unwrap();
    assert_eq!((artifact, pulled), (lora(), pushed));
    let size = lora().wasm.len() as u64;
    for told in [there, back] {
        assert!(told.iter().all(|(what, done, total)| what == "lora:0.1.0" && done <= total), "{told:?}");
        assert!(told.is_sorted_by_key(|(_, done, _)| *done), "{told:?}");
        assert_eq!(told.last(), Some(&("lora:0.1.0".to_owned(), size, size)));
    }
}

#[test]
fn a_second_push_sends_no_bytes_again_and_another_package_does_not_take_the_version() {
    let registry = FakeRegistry::start();
    push(&location(&registry.host()), &lora(), &mut silent).unwrap();
    let before = registry.asked().len();
    push(&location(&registry.host()), &lora(), &mut silent).unwrap();
    assert!(!registry.asked()[before..].iter().any(|asked| asked.path.contains("/uploads/")));

    let mut other = lora();
    section::append(&mut other.wasm, "later", b"bytes");
    let error = push(&location(&registry.host()), &other, &mut silent).unwrap_err();
    assert!(error.to_string().starts_with("there is another package at "), "{error}");
    assert_eq!(pull(&location(&registry.host()), &mut silent).unwrap().0, lora());
}

#[test]
fn a_second_push_of_the_same_bytes_may_bring_a_signature_and_takes_none_away() {
    let (registry, stick) = (FakeRegistry::start(), tempfile::tempdir().unwrap());
    let plain = version("0.1.0");
    let statement = Statement::of(&plain.wasm).unwrap();
    let signed = |key: &SecretKey| Artifact { signature: Some(sign(&statement, key).unwrap()), ..plain.clone() };
    let (mine, theirs) = (signed(&key()), signed(&key()));
    for place in [location(&registry.host()), Location::parse(&stick.path().display().to_string()).unwrap()] {
        push(&place, &plain, &mut silent).unwrap();
        push(&place, &mine, &mut silent).unwrap();
        for other in [&plain, &theirs] {
            let error = push(&place, other, &mut silent).unwrap_err();
            assert!(error.to_string().ends_with("has a signature that this one has not"), "{error}");
        }
        push(&place, &mine, &mut silent).unwrap();
        assert_eq!(pull(&place, &mut silent).unwrap().0, mine);
    }
}

/// Another publisher's key.
fn key() -> SecretKey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("me.key");
    SecretKey::generate(&path, None).unwrap();
    SecretKey::read(&path, || None).unwrap()
}

#[test]
fn a_package_does_not_go_where_another_one_belongs() {
    let registry = FakeRegistry::start();
    for (name, version) in [("lorra", "0.1.0"), ("lora", "0.2.0")] {
        let place = Location::parse(&format!("{}/me/{name}:{version}", registry.host())).unwrap();
        let error = push(&place, &lora(), &mut silent).unwrap_err();
        assert!(error.to_string().contains("it cannot go to"), "{error}");
    }
    assert!(registry.asked().is_empty());
}
