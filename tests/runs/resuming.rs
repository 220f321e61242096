//! Stopped, killed, taken up again: a run ends in the bits of one that never stopped, or is told why it cannot go on.

use tunebox_foundation::explain::Explain;

use super::{ADAPTER, HARD, losses, whole};
use crate::support::tiny_run::{TestObserver, Workspace, records};

#[test]
fn a_run_stopped_at_ten_and_resumed_ends_in_the_bits_of_one_never_stopped() {
    let place = Workspace::new();
    let summary = place.stop("stopped", &HARD, 10);

    assert!(summary.interrupted);
    assert!(!place.path("runs/stopped").join(ADAPTER).exists());

    let mut watcher = TestObserver::new();
    place.resume_with("stopped", &HARD, &mut watcher).unwrap();

    assert_eq!(watcher.steps, (11..=20).collect::<Vec<_>>());
    assert!(place.bytes("stopped", ADAPTER) == whole(&place), "the adapters differ");
    assert_eq!(losses(&place, "stopped"), losses(&place, "whole"));
}

#[test]
fn a_run_killed_between_checkpoints_ends_in_the_bits_of_one_never_stopped() {
    let place = Workspace::new();
    place.kill("killed", &HARD, 8);
    assert_eq!(place.metrics("killed").len(), 8);

    let mut watcher = TestObserver::new();
    place.resume_with("killed", &HARD, &mut watcher).unwrap();

    assert_eq!(watcher.steps, (6..=20).collect::<Vec<_>>());
    assert!(place.bytes("killed", ADAPTER) == whole(&place), "the adapters differ");
    assert_eq!(losses(&place, "killed"), losses(&place, "whole"));
}

#[test]
fn a_resumed_run_with_another_rate_is_refused_with_the_difference() {
    let place = Workspace::new();
    place.stop("changed", &["train.steps=4"], 2);
    let error = place.resume("changed", &["train.steps=4", "train.rate=0.5"]).unwrap_err();

    assert_eq!(error.to_string(), "the run `changed` cannot go on: `train.rate` was `0.01`, is `0.5`");
    let (settings, checkpoint) = (place.path("runs/changed/run.toml"), place.path("runs/changed/steps/000002"));
    let hint = error.hint().unwrap();
    assert!(hint.contains(&format!("as `{}` has them", settings.display())) && settings.is_file(), "{hint}");
    assert!(hint.contains(&format!("`--set model.adapter={}`", checkpoint.display())) && checkpoint.is_dir(), "{hint}");
}

#[test]
fn a_resumed_run_with_other_data_is_refused() {
    let place = Workspace::new();
    place.stop("moved", &["train.steps=4"], 2);
    place.write("data.jsonl", &records(17));
    let error = place.resume("moved", &["train.steps=4"]).unwrap_err();

    assert_eq!(error.to_string(), "the run `moved` cannot go on: the data file is another");
}

#[test]
fn a_run_with_another_optimizer_resumes_and_its_card_and_lock_name_it() {
    let place = Workspace::new();
    let settings = ["train.steps=6", "train.optimizer=muon", "train.rate=0.001", "train.b-rate-ratio=4"];
    place.train("muon", &settings).unwrap();
    place.stop("halves", &settings, 3);
    let other = [&settings[..], &["train.optimizer=lion"]].concat();
    let error = place.resume("halves", &other).unwrap_err().to_string();
    assert_eq!(error, "the run `halves` cannot go on: `train.optimizer` was `\"muon\"`, is `\"lion\"`");
    place.resume("halves", &settings).unwrap();

    assert!(place.bytes("muon", ADAPTER) == place.bytes("halves", ADAPTER), "the adapters differ");
    let text = |file: &str| place.text("muon", file);
    let card = text("README.md");
    assert!(
        card.contains("| optimizer | muon, momentum 0.95 (Nesterov), ") && card.contains(", 4 times the rate"),
        "{card}"
    );
    let lock = text("run.lock");
    assert!(lock.contains("optimizer = \"muon\"") && lock.contains("b-rate-ratio = 4.0"), "{lock}");
}

#[test]
fn a_run_that_trains_all_weights_resumes_and_leaves_a_model() {
    let place = Workspace::new();
    let settings = ["train.steps=6", "train.adapter.kind=full", "train.rate=0.001"];
    place.train("all", &settings).unwrap();
    place.stop("halves", &settings, 3);
    place.resume("halves", &settings).unwrap();

    assert!(
        place.bytes("all", "model.safetensors") == place.bytes("halves", "model.safetensors"),
        "the weights differ"
    );
    assert!(!place.bytes("all", "tokenizer.json").is_empty());
}

#[test]
fn a_kept_reference_changes_no_bit_of_a_run_or_of_a_resumed_one() {
    let place = Workspace::new();
    let pairs: String = (0..9)
        .map(|number| {
            let answers = (format!("It is {}.", 2 * number), format!("No.{}", "!".repeat(number % 4)));
            format!(
                "{}\n",
                serde_json::json!({ "prompt": format!("{number}?"), "chosen": answers.0, "rejected": answers.1 })
            )
        })
        .collect();
    place.write("data.jsonl", &pairs);
    let settings = ["method.use=dpo", "train.steps=12", "train.batch=2", "train.accumulation=2", "train.save-every=4"];
    let settings = [&settings[..], &["train.adapter.dropout=0.1"]].concat();
    place.train("kept", &settings).unwrap();
    place.train("anew", &[&settings[..], &["train.cache-reference=false"]].concat()).unwrap();
    assert!(place.bytes("kept", ADAPTER) == place.bytes("anew", ADAPTER), "the adapters differ");
    assert!(place.path("runs/kept/reference.cache").exists());
    assert!(!place.path("runs/anew/reference.cache").exists());

    place.stop("halves", &settings, 5);
    place.resume("halves", &settings).unwrap();
    assert!(place.bytes("halves", ADAPTER) == place.bytes("kept", ADAPTER), "the adapters differ");
    assert_eq!(losses(&place, "halves"), losses(&place, "anew"));
}

#[test]
fn a_kept_reference_that_was_damaged_is_made_anew() {
    let place = Workspace::new();
    let line = r#"{"prompt": "2+2?", "chosen": "4", "rejected": "5"}"#;
    place.write("data.jsonl", &format!("{line}\n{line}\n"));
    let settings = ["method.use=dpo", "train.steps=6", "train.save-every=2"];
    place.train("smooth", &settings).unwrap();
    place.stop("hurt", &settings, 3);
    place.write("runs/hurt/reference.cache", "tunebox-logprob1 and nonsense");
    place.resume("hurt", &settings).unwrap();

    assert!(place.bytes("hurt", ADAPTER) == place.bytes("smooth", ADAPTER), "the adapters differ");
}
