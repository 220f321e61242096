//! A run file that the user did not write: what it asks for beyond the defaults is shown, and accepted once.

use std::fs;
use std::process::Command;

use super::workspace;
use crate::support::workspace::{Workspace, errors};

/// A run file of two steps by a method, with more lines at its end.
fn run_file(place: &Workspace, name: &str, method: &str, more: &str) {
    let text = format!(
        "[model]\npath = \"model\"\n[data]\npath = \"answers.jsonl\"\n[train]\nsteps = 2\n[method]\nuse = \"{method}\"\n{more}"
    );
    fs::write(place.path(name), text).unwrap();
}

fn refuse(place: &Workspace, words: &[&str], why: &str) {
    let told = errors(&place.end(words, 2));
    assert!(told.contains("the run file asks for more than the defaults") && told.contains(why), "{words:?}: {told}");
}

#[test]
fn what_a_run_file_asks_for_is_shown_and_accepted_once() {
    let place = workspace();
    for (more, why) in [
        ("grants = [\"weights\"]\n", "it grants weights to `lora`"),
        ("[limits]\ndevice-bytes = 68719476736\n", "it raises `device-bytes` from 1.0 GiB to 64.0 GiB"),
        ("[[verifier]]\nuse = \"number\"\n[limits]\nverifier-seconds = 3000.0\n", "it raises `verifier-seconds`"),
        ("[run]\nfolder = \"/nowhere/of/mine\"\n", "it writes into `/nowhere/of/mine`"),
        // The folder `new` is not there, so nothing says yet where `..` leads.
        ("[run]\nfolder = \"new/../../mine\"\n", "/new/../../mine`"),
    ] {
        run_file(&place, "run.toml", "lora", more);
        for words in [&["train", "run.toml"][..], &["check", "run.toml"], &["train", "run.toml", "--locked"]] {
            refuse(&place, words, why);
        }
    }
    // What is typed needs no question, and neither do lower limits.
    run_file(&place, "run.toml", "lora", "[limits]\ndevice-bytes = 536870912\n");
    place.succeed(&["check", "run.toml", "--set", "method.grants=[\"weights\"]", "--set", "limits.handles=20000"]);

    run_file(&place, "run.toml", "lora", "grants = [\"weights\"]\n[limits]\nhandles = 30000\n");
    let told = errors(&place.end(&["train", "run.toml", "--name", "one", "--yes"], 0));
    assert!(
        told.contains("is accepted: it grants weights to `lora`; it raises `handles` from 16,384 to 30,000"),
        "{told}"
    );
    place.succeed(&["check", "run.toml"]);
    place.succeed(&["verify", "runs/one"]);
    // More than was accepted is asked about again.
    run_file(&place, "run.toml", "lora", "grants = [\"weights\", \"text\"]\n[limits]\nhandles = 30000\n");
    refuse(&place, &["check", "run.toml"], "it grants weights, text");
    // A run of others raises no limit of a replay.
    let other =
        place.tunebox(&["verify", "runs/one", "--replay"]).env("TUNEBOX_HOME", place.path("other")).output().unwrap();
    assert_eq!(other.status.code(), Some(2), "{}", errors(&other));
}

#[test]
fn a_component_that_a_run_file_names_by_a_path_is_asked_about() {
    let place = workspace();
    run_file(&place, "run.toml", "./stranger.wasm", "");
    refuse(&place, &["train", "run.toml"], "stranger.wasm`");
    // A comparison runs nothing, and accepts nothing for later.
    place.succeed(&["train", "run.toml", "--method", "stranger.wasm", "--name", "one"]);
    fs::remove_dir_all(place.path("home")).unwrap();
    place.succeed(&["verify", "runs/one"]);
    refuse(&place, &["train", "runs/one/run.toml", "--name", "two"], "stranger.wasm`");
    refuse(&place, &["train", "run.toml"], "stranger.wasm`");
    place.succeed(&["train", "run.toml", "--name", "two", "--yes"]);
    place.succeed(&["train", "runs/two/run.toml", "--name", "three"]);
}

#[test]
fn a_file_without_an_end_is_not_read_for_ever() {
    let place = workspace();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    run_file(&place, "run.toml", "lora", "");
    for file in ["/dev/zero", "pipe"] {
        for command in [
            &["score", "model", "--file", file][..],
            &["eval", "model", "--data", file],
            &["generate", "model", "hi", "--steer", file],
            &["check", "run.toml", "--set", &format!("data.path={file}")],
            &["train", "--model", "model", "--data", file],
        ] {
            let told = errors(&place.end(command, 2));
            assert!(told.contains("no ordinary file"), "{command:?}: {told}");
        }
    }
}
