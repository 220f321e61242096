//! Claims about packages that people give each other: one person's method trains to the same bits at another's, and
//! whatever was changed on the way is refused, each thing by its own words, before anything is installed or compiled.

mod failures;
mod files;
mod refusals;
mod scene;
mod store;

use std::fs;

use crate::support::real_registry;
use scene::Person;

/// The whole walk, by the program alone: one machine writes, tests, trains, signs and pushes, another one pulls, looks
/// and trains.
#[test]
#[ignore = "needs docker-registry"]
fn a_method_that_is_shared_by_a_registry_trains_to_the_same_bits_elsewhere() {
    let registry = real_registry::Registry::start("");
    let place = format!("{}/me/even-tone", registry.host());
    let (author, other) = (Person::new(), Person::new());
    let short =
        ["--set", "train.steps=6", "--set", "train.batch=4", "--set", "train.adapter.dropout=0.1", "--name", "run"];

    author.succeed("project", &["new", "even-tone", "--like", "lora"]);
    let folder = "project/even-tone";
    author.succeed(folder, &["build"]);
    author.succeed(folder, &["test"]);
    author.succeed(folder, &[&["train", "--sample", "--method", "."][..], &short].concat());
    author.succeed("project", &["key", "me.key"]);
    author.succeed(folder, &["pack", "--sign", "../me.key"]);
    author.succeed(folder, &["push", "even-tone-0.1.0.wasm", &place]);

    let told = other.succeed("project", &["pull", &format!("{place}:0.1.0"), "--yes"]);
    assert!(told.contains("Pulled even-tone@0.1.0"), "{told}");
    let key = fs::read_to_string(author.path("project/me.key.pub")).unwrap();
    let key = key.lines().nth(1).unwrap();
    let told = other.succeed("project", &["verify", "even-tone@0.1.0", "--signer", key]);
    assert!(told.contains(&format!("by {key}")), "{told}");
    let method = ["train", "--sample", "--method", "even-tone@0.1.0", "--locked"];
    other.succeed("project", &[&method[..], &short].concat());

    let adapter = |person: &Person, folder: &str| {
        fs::read(person.path(folder).join("runs/run/adapter_model.safetensors")).unwrap()
    };
    assert!(adapter(&author, folder) == adapter(&other, "project"), "the adapters differ");
    // The second time no question is asked, and the same bytes are the same package.
    author.succeed(folder, &["push", "even-tone-0.1.0.wasm", &place]);
    other.succeed("project", &["pull", &format!("{place}:0.1.0"), "--locked"]);
}
