//! Claims about data that a run names on a hub.

use std::process::Command;

use crate::support::fake_hub::{COMMIT, Server};
use crate::support::workspace::{Workspace, text as output_text};

/// The address of the data, whose shards the server has.
const ADDRESS: &str = "hf://datasets/acme/tiny";

/// A hub with the data of a workspace: two shards to train on, one to validate, and one that nothing asks for.
fn hub(place: &Workspace) -> Server {
    let data = std::fs::read_to_string(place.path("answers.jsonl")).unwrap();
    let lines: Vec<&str> = data.split_inclusive('\n').collect();
    let [first, second, held_out] = [&lines[..15], &lines[15..30], &lines[30..]].map(|part| part.concat().into_bytes());
    std::fs::create_dir_all(place.path("local/data")).unwrap();
    let files: [(&str, &[u8]); 4] = [
        ("data/train-00000-of-00002.jsonl", &first),
        ("data/train-00001-of-00002.jsonl", &second),
        ("data/validation-00000-of-00001.jsonl", &held_out),
        ("data/train_raw-00000-of-00001.jsonl", b"no record"),
    ];
    for (name, bytes) in files {
        std::fs::write(place.path("local").join(name), bytes).unwrap();
    }
    Server::start(&files)
}

/// The program in this folder, with the hub and a cache of its own.
fn tunebox(place: &Workspace, hub: &Server, words: &[&str]) -> Command {
    let mut command = place.tunebox(words);
    command.env("HF_ENDPOINT", &hub.address).env("HF_HUB_CACHE", place.path("hub"));
    command
}

/// Runs the program and returns what it writes; fails the test unless it succeeds.
fn succeed(place: &Workspace, hub: &Server, words: &[&str]) -> String {
    let output = tunebox(place, hub, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", output_text(&output));
    output_text(&output)
}

/// The digests of the training and validation data in the lock of a run.
fn digests(place: &Workspace, run: &str) -> [String; 2] {
    let lock: toml::Table = std::fs::read_to_string(place.path(run).join("run.lock")).unwrap().parse().unwrap();
    ["data", "validation"].map(|key| lock[key]["sha256"].as_str().unwrap().to_owned())
}

#[test]
fn a_run_on_data_of_a_hub_is_that_on_the_same_files_here_and_goes_on_without_the_hub() {
    let place = Workspace::with_sample(40);
    let hub = hub(&place);
    let train = |name: &str, data: &str, more: &[&str]| {
        let validation = format!("data.validation={data}");
        let words = ["train", "--model", "model", "--data", data, "--set", &validation, "--name", name];
        succeed(
            &place,
            &hub,
            &[
                &words[..],
                &["--set", "train.validate-every=1", "--set", "train.keep=1", "--set", "train.steps=2"],
                more,
            ]
            .concat(),
        )
    };
    let told = train("far", ADDRESS, &[]);
    assert!(told.contains(&format!("{ADDRESS}@{COMMIT}/data/train-00000-of-00002.jsonl and 1 more")), "{told}");
    let asked = hub.asked();
    assert!(!asked.iter().any(|path| path.contains("train_raw")), "{asked:?}");
    train("near", "local", &[]);
    assert_eq!(digests(&place, "runs/far"), digests(&place, "runs/near"));
    let settings = std::fs::read_to_string(place.path("runs/far/run.toml")).unwrap();
    let pinned = format!("\"{ADDRESS}@{COMMIT}\"");
    assert_eq!(settings.matches(&pinned).count(), 2, "{settings}");

    succeed(&place, &hub, &["verify", "runs/far", "--replay", "--offline"]);
    train("far", ADDRESS, &["--resume", "--offline", "--set", "train.steps=3"]);
    assert_eq!(hub.asked().len(), asked.len(), "{:?}", hub.asked());
}

#[test]
fn commands_that_read_data_read_that_of_a_hub_within_their_rings() {
    let place = Workspace::with_sample(40);
    let hub = hub(&place);
    let told = succeed(&place, &hub, &["data", ADDRESS, "--model", "model"]);
    assert!(told.contains("30 records"), "{told}");
    let run = "init run.toml --model model --data hf://datasets/acme/tiny/data/train-00000-of-00002.jsonl --offline";
    succeed(&place, &hub, &run.split(' ').collect::<Vec<_>>());
    let told = succeed(&place, &hub, &["check", "run.toml"]);
    assert!(told.contains("15 records"), "{told}");
    let told = succeed(&place, &hub, &["eval", "model", "--data", ADDRESS]);
    assert!(told.contains("10 records"), "{told}");
}

#[test]
fn what_a_hub_lacks_is_said_with_what_to_name_instead() {
    let place = Workspace::with_sample(40);
    let hub = hub(&place);
    let told = |words: &[&str]| {
        let output = tunebox(&place, &hub, words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
        output_text(&output)
    };
    let told_data = |address: &str| told(&["data", address]);
    let text = told_data("hf://datasets/acme/tiny/english");
    assert!(text.contains("name a folder of the data set that has some: `data`"), "{text}");
    let text = told(&["data", ADDRESS, "--split", "test"]);
    assert!(text.contains("it has `train`, `train_raw`, `validation`"), "{text}");
    let text = told_data("hf://datasets/tiny");
    assert!(text.contains("`hf://datasets/tiny` is no address of a data set"), "{text}");
    std::fs::write(
        place.path("run.toml"),
        "model.path = \"model\"\ndata.path = \"hf://datasets/acme/absent\"\nmethod.use = \"lora\"\n",
    )
    .unwrap();
    let text = told(&["train", "run.toml"]);
    assert!(
        text.contains("data set `hf://datasets/acme/absent@main` cannot be fetched") && text.contains("404"),
        "{text}"
    );
}
