//! Failures of a pull as its user sees them: each has its own message and code, and nothing is installed,
//! compiled or decided. How the parts below tell them apart, the tests of registries look at.

use std::fs;
use std::net::TcpListener;

use tunebox_package::artifact::MANIFEST;

use super::scene::{Scene, TRUST};
use crate::support::fake_registry::Answer;

/// Exit code of what could not be done now.
const NO: i32 = 1;

/// Exit code of what cannot be done so.
const USAGE: i32 = 2;

#[test]
fn a_registry_that_fails_is_told_by_its_failure() {
    let scene = Scene::new();
    let package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    let (host, layer, half) = (scene.registry.host(), package.manifest().unwrap().layer, package.wasm.len() / 2);
    let login = Answer::of(401, "").with("WWW-Authenticate", "Basic realm=\"here\"");
    let torn = Answer { cut: Some(half), ..Answer::of(200, package.wasm.clone()) };
    let short = Answer::of(200, &package.wasm[..half]);
    for (part, answer, code, first) in [
        ("/manifests/", login, USAGE, format!("error[registry]: `{host}` wants a login")),
        (layer.as_str(), Answer::of(500, ""), NO, format!("error[registry]: `{host}` answers with status 500")),
        (layer.as_str(), torn, NO, "error[registry]: the package ended early".to_owned()),
        (layer.as_str(), short, TRUST, "error[trust]: the package is not as long as was named".to_owned()),
    ] {
        *scene.instead.lock().unwrap() = Some((part.to_owned(), answer));
        scene.person.assert_failed(&["pull", &name, "--yes"], code, &first);
    }
    *scene.instead.lock().unwrap() = None;
    scene.person.succeed("project", &["pull", &name, "--yes"]);
}

#[test]
fn a_registry_that_does_not_answer_is_told() {
    let scene = Scene::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let name = format!("{free}/me/calm-tone:0.3.0");
    scene.person.assert_failed(
        &["pull", &name, "--yes"],
        USAGE,
        &format!("error[registry]: `{free}` refuses the connection"),
    );
}

#[test]
fn a_manifest_of_two_layers_is_no_package() {
    let scene = Scene::new();
    let package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    let mut document: serde_json::Value = serde_json::from_slice(&package.manifest().unwrap().manifest).unwrap();
    let layer = document["layers"][0].clone();
    document["layers"].as_array_mut().unwrap().push(layer);
    scene.registry.name("me/calm-tone:0.3.0", MANIFEST, document.to_string().as_bytes());
    let first = "error[package]: this is not a WebAssembly package: it has 2 layers";
    let told = scene.person.assert_failed(&["pull", &name, "--yes"], USAGE, first);
    assert!(told.contains("kept: nothing was installed and nothing ran"), "{told}");
}

#[test]
fn a_package_that_was_changed_on_a_stick_is_not_what_its_folder_names() {
    let scene = Scene::new();
    let (person, package) = (&scene.person, scene.publisher.publish("calm-tone", "0.3.0", "calm\n"));
    person.hold("calm-tone-0.3.0.wasm", &package);
    person.succeed("project", &["push", "calm-tone-0.3.0.wasm", "./stick"]);
    let layer = package.manifest().unwrap().layer.replace(':', "/");
    let blob = person.path("project/stick/blobs").join(layer);
    let mut other = package.wasm.clone();
    *other.last_mut().unwrap() ^= 1;
    for bytes in [&other[..], &other[..1000]] {
        fs::remove_file(&blob).unwrap();
        fs::write(&blob, bytes).unwrap();
        person
            .assert_refused(&["pull", "./stick//calm-tone:0.3.0", "--yes"], "the package is not what its folder names");
    }
}
