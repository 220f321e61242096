//! Packages as files, on their way from one to another.

use std::fs;

use super::scene::{Person, Publisher, TRUST};
use crate::support::renamed::renamed;

#[test]
fn a_file_beside_a_signature_that_is_not_its_own_does_not_run() {
    let (publisher, person) = (Publisher::new(), Person::new());
    let package = publisher.publish("calm-tone", "0.1.0", "calm\n");
    person.hold("calm-tone-0.1.0.wasm", &package);
    let told = person.succeed("project", &["verify", "calm-tone-0.1.0.wasm", "--signer", &publisher.key.signer().key]);
    assert!(told.contains("unknown on this machine"), "{told}");
    let other = Publisher::new();
    person.fail(&["verify", "calm-tone-0.1.0.wasm", "--signer", &other.key.signer().key], TRUST);

    let mut changed = package.wasm.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(person.path("project/calm-tone-0.1.0.wasm"), changed).unwrap();
    let words = ["train", "--sample", "--method", "./calm-tone-0.1.0.wasm", "--set", "train.steps=1"];
    person.assert_refused(&words, "this package is not what was signed");
    fs::remove_file(person.path("project/calm-tone-0.1.0.wasm.minisig")).unwrap();
    person.fail(&["verify", "calm-tone-0.1.0.wasm"], 1);
}

#[test]
fn a_file_is_verified_by_a_known_signer_or_by_a_key_that_is_named() {
    let (publisher, person) = (Publisher::new(), Person::new());
    let package = publisher.publish("calm-tone", "0.1.0", "calm\n");
    person.hold("calm-tone-0.1.0.wasm", &package);
    let verify = ["verify", "calm-tone-0.1.0.wasm"];
    let told = person.fail(&verify, 1);
    assert!(told.contains("Unverified calm-tone 0.1.0") && told.contains("--signer KEY"), "{told}");

    let named = [&verify[..], &["--signer", publisher.key.signer().key.as_str()][..]].concat();
    assert!(person.succeed("project", &named).contains("Verified"));
    person.succeed("project", &["push", "calm-tone-0.1.0.wasm", "./stick"]);
    person.succeed("project", &["pull", "./stick//calm-tone:0.1.0", "--yes"]);
    assert!(person.succeed("project", &verify).contains("known for"));

    let stranger = Publisher::new();
    let other = stranger.publish("calm-tone", "0.1.0", "calm\n");
    fs::write(person.path("project/calm-tone-0.1.0.wasm.minisig"), other.signature.unwrap()).unwrap();
    person.assert_refused(&verify, "another key signs it than before");
    // A key that is named says who signed, not that the lock is wrong.
    let named = [&verify[..], &["--signer", stranger.key.signer().key.as_str()][..]].concat();
    person.assert_refused(&named, "another key signs it than before");
}

#[test]
fn a_package_is_signed_before_it_is_pushed_and_the_key_is_read_before_anything_is_built() {
    let person = Person::new();
    fs::write(person.path("project/calm-tone.wasm"), renamed("lora", "calm-tone", "0.1.0")).unwrap();
    let told = person.succeed("project", &["pack", "./calm-tone.wasm"]);
    assert!(told.contains("Packed calm-tone-0.1.0.wasm,"), "{told}");
    assert!(told.contains("Next tunebox pack ./calm-tone.wasm --sign KEY "), "{told}");

    person.succeed("project", &["new", "even-tone", "--like", "lora"]);
    let told = person.fail(&["pack", "even-tone", "--sign", "me.key"], 2);
    assert!(told.starts_with("error[files]: `me.key` cannot be read"), "{told}");
}

#[test]
fn one_stick_is_one_source_whatever_way_leads_there() {
    let person = Person::new();
    fs::write(person.path("project/calm-tone.wasm"), renamed("lora", "calm-tone", "0.1.0")).unwrap();
    let told = person.succeed("project", &["push", "calm-tone.wasm", "../project/./stick"]);
    let stick = person.path("project/stick").canonicalize().unwrap().display().to_string();
    assert!(told.contains(&format!("Pushed {stick}//calm-tone:0.1.0,")), "{told}");
    for (folder, place) in [("project", "./stick"), ("project", "../project/stick"), ("project/stick", "./")] {
        person.succeed(folder, &["pull", place]);
    }
    let told = person.succeed("project", &["list", "--packages"]);
    assert_eq!(told.matches("calm-tone@0.1.0 ").count(), 1, "{told}");
    assert!(told.contains(&format!("from {stick}\n")), "{told}");
    let lock = fs::read_to_string(person.path("project/tunebox.lock")).unwrap();
    assert!(lock.contains(&format!("source = \"{stick}\"")), "{lock}");
}

#[test]
fn a_component_is_not_pushed_in_the_place_of_the_signed_package_beside_it() {
    let (publisher, person) = (Publisher::new(), Person::new());
    let component = renamed("lora", "calm-tone", "0.1.0");
    let package = publisher.sign(&component, "calm\n");
    fs::write(person.path("project/calm-tone.wasm"), &component).unwrap();
    person.hold("calm-tone-0.1.0.wasm", &package);
    let told = person.fail(&["push", "calm-tone.wasm", "./stick"], 2);
    assert!(told.contains("hint: `tunebox push calm-tone-0.1.0.wasm ./stick`"), "{told}");
    assert!(!person.path("project/stick").exists());
    let told = person.succeed("project", &["push", "calm-tone-0.1.0.wasm", "./stick"]);
    assert!(told.contains(&format!("Signed by {}", publisher.key.signer())), "{told}");
}
