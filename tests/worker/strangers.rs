//! A run file that the user did not write: what it asks for beyond the defaults is shown, and accepted once.

use std::fs;
use std::process::{Command, Output};

use super::{Workspace, output_text};

/// A run file of two steps by a method, with more lines at its end.
fn run_file(place: &Workspace, name: &str, method: &str, more: &str) {
    let text = format!(
        "[model]\npath = \"model\"\n[data]\npath = \"answers.jsonl\"\n[train]\nsteps = 2\n[method]\nuse = \"{method}\"\n{more}"
    );
    fs::write(place.path(name), text).unwrap();
}

/// Runs a command with a `TUNEBOX_HOME` of its own.
fn run(place: &Workspace, words: &[&str]) -> Output {
    place.tunebox(words).env("TUNEBOX_HOME", place.path("home")).output().unwrap()
}

fn refuse(place: &Workspace, words: &[&str], why: &str) {
    let output = run(place, words);
    let told = output_text(&output);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
    assert!(told.contains("the run file asks for more than the defaults") && told.contains(why), "{words:?}: {told}");
}

fn accept(place: &Workspace, words: &[&str]) -> String {
    let output = run(place, words);
    assert!(output.status.success(), "{words:?}: {}", output_text(&output));
    output_text(&output)
}

#[test]
fn what_a_run_file_asks_for_is_shown_and_accepted_once() {
    let place = Workspace::new();
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
    accept(&place, &["check", "run.toml", "--set", "method.grants=[\"weights\"]", "--set", "limits.handles=20000"]);

    run_file(&place, "run.toml", "lora", "grants = [\"weights\"]\n[limits]\nhandles = 30000\n");
    let told = accept(&place, &["train", "run.toml", "--name", "one", "--yes"]);
    assert!(
        told.contains("is accepted: it grants weights to `lora`; it raises `handles` from 16,384 to 30,000"),
        "{told}"
    );
    accept(&place, &["check", "run.toml"]);
    accept(&place, &["verify", "runs/one"]);
    // More than was accepted is asked about again.
    run_file(&place, "run.toml", "lora", "grants = [\"weights\", \"text\"]\n[limits]\nhandles = 30000\n");
    refuse(&place, &["check", "run.toml"], "it grants weights, text");
    // A run of others raises no limit of a replay.
    let other =
        place.tunebox(&["verify", "runs/one", "--replay"]).env("TUNEBOX_HOME", place.path("other")).output().unwrap();
    assert_eq!(other.status.code(), Some(2), "{}", output_text(&other));
}

#[test]
fn a_component_that_a_run_file_names_by_a_path_is_asked_about() {
    let place = Workspace::new();
    run_file(&place, "run.toml", "./stranger.wasm", "");
    refuse(&place, &["train", "run.toml"], "stranger.wasm`");
    // A comparison runs nothing, and accepts nothing for later.
    accept(&place, &["train", "run.toml", "--method", "stranger.wasm", "--name", "one"]);
    fs::remove_dir_all(place.path("home")).unwrap();
    accept(&place, &["verify", "runs/one"]);
    refuse(&place, &["train", "runs/one/run.toml", "--name", "two"], "stranger.wasm`");
    refuse(&place, &["train", "run.toml"], "stranger.wasm`");
    accept(&place, &["train", "run.toml", "--name", "two", "--yes"]);
    accept(&place, &["train", "runs/two/run.toml", "--name", "three"]);
}

#[test]
fn a_file_without_an_end_is_not_read_for_ever() {
    let place = Workspace::new();
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
            let output = run(&place, command);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {}", output_text(&output));
            assert!(output_text(&output).contains("no ordinary file"), "{command:?}: {}", output_text(&output));
        }
    }
}
