//! `tunebox init`: what it writes passes `tunebox check` as it is, for every built-in method.

use std::path::Path;
use std::process::Command;

use tunebox_package::builtin;

use super::ROOT;
use crate::support::transcript::BINARY;

/// A folder with the sample's model as `model`, and its data for a method as `data.jsonl`.
fn folder(data: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let sample = Path::new(ROOT).join("runtime/training/sample");
    std::fs::create_dir(place.path().join("model")).unwrap();
    for entry in std::fs::read_dir(sample.join("model")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, place.path().join("model").join(path.file_name().unwrap())).unwrap();
    }
    std::fs::copy(sample.join(data), place.path().join("data.jsonl")).unwrap();
    place
}

/// The exit code and both streams of a command in a folder.
fn run(place: &Path, words: &str) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(words.split(' ')).current_dir(place).env("NO_COLOR", "1").output().unwrap();
    let text = [output.stdout, output.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned()).concat();
    (output.status.code(), text)
}

#[test]
fn a_new_run_file_passes_the_check_for_every_built_in_method() {
    for method in builtin::list() {
        let data = match method.name {
            "rlvr" => "grpo.jsonl".to_owned(),
            name => format!("{name}.jsonl"),
        };
        let place = folder(&data);
        let (code, text) = run(place.path(), &format!("init --method {}", method.name));
        assert_eq!(code, Some(0), "{}: {text}", method.name);
        let (code, text) = run(place.path(), "check --yes");
        assert_eq!(code, Some(0), "{}: {text}", method.name);
    }
}

#[test]
fn every_default_in_a_new_run_file_is_a_value_that_its_key_takes() {
    for (method, data) in [("grpo", "grpo.jsonl"), ("dpo", "dpo.jsonl"), ("abliterate", "abliterate.jsonl")] {
        let place = folder(data);
        run(place.path(), &format!("init --method {method}"));
        let path = place.path().join("run.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let given = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.ends_with('…') && !rest.contains(['(', '`']) => {
                rest.to_owned()
            }
            _ => line.to_owned(),
        };
        let all: Vec<String> = text.lines().map(given).collect();
        assert!(all.iter().filter(|line| line.contains(" = ") && !line.starts_with('#')).count() > 25, "{text}");
        std::fs::write(&path, all.join("\n")).unwrap();
        let (code, text) = run(place.path(), "check --yes");
        assert_eq!(code, Some(0), "{method}: {text}");
    }
}

#[test]
fn a_table_of_text_is_data_as_well() {
    let place = folder("lora.jsonl");
    std::fs::rename(place.path().join("data.jsonl"), place.path().join("notes.txt")).unwrap();
    std::fs::write(place.path().join("pairs.csv"), "question,answer\nWhat is 2 + 3?,It is 5.\n").unwrap();
    let (code, text) = run(place.path(), "init");
    assert_eq!(code, Some(0), "{text}");
    let file = std::fs::read_to_string(place.path().join("run.toml")).unwrap();
    assert!(file.contains("\n[data]\npath = \"pairs.csv\"\n") && file.contains("\nuse = \"lora\"\n"), "{file}");
    assert!(!file.contains("\n# path = "), "{file}");
    let (code, text) = run(place.path(), "check --yes");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn the_shape_of_the_first_record_proposes_the_method() {
    for (data, method) in [
        ("lora.jsonl", "lora"),
        ("orpo.jsonl", "dpo"),
        ("kto.jsonl", "kto"),
        ("grpo.jsonl", "grpo"),
        ("abliterate.jsonl", "abliterate"),
        ("steer.jsonl", "steer"),
    ] {
        let place = folder(data);
        let (code, text) = run(place.path(), "init");
        assert_eq!(code, Some(0), "{text}");
        let file: toml::Table = std::fs::read_to_string(place.path().join("run.toml")).unwrap().parse().unwrap();
        assert_eq!(file["method"]["use"].as_str(), Some(method), "{data}");
    }
}
