//! Runs and answers that are stopped from outside, and go on.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{train, workspace};
use crate::support::processes::{send, wait_for};
use crate::support::workspace::Workspace;

#[test]
fn a_run_that_is_interrupted_or_killed_and_resumed_ends_in_the_bits_of_one_that_was_not() {
    let place = workspace();
    assert!(train(&place, "whole", false).status().unwrap().success());
    for (name, how, code) in [("interrupted", Signal::INT, Some(130)), ("killed", Signal::KILL, None)] {
        let mut child = train(&place, name, false).spawn().unwrap();
        wait_for(&mut child, "its eighth step", || (place.steps(name) >= 8).then_some(()));
        send(child.id(), how);
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        assert!(!place.path(&format!("runs/{name}/adapter_model.safetensors")).exists(), "{name} was not stopped");
        assert!(train(&place, name, true).status().unwrap().success(), "{name} does not resume");
        assert!(place.adapter(name) == place.adapter("whole"), "{name}: the adapters differ");
    }
}

/// The most tokens of an answer in the next test: a minute of them and more, so that only Ctrl-C ends it in time.
const ENDLESS_ANSWER: &str = "65536";

/// Has the model of a workspace write on for ever: no token has the name of one that ends answers, and its window is
/// large.
fn never_end(place: &Workspace) {
    let change = |name: &str, from: &str, to: &str| {
        let file = format!("model/{name}");
        let text = place.read(&file);
        assert!(text.contains(from), "{name}: {text}");
        place.write(&file, &text.replace(from, to));
    };
    change("config.json", "\"max_position_embeddings\": 256", "\"max_position_embeddings\": 300000");
    change("config.json", "\"eos_token_id\": 2", "\"eos_token_id\": null");
    change("tokenizer_config.json", "\"eos_token\": \"<|im_end|>\",", "");
    change("tokenizer_config.json", "<|im_end|>", "<|im_stop|>");
    change("tokenizer.json", "<|im_end|>", "<|im_stop|>");
}

/// Waits until a line of `lines` begins with `beginning`.
fn await_line(lines: &mut impl BufRead, beginning: &str) {
    let mut line = String::new();
    while !line.starts_with(beginning) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "`{beginning}` does not come");
    }
}

#[test]
fn ctrl_c_stops_an_answer_and_the_conversation_goes_on() {
    let place = workspace();
    never_end(&place);
    let answers = std::fs::File::create(place.path("answers.txt")).unwrap();
    let written = || std::fs::metadata(place.path("answers.txt")).unwrap().len();
    let mut command = place.tunebox(&["chat", "model", "--temperature", "0", "--max-tokens", ENDLESS_ANSWER]);
    let mut child = command.stdin(Stdio::piped()).stdout(answers).stderr(Stdio::piped()).spawn().unwrap();
    let (mut input, mut messages) = (child.stdin.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
    for question in ["What does a cow say?", "What does a dog say?"] {
        let (begun, before) = (Instant::now(), written());
        writeln!(input, "{question}").unwrap();
        while written() < before + 40 {
            assert!(begun.elapsed() < Duration::from_secs(120), "no answer begins");
            std::thread::sleep(Duration::from_millis(1));
        }
        send(child.id(), Signal::INT);
        // The help comes once the answer has ended.
        writeln!(input, "/help").unwrap();
        await_line(&mut messages, "Ctrl-C ");
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(written() < 65_536, "an answer was not stopped: {} bytes", written());
}

#[test]
fn what_cannot_be_written_fails() {
    let place = workspace();
    let write_to = |device: &str, words: &[&str]| {
        let output = std::fs::OpenOptions::new().write(true).open(device).unwrap();
        place.tunebox(words).stdout(output).output().unwrap()
    };
    assert_eq!(write_to("/dev/null", &["completions", "bash"]).status.code(), Some(0));
    let failed = write_to("/dev/full", &["completions", "bash"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(crate::support::workspace::errors(&failed).starts_with("error: stdout cannot be written: No space"));
}
