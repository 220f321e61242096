//! Models of others: whatever their files do to a parser, the program reports it in words, with the exit code of
//! files (2) or of a process that died (3), in bounded time and memory.
#![cfg(target_os = "linux")]

mod data;
mod memory;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::processes::{send, wait_for, wait_until_gone};
use crate::support::workspace::{Workspace, errors};

/// The time that any command may take: that of the watchdog, times what a machine with much else to do is slower.
const PATIENCE: Duration = Duration::from_secs(180);

/// The tiny model with other files of a stranger, and a little data.
struct Stranger(Workspace);

impl Stranger {
    fn new() -> Self {
        let place = Workspace::with_sample(8);
        place.write("run.toml", "model.path = \"model\"\ndata.path = \"answers.jsonl\"\nmethod.use = \"lora\"\n");
        Self(place)
    }

    /// The tiny model with this chat template.
    fn with_template(source: &str) -> Self {
        let place = Self::new();
        std::fs::write(place.path("chat_template.jinja"), source).unwrap();
        place
    }

    /// The tiny model with a changed `tokenizer.json`.
    fn with_tokenizer(change: impl FnOnce(&mut Value)) -> Self {
        let place = Self::new();
        let path = place.path("tokenizer.json");
        let mut tokenizer = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut tokenizer);
        std::fs::write(path, tokenizer.to_string()).unwrap();
        place
    }

    /// The path of a file of the model.
    fn path(&self, file: &str) -> PathBuf {
        self.0.path("model").join(file)
    }

    fn command(&self, words: &str) -> Command {
        self.0.tunebox(&words.split(' ').collect::<Vec<_>>())
    }

    /// Runs the commands at once. Asserts that each ends in time with exit code 2 or 3 and one error in words. Returns the
    /// errors.
    fn refuse(&self, commands: &[&str]) -> Vec<String> {
        let begun = Instant::now();
        let children: Vec<_> = commands.iter().map(|words| self.command(words).spawn().unwrap()).collect();
        let end = |(child, words): (Child, &&str)| {
            let output = child.wait_with_output().unwrap();
            let told = errors(&output);
            let code = output.status.code().unwrap_or_default();
            assert!([2, 3].contains(&code) && told.matches("error[").count() == 1, "{words}: {code}, {told}");
            assert!(!told.contains("panicked") && begun.elapsed() < PATIENCE, "{words}: {told}");
            told
        };
        children.into_iter().zip(commands).map(end).collect()
    }
}

/// Every way to render a template.
const RENDERING: [&str; 5] = [
    "generate model hi --max-tokens 1",
    "check run.toml",
    "train run.toml --set train.steps=1",
    "train run.toml --set train.steps=1 --in-process --name here",
    "eval model --data answers.jsonl",
];

/// A template that does `step` sixty times to `n.x`.
fn grows(step: &str) -> String {
    format!("{{% set n = namespace(x=['ab']) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ n.x }}}}")
}

/// A template that searches long texts for longer than any limit of time, in few steps.
fn searches() -> String {
    let text = "a".repeat(1000);
    let search =
        "{% for a in range(99999) %}{% for b in range(20) %}{% if 'ab' in s %}x{% endif %}{% endfor %}{% endfor %}";
    format!("{{% set s = '{text}' * 9000 %}}{search}")
}

#[test]
fn a_template_that_doubles_a_text_ends_its_process_and_not_the_caller() {
    let place = Stranger::with_template(&grows("{% set n.x = n.x ~ n.x %}"));
    place.refuse(&RENDERING);
}

#[test]
fn templates_that_make_much_of_little_end_in_words() {
    let nested = "{% set n = namespace(x=[], y=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% set n.y = [n.y] %}{% endfor %}";
    let sources = [
        grows("{% set n.x = n.x + n.x %}"),
        grows("{% set n.x = [n.x, n.x] %}") + "{{ n.x ~ '' }}",
        grows("{% set n.x = n.x | join(n.x | string) %}"),
        grows("{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}"),
        grows("{% set n.x = n %}") + "{{ n ~ n }}",
        format!("{nested}{{{{ n.x == n.y }}}}"),
        "{{ [1] | slice(18446744073709551615) }}".into(),
        "{{ '%9999999999d' | format(1) }}".into(),
        "{{ 'a' | indent(width=99999999999) }}".into(),
    ];
    // Few at once: each may take the memory of its limit.
    for few in sources.chunks(3) {
        std::thread::scope(|scope| {
            for source in few {
                scope.spawn(|| Stranger::with_template(source).refuse(&RENDERING[..1]));
            }
        });
    }
}

#[test]
fn a_template_that_searches_long_texts_within_its_steps_is_ended_by_its_time() {
    let place = Stranger::with_template(&searches());
    for told in place.refuse(&RENDERING) {
        assert!(told.contains("error[model]: the chat template takes more than 10 s for "), "{told}");
        assert!(told.contains("--> ") && told.contains("hint: use the files that came with the model"), "{told}");
    }
}

#[test]
fn an_error_of_a_template_shows_its_line_and_column() {
    let place = Stranger::with_template("fine\n{{ messages[0].role.nothing() }}\n");
    for told in place.refuse(&RENDERING[..1]) {
        assert!(told.contains("chat template:2") && told.contains("^^^"), "{told}");
    }
}

/// Every way to read a tokenizer.
const READING: [&str; 4] = [
    "score model --text hello",
    "check run.toml",
    "train run.toml --set train.steps=1",
    "export model --to hf --out merged",
];

