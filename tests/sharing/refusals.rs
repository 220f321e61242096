//! What is refused when it is pulled, each thing by its own words.

use std::fs;

use tunebox_package::Artifact;

use super::scene::{Publisher, Scene};
use crate::support::fake_registry::Answer;

#[test]
fn a_changed_byte_is_not_what_was_signed() {
    let scene = Scene::new();
    let mut package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    // The page is the last section: the component itself still works.
    *package.wasm.last_mut().unwrap() ^= 1;
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    let told = scene.person.assert_refused(&["pull", &name, "--yes"], "this package is not what was signed");
    assert!(told.contains(&format!(" --> calm-tone@0.3.0 from {name}\n")), "{told}");
}

#[test]
fn a_text_that_is_no_signature_is_told() {
    let scene = Scene::new();
    let mut package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    package.signature = package.signature.map(|text| text.lines().take(3).collect::<Vec<_>>().join("\n"));
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    scene.person.assert_refused(&["pull", &name, "--yes"], "the signature cannot be read");
}

#[test]
fn the_signature_of_another_package_is_told_with_its_name() {
    let scene = Scene::new();
    let other = scene.publisher.publish("calm-tone", "0.4.0", "calm\n");
    let package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &Artifact { signature: other.signature, ..package });
    let told = scene.person.assert_refused(&["pull", &name, "--yes"], "this is the signature of another package");
    assert!(told.contains("calm-tone@0.4.0"), "{told}");
}

#[test]
fn another_key_than_before_is_refused_even_with_consent() {
    let scene = Scene::new();
    let package = Publisher::new().publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    scene.person.assert_refused(&["pull", &name, "--yes"], "another key signs it than before");
}

#[test]
fn an_older_version_is_refused_though_it_is_signed() {
    let scene = Scene::new();
    let name = scene.offer("me/calm-tone", "0.1.0", &scene.publisher.publish("calm-tone", "0.1.0", "calm\n"));
    let told =
        scene.person.assert_refused(&["pull", &name, "--yes"], "this version is older than one that was used here");
    assert!(told.contains("0.2.0"), "{told}");
}

#[test]
fn a_name_that_looks_like_a_known_one_is_refused() {
    let scene = Scene::new();
    let package = Publisher::new().publish("calm-t0ne", "0.2.0", "calm\n");
    let name = scene.offer("other/calm-t0ne", "0.2.0", &package);
    scene.person.assert_refused(&["pull", &name, "--yes"], "its name looks like `calm-tone`");
}

#[test]
fn an_unsigned_package_of_a_registry_is_refused() {
    let scene = Scene::new();
    let package = scene.publisher.publish("plain-tone", "0.1.0", "plain\n");
    let name = scene.offer("me/plain-tone", "0.1.0", &Artifact { signature: None, ..package });
    scene.person.assert_refused(&["pull", &name, "--yes"], "this package is not signed");
}

#[test]
fn the_signature_of_a_package_may_come_another_way() {
    let scene = Scene::new();
    let package = scene.publisher.publish("plain-tone", "0.1.0", "plain\n");
    let (signature, file) = (package.signature.clone().unwrap(), scene.person.path("project/plain.minisig"));
    let name = scene.offer("me/plain-tone", "0.1.0", &Artifact { signature: None, ..package });
    let pull = ["pull", &name, "--yes", "--signature", "plain.minisig"];
    let others = scene.publisher.publish("other-tone", "0.1.0", "other\n").signature.unwrap();
    fs::write(&file, others).unwrap();
    scene.person.assert_refused(&pull, "this is the signature of another package");
    fs::write(&file, signature).unwrap();
    scene.person.succeed("project", &pull);
    assert!(scene.person.train("plain-tone@0.1.0", &["--locked"]).status.success());
}

#[test]
fn another_package_than_was_asked_for_is_refused() {
    let scene = Scene::new();
    let name = scene.offer("me/plain-tone", "0.3.0", &scene.publisher.publish("calm-tone", "0.3.0", "calm\n"));
    scene.person.assert_refused(&["pull", &name, "--yes"], "the registry returned another package than requested");
}

#[test]
fn bytes_that_are_not_those_of_their_digest_are_refused() {
    let scene = Scene::new();
    let package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    let mut other = package.wasm.clone();
    *other.last_mut().unwrap() ^= 1;
    *scene.instead.lock().unwrap() = Some((package.manifest().unwrap().layer, Answer::of(200, other)));
    scene.person.assert_refused(&["pull", &name, "--yes"], "the package is not what was named");
}

#[test]
fn a_version_that_was_published_again_with_other_bytes_is_refused() {
    let scene = Scene::new();
    let name = scene.offer("me/calm-tone", "0.2.0", &scene.publisher.publish("calm-tone", "0.2.0", "other\n"));
    scene.person.assert_refused(&["pull", &name, "--yes"], "this package is not the one in the lock");
}

#[test]
fn a_new_signer_is_refused_where_no_question_can_be_asked() {
    let scene = Scene::new();
    let name = scene.offer("other/wild-tone", "0.1.0", &Publisher::new().publish("wild-tone", "0.1.0", "wild\n"));
    let told = scene.person.assert_refused(&["pull", &name], "its signer is not accepted on this machine");
    assert!(told.contains(&format!("`tunebox pull {name} --yes`")), "{told}");
    let told = scene.person.assert_refused(&["pull", &name, "--locked"], "it is not in the lock");
    assert!(told.contains("--locked"), "{told}");
    scene.person.succeed("project", &["pull", &name, "--yes"]);
}
