//! `tunebox init`: what it writes passes `tunebox check` as it is, for every built-in method.

use tunebox_package::builtin;

use crate::support::workspace::Workspace;

/// A folder with the sample's model as `model`, and its data for a method as `data.jsonl`.
fn folder(data: &str) -> Workspace {
    let place = Workspace::with_model();
    place.copy_records(data, "data.jsonl", usize::MAX);
    place
}

/// Runs the program, which must succeed.
fn run(place: &Workspace, words: &str) {
    place.succeed(&words.split(' ').collect::<Vec<_>>());
}

#[test]
fn a_new_run_file_passes_the_check_for_every_built_in_method() {
    for method in builtin::list() {
        let data = match method.name {
            "rlvr" => "grpo.jsonl".to_owned(),
            name => format!("{name}.jsonl"),
        };
        let place = folder(&data);
        run(&place, &format!("init --method {}", method.name));
        run(&place, "check --yes");
    }
}

#[test]
fn every_default_in_a_new_run_file_is_a_value_that_its_key_takes() {
    for (method, data) in [("grpo", "grpo.jsonl"), ("dpo", "dpo.jsonl"), ("abliterate", "abliterate.jsonl")] {
        let place = folder(data);
        run(&place, &format!("init --method {method}"));
        let text = place.read("run.toml");
        let given = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.ends_with('…') && !rest.contains(['(', '`']) => {
                rest.to_owned()
            }
            _ => line.to_owned(),
        };
        let all: Vec<String> = text.lines().map(given).collect();
        assert!(all.iter().filter(|line| line.contains(" = ") && !line.starts_with('#')).count() > 25, "{text}");
        place.write("run.toml", &all.join("\n"));
        run(&place, "check --yes");
    }
}

#[test]
fn a_table_of_text_is_data_as_well() {
    let place = folder("lora.jsonl");
    std::fs::rename(place.path("data.jsonl"), place.path("notes.txt")).unwrap();
    place.write("pairs.csv", "question,answer\nWhat is 2 + 3?,It is 5.\n");
    run(&place, "init");
    let file = place.read("run.toml");
    assert!(file.contains("\n[data]\npath = \"pairs.csv\"\n") && file.contains("\nuse = \"lora\"\n"), "{file}");
    assert!(!file.contains("\n# path = "), "{file}");
    run(&place, "check --yes");
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
        run(&place, "init");
        let file: toml::Table = place.read("run.toml").parse().unwrap();
        assert_eq!(file["method"]["use"].as_str(), Some(method), "{data}");
    }
}