/// A pre-tokenizer of 150 steps with 30 regular expressions each. They take little memory, but far longer to compile than
/// their bytes explain: each is a set of 200 parts that are compared without case.
fn many_expressions() -> Value {
    let set = ["\\w"; 200].join("&&");
    let step = |number: usize| {
        let all: Vec<String> = (0..30).map(|other| format!("(?=(?i:[{set}]){number}_{other})")).collect();
        json!({ "type": "Split", "pattern": { "Regex": all.join("|") }, "behavior": "Isolated", "invert": false })
    };
    json!({ "type": "Sequence", "pretokenizers": (0..150).map(step).collect::<Vec<_>>() })
}

#[test]
fn a_tokenizer_whose_reading_takes_more_than_its_size_explains_is_ended_by_its_time() {
    let place = Stranger::with_tokenizer(|all| all["pre_tokenizer"] = many_expressions());
    for told in place.refuse(&READING[..2]) {
        let ended = told.contains("error[model]: reading the tokenizer takes more than 14 s for ");
        assert!(ended && told.contains("--> model/tokenizer.json"), "{told}");
    }
}

#[test]
fn a_tokenizer_that_doubles_a_text_is_refused() {
    let place = Stranger::with_tokenizer(|all| {
        let step = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
        all["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![step; 40] });
    });
    for told in place.refuse(&READING) {
        assert!(told.contains("times longer"), "{told}");
    }
}

#[test]
fn a_tokenizer_that_searches_all_of_a_text_for_each_of_its_tokens_is_ended_by_its_time() {
    let place = Stranger::with_tokenizer(|all| {
        let step = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": " ".repeat(200) });
        all["normalizer"] = step;
        let token = json!({ "id": 1_000_000, "content": " ", "single_word": false, "lstrip": true, "rstrip": true,
            "normalized": true, "special": false });
        all["added_tokens"].as_array_mut().unwrap().push(token);
    });
    for told in place.refuse(&[&format!("score model --text {}", "a".repeat(4_000))]) {
        assert!(told.contains("error[model]: the tokenizer takes more than 10 s for "), "{told}");
    }
}

#[test]
fn padding_of_a_tokenizer_to_a_terabyte_is_not_used() {
    let place = Stranger::with_tokenizer(|all| {
        all["padding"] = json!({
            "strategy": { "Fixed": 1_000_000_000_000_u64 }, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<|end|>",
        });
    });
    for words in READING {
        let output = place.command(words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", errors(&output));
    }
}

#[test]
fn files_that_take_far_more_memory_than_they_are_long_are_refused() {
    let place = Stranger::new();
    std::fs::write(place.0.path("answers.jsonl"), "x\n".repeat(100_001)).unwrap();
    for told in place.refuse(&["check run.toml --set data.skip-bad=true"]) {
        assert!(told.contains("more than 100000 lines of `answers.jsonl` are wrong"), "{told}");
    }
    std::fs::write(place.path("tokenizer_config.json"), format!("[{}1]", "[],".repeat(12 << 20))).unwrap();
    for told in place.refuse(&READING[..1]) {
        assert!(told.contains("at most 33554432 are read"), "{told}");
    }
}

#[test]
fn headers_that_lie_about_their_size_end_in_words() {
    let place = Stranger::new();
    std::fs::write(place.path("model.safetensors"), (1_u64 << 60).to_le_bytes()).unwrap();
    place.refuse(&READING);
    let header = [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &(1_u64 << 60).to_le_bytes(), &(1_u64 << 60).to_le_bytes()];
    std::fs::write(place.0.path("lies.gguf"), header.concat()).unwrap();
    place.refuse(&["score lies.gguf --text hello", "train --model lies.gguf --data answers.jsonl --set train.steps=1"]);
}

/// Waits for the process that carries out a command.
fn find_inner(command: &mut Child) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", command.id());
    let first = || std::fs::read_to_string(&children).ok()?.split(' ').next()?.parse().ok();
    wait_for(command, "a process of the command", first)
}

/// Waits for the process that carries out a command, and until its status, as `/proc` shows it, contains `wanted`.
fn await_status(command: &mut Child, wanted: &str) -> u32 {
    let inner = find_inner(command);
    let status = || std::fs::read_to_string(format!("/proc/{inner}/status")).ok();
    wait_for(command, wanted, || status()?.contains(wanted).then_some(inner))
}

#[test]
fn a_command_reads_a_model_confined_and_without_the_secrets_of_its_caller() {
    let place = Stranger::new();
    let mut command = place.command("chat model");
    command.env("HF_TOKEN", "secret").env("AWS_SECRET_ACCESS_KEY", "secret").env("HF_ENDPOINT", "https://a:secret@b");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let inner = format!("/proc/{}", await_status(&mut child, "Seccomp:\t2"));
    let environment = std::fs::read(format!("{inner}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    let has_path = environment.split('\0').any(|variable| variable.starts_with("PATH="));
    assert!(!environment.contains("secret") && !has_path, "{environment}");
    for thread in std::fs::read_dir(format!("{inner}/task")).unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn a_command_that_is_killed_is_told_and_one_that_is_interrupted_ends_as_before() {
    let place = Stranger::with_template(&searches());
    let begin = || {
        let mut child = place.command(RENDERING[0]).spawn().unwrap();
        // It ends with its parent by then.
        let inner = await_status(&mut child, "NoNewPrivs:\t1");
        (child, inner)
    };
    let (child, inner) = begin();
    send(inner, Signal::KILL);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let told = errors(&output);
    assert!(told.contains("error[process]: the process of this command was killed (signal 9, SIGKILL)"), "{told}");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (child, _) = begin();
        send(child.id(), signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), errors(&output).as_str()), (Some(code), ""));
    }
    let (mut child, inner) = begin();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(inner);
}
