use std::fs;
use std::path::Path;

use super::*;
use crate::manifest;
use crate::pack::{is_same_component, pack};
use crate::signature::{SecretKey, Signed, sign};
use crate::statement::Statement;
use crate::statement::tests::package;

/// A built component that holds nothing but its manifest and the record of its build.
fn built() -> Vec<u8> {
    let mut bytes = package("calm", "0.1.0");
    section::append(&mut bytes, "tunebox:build", br#"{"toolchain":"rustc 1.95.0","source":"abc"}"#);
    bytes
}

/// A folder below `place` with a `Cargo.lock` above it, where `calm` uses one of two versions of `one`, and `other` the
/// other.
fn folder(place: &Path) -> std::path::PathBuf {
    let lock = r#"version = 4
        [[package]]
        name = "other"
        version = "1.0.0"
        dependencies = ["one 1.0.0"]
        [[package]]
        name = "calm"
        version = "0.1.0"
        dependencies = ["one 2.0.0", "tunebox"]
        [[package]]
        name = "one"
        version = "1.0.0"
        source = "registry+https://github.com/rust-lang/crates.io-index"
        checksum = "11"
        [[package]]
        name = "one"
        version = "2.0.0"
        source = "registry+https://github.com/rust-lang/crates.io-index"
        checksum = "22"
        [[package]]
        name = "tunebox"
        version = "0.1.0"
        dependencies = ["calm", "forked"]
        [[package]]
        name = "forked"
        version = "3.0.0"
        source = "git+https://example.org/forked?rev=1#abc"
        "#;
    fs::write(place.join("Cargo.lock"), lock).unwrap();
    let folder = place.join("methods/calm");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("Cargo.toml"), "").unwrap();
    folder
}

#[test]
fn a_package_lists_the_crates_that_its_method_reaches_and_how_it_was_built() {
    let place = tempfile::tempdir().unwrap();
    let folder = folder(place.path());
    let attached = attach(&built(), &folder).unwrap();
    assert_eq!(attach(&built(), &folder).unwrap(), attached, "the same source gives the same bytes");
    assert_eq!(attach(&attached, &folder).unwrap(), attached);

    let said = read(&attached).unwrap().unwrap();
    assert_eq!((said.source.as_str(), said.toolchain.as_str(), said.dependencies), ("abc", "rustc 1.95.0", 3));
    assert_eq!((said.tunebox.as_str(), said.interface.as_str()), (VERSION, "0.2.0"));
    let text: serde_json::Value = serde_json::from_str(&sbom(&attached).unwrap().unwrap()).unwrap();
    assert_eq!(
        text["components"],
        json!([
            {
                "type": "library", "name": "forked", "version": "3.0.0",
                "purl": "pkg:cargo/forked@3.0.0?vcs_url=git%2Bhttps%3A%2F%2Fexample%2Eorg%2Fforked%3Frev%3D1%23abc",
            },
            {
                "type": "library", "name": "one", "version": "2.0.0", "purl": "pkg:cargo/one@2.0.0",
                "hashes": [{ "alg": "SHA-256", "content": "22" }],
            },
            { "type": "library", "name": "tunebox", "version": "0.1.0" },
        ])
    );
    fs::remove_file(place.path().join("Cargo.lock")).unwrap();
    assert!(attach(&built(), &folder).unwrap_err().to_string().contains("there is no `Cargo.lock`"));
}

#[test]
fn the_packages_of_a_python_environment_are_listed() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("pyproject.toml"), "").unwrap();
    assert_eq!(read(&attach(&built(), place.path()).unwrap()).unwrap().unwrap().dependencies, 0);
    let installed = place.path().join(".venv/lib/python3.12/site-packages");
    for name in ["Some_Package-1.2.dist-info", "some_package", "_x.pth"] {
        fs::create_dir_all(installed.join(name)).unwrap();
    }
    let attached = attach(&built(), place.path()).unwrap();
    assert!(sbom(&attached).unwrap().unwrap().contains(r#""purl":"pkg:pypi/some-package@1.2""#));
    assert_eq!(read(&attached).unwrap().unwrap().reproduce, NOT_REPRODUCIBLE);
}

#[test]
fn packing_keeps_it_and_the_signature_covers_it() {
    let place = tempfile::tempdir().unwrap();
    let attached = attach(&built(), &folder(place.path())).unwrap();
    let packed = pack(&attached, Some("# Calm\n")).unwrap();
    assert_eq!(pack(&packed, None).unwrap(), packed);
    assert_eq!(read(&packed).unwrap(), read(&attached).unwrap());
    assert!(is_same_component(&packed, &built()), "it is no part of the component");

    let path = place.path().join("me.key");
    SecretKey::generate(&path, None).unwrap();
    let key = SecretKey::read(&path, || None).unwrap();
    let signature = sign(&Statement::of(&packed).unwrap(), &key).unwrap();
    assert!(Signed::verify(&packed, &signature).is_ok());
    let mut other = section::without(&packed, SECTION).unwrap();
    assert!(Signed::verify(&other, &signature).is_err());
    let changed = String::from_utf8(section::find(&packed, SECTION).unwrap().unwrap().to_vec()).unwrap();
    section::append(&mut other, SECTION, changed.replace("abc", "abd").as_bytes());
    assert!(Signed::verify(&other, &signature).is_err());
}

#[test]
fn a_hostile_document_is_refused_or_safe_to_show() {
    assert_eq!(read(&built()).unwrap(), None);
    assert_eq!(sbom(&built()).unwrap(), None);
    let with = |text: &str| {
        let mut bytes = package("calm", "0.1.0");
        section::append(&mut bytes, SECTION, text.as_bytes());
        bytes
    };
    let wrapped = |toolchain: &str, components: &str| {
        let names = ["source", "toolchain", "version", "interface", "reproduce"];
        let properties = names.map(|name| json!({ "name": format!("tunebox:{name}"), "value": toolchain }));
        let properties = serde_json::Value::from(properties.to_vec());
        format!(r#"{{"bomFormat":"CycloneDX","metadata":{{"properties":{properties}}},"components":{components}}}"#)
    };
    let said = read(&with(&wrapped("a\u{1b}[2J\u{202e}", "[]"))).unwrap().unwrap();
    assert_eq!(said.toolchain, "a\\u{1b}[2J\\u{202e}");
    let raw = sbom(&with(&wrapped("a\u{202e}", "[]"))).unwrap().unwrap();
    assert!(!raw.contains('\u{202e}'), "{raw}");
    assert!(read(&with(&wrapped(&"x".repeat(40_000), "[]"))).unwrap().unwrap().toolchain.len() <= MAX_SHOWN_BYTES + 4);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in ["", "{}", "null", &wrapped("a", &deep), &wrapped("a", "3"), &" ".repeat(MAX_DOCUMENT_BYTES + 1)] {
        let error = read(&with(text)).unwrap_err().to_string();
        assert!(error.starts_with("the list of what the package was built from is not usable: "), "{error}");
    }
    let mut twice = with(&wrapped("a", "[]"));
    section::append(&mut twice, SECTION, b"{}");
    assert!(read(&twice).is_err());
    assert!(manifest::parse(b"{}").is_err());
}
