//! Beside programs of others: a real registry, and `wkg`, which knows packages by the same form.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_package::artifact::MANIFEST;
use tunebox_package::registry::{Location, pull, push};

use super::logins::logged_in;
use super::{failed_pull, location, lora, silent, version, with_logins};
use crate::support::absent::require;
use crate::support::real_registry;

#[test]
#[ignore = "needs docker-registry"]
fn a_real_registry_takes_and_gives_the_same_bytes() {
    let registry = real_registry::Registry::start("");
    let pushed = push(&location(&registry.host()), &lora(), &mut silent).unwrap();
    assert_eq!(pull(&location(&registry.host()), &mut silent).unwrap(), (lora(), pushed));
    let later = Location::parse(&format!("{}/me/lora", registry.host())).unwrap();
    push(&later, &version("0.10.0"), &mut silent).unwrap();
    push(&later, &version("0.9.0"), &mut silent).unwrap();
    let hint = failed_pull(&later).hint().unwrap();
    assert!(hint.contains("lora:0.10.0"), "{hint}");
    let absent = Location::parse(&format!("{}/me/dpo:0.1.0", registry.host())).unwrap();
    assert!(failed_pull(&absent).to_string().starts_with("there is no `"));
}

/// Names a manifest at a registry, as any program may that speaks its protocol.
fn name(host: &str, document: &str) {
    let mut stream = TcpStream::connect(host).unwrap();
    let length = document.len();
    let head = format!(
        "PUT /v2/me/lora/manifests/0.1.0 HTTP/1.1\r\nHost: {host}\r\nContent-Type: {MANIFEST}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), document.as_bytes()].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[test]
#[ignore = "needs docker-registry"]
fn what_was_changed_in_a_real_registry_is_refused() {
    let registry = real_registry::Registry::start("");
    let (place, documents) = (location(&registry.host()), lora().manifest().unwrap());
    push(&place, &lora(), &mut silent).unwrap();
    let layer = documents.layer.trim_start_matches("sha256:");
    let blob = registry.file(&format!("blobs/sha256/{}/{layer}/data", &layer[..2]));
    let whole = std::fs::read(&blob).unwrap();
    let mut other = whole.clone();
    *other.last_mut().unwrap() ^= 1;
    let cases = [
        (&whole[..1000], "the package is not as long as was named"),
        (&other[..], "the package is not what was named"),
    ];
    for (bytes, told) in cases {
        std::fs::write(&blob, bytes).unwrap();
        let error = failed_pull(&place);
        assert_eq!((error.to_string().as_str(), error.exit()), (told, Exit::Trust));
    }
    std::fs::write(&blob, &whole).unwrap();
    assert_eq!(pull(&place, &mut silent).unwrap().0, lora());

    let mut document: serde_json::Value = serde_json::from_slice(&documents.manifest).unwrap();
    let layer = document["layers"][0].clone();
    document["layers"].as_array_mut().unwrap().push(layer);
    name(&registry.host(), &document.to_string());
    let error = failed_pull(&place);
    assert_eq!(error.to_string(), "this is not a WebAssembly package: it has 2 layers");
}

#[test]
#[ignore = "needs docker-registry"]
fn a_real_registry_that_fails_or_is_gone_is_told_as_such() {
    let registry = real_registry::Registry::start("");
    let (place, documents) = (location(&registry.host()), lora().manifest().unwrap());
    push(&place, &lora(), &mut silent).unwrap();
    let layer = documents.layer.trim_start_matches("sha256:");
    // Which makes the registry itself fail in the middle.
    let link = registry.file(&format!("repositories/me/lora/_layers/sha256/{layer}/link"));
    std::fs::write(&link, "no digest").unwrap();
    let error = failed_pull(&place);
    assert!(error.to_string().ends_with("answers with status 500"), "{error:?}");

    drop(registry);
    let error = failed_pull(&place);
    assert!(error.to_string().ends_with("refuses the connection"), "{error:?}");
}

#[test]
#[ignore = "needs docker-registry"]
fn a_real_registry_with_a_login_takes_that_of_docker_login() {
    let registry = real_registry::Registry::with_login();
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("wants a login"), "{error}");
    let login = logged_in(&registry.host(), "bWU6c2VjcmV0");
    let with = with_logins(&registry.host(), login.path());
    push(&with, &lora(), &mut silent).unwrap();
    assert_eq!(pull(&with, &mut silent).unwrap().0, lora());
    let wrong = logged_in(&registry.host(), "bWU6d3Jvbmc=");
    let error = failed_pull(&with_logins(&registry.host(), wrong.path()));
    assert!(error.to_string().ends_with("does not take the login"), "{error}");
}

#[test]
#[ignore = "needs docker-registry and openssl"]
fn a_real_registry_with_a_certificate_of_its_own_is_believed_only_with_it() {
    let (registry, certificate) = real_registry::Registry::with_certificate();
    // Loopback goes without encryption; this address of the same machine does not.
    let mut elsewhere = location(&format!("0.0.0.0:{}", registry.port()));
    let error = failed_pull(&elsewhere);
    assert!(error.to_string().starts_with("no encrypted connection to"), "{error:?}");
    elsewhere.certificates = Some(certificate);
    push(&elsewhere, &lora(), &mut silent).unwrap();
    assert_eq!(pull(&elsewhere, &mut silent).unwrap().0, lora());
}

#[test]
#[ignore = "needs docker-registry and wkg"]
fn wkg_pulls_what_was_pushed_and_what_wkg_pushed_is_pulled() {
    let registry = real_registry::Registry::start("");
    require("wkg", "--version");
    let (folder, host) = (tempfile::tempdir().unwrap(), registry.host());
    let wkg = |arguments: &[&str]| {
        let output = Command::new("wkg").args(["oci"]).args(arguments).args(["--insecure", &host]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let file = |name: &str| folder.path().join(name).display().to_string();

    push(&location(&host), &lora(), &mut silent).unwrap();
    wkg(&["pull", &format!("{host}/me/lora:0.1.0"), "--output", &file("pulled.wasm")]);
    assert!(std::fs::read(file("pulled.wasm")).unwrap() == lora().wasm);

    std::fs::write(file("lora.wasm"), lora().wasm).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&lora().manifest().unwrap().manifest).unwrap();
    let written = document["annotations"]["dev.tunebox.signature"].as_str().unwrap();
    let signature = format!("dev.tunebox.signature={written}");
    wkg(&["push", &format!("{host}/you/lora:0.1.0"), &file("lora.wasm"), "--annotation", &signature]);
    let theirs = Location::parse(&format!("{host}/you/lora:0.1.0")).unwrap();
    assert_eq!(pull(&theirs, &mut silent).unwrap().0, lora());
}
