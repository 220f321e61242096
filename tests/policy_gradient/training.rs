//! Runs on a tiny random model: accumulation, stops, held-out prompts, and a method that lives outside.

use serde_json::json;

use crate::support::built::built_path;
use crate::support::golden::root;
use crate::support::tiny_run::Workspace;

/// A tiny random model, prompts, and a verifier that likes short answers.
fn workspace() -> Workspace {
    let place = Workspace::new();
    let prompt = |number: usize| json!({ "prompt": format!("Say {number}{}", "!".repeat(number % 5)), "answer": "x" });
    place.write_lines("data.jsonl", (0..16).map(prompt));
    place
}

/// The settings of a small run of a method over those.
fn run_of(method: &str) -> Vec<String> {
    let settings = [
        "data.max-length=40",
        "method.completions=4",
        "train.steps=4",
        "train.rate=0.001",
        "verifier.0.use=overlong",
        "verifier.0.length=40",
        "verifier.0.buffer=40",
        "verifier.0.unit=characters",
    ];
    settings.iter().map(ToString::to_string).chain([format!("method.use={method}")]).collect()
}

fn train(place: &Workspace, name: &str, settings: &[String], more: &[&str]) {
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    place.train(name, &settings).unwrap();
}

#[test]
fn accumulation_changes_neither_the_completions_nor_the_gradient() {
    let place = workspace();
    for (method, more) in [("grpo", "method.beta=0.1"), ("rlvr", "method.learn-from-truncated=true")] {
        let settings = [run_of(method), vec![more.to_owned()]].concat();
        let rows = [(8, 1), (4, 2), (1, 8)].map(|(batch, accumulation)| {
            let name = format!("{method}-{batch}");
            let (batch, accumulation) = (format!("train.batch={batch}"), format!("train.accumulation={accumulation}"));
            train(&place, &name, &settings, &["train.steps=1", &batch, &accumulation]);
            place.metrics(&name).remove(0)
        });
        for other in &rows[1..] {
            for name in ["reward", "completions-mean-length", "loss", "entropy", "gradient-norm"] {
                let (one, two) = (rows[0][name].as_f64().unwrap(), other[name].as_f64().unwrap());
                assert!((one - two).abs() <= 1e-6 * one.abs().max(1.0), "{method} {name}: {one} and {two}");
            }
        }
        assert!(
            rows[0]["gradient-norm"].as_f64().unwrap() > 1e-3,
            "the rewards differ, so there is something to learn"
        );
    }
}

#[test]
fn a_run_that_was_stopped_writes_the_same_completions_when_it_goes_on() {
    let place = workspace();
    let settings = run_of("grpo");
    let settings: Vec<&str> =
        settings.iter().map(String::as_str).chain(["method.entropy-target=1", "train.batch=4"]).collect();
    place.train("whole", &settings).unwrap();
    place.stop("halved", &settings, 2);
    place.resume("halved", &settings).unwrap();

    let adapter = |run: &str| place.bytes(run, "adapter_model.safetensors");
    assert!(adapter("whole") == adapter("halved"));
    let rewards = |run: &str| place.metrics(run).iter().map(|row| row["reward"].clone()).collect::<Vec<_>>();
    assert_eq!(rewards("whole"), rewards("halved"));
    let (inputs, _) = place.replay("halved", &[]);
    assert!(inputs.iter().any(|one| one.what == "verifier.0.sha256"));
}

#[test]
fn held_out_prompts_are_answered_and_judged_along_the_way() {
    let place = workspace();
    place.write("held-out.jsonl", "{\"prompt\": \"Say it\", \"answer\": \"\"}\n{\"prompt\": \"No\"}\n");
    let held_out = place.set("data.validation", "held-out.jsonl");
    train(&place, "looking", &run_of("rlvr"), &["train.validate-every=2", &held_out, "train.validate-completions=3"]);
    let rows = place.metrics("looking");
    let looks: Vec<_> = rows.iter().filter(|row| row.contains_key("validation-pass-at-1")).collect();
    assert_eq!(looks.iter().map(|row| row["step"].clone()).collect::<Vec<_>>(), [0, 2, 4]);
    assert!(looks.iter().all(|row| row["validation-reward"].as_f64().unwrap() <= 0.0));
    assert!(looks[0].contains_key("validation-pass-at-3"));
    let step = rows.iter().find(|row| row.contains_key("pass-at-k")).unwrap();
    assert!(step.contains_key("reward-overlong-mean") && step["reward-overlong-failed"] == 0.0);
    let lock = place.text("looking", "run.lock");
    assert!(lock.contains("[[verifier]]\nname = \"overlong\""), "{lock}");
}

#[test]
fn held_out_prompts_without_a_verifier_are_refused_before_the_first_step() {
    let place = workspace();
    let held_out = place.set("data.validation", "data.jsonl");
    let refused = place.plan("unjudged", &["method.use=grpo", "data.max-length=40", &held_out]).err().unwrap();
    assert_eq!(refused.to_string(), "`grpo` learns from rewards, and the run has no verifier");
}

#[test]
fn a_method_that_lives_outside_learns_by_the_sdk_alone() {
    let source = std::fs::read_to_string(root().join("examples/9-rloo/src/lib.rs")).unwrap();
    assert!(source.lines().count() < 100);
    let place = workspace();
    train(&place, "rloo", &run_of(&built_path("examples/9-rloo")), &["train.batch=4"]);
    let rows = place.metrics("rloo");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["gradient-norm"].as_f64().unwrap() > 0.0), "{rows:?}");
    assert_eq!(rows[0]["kl"], 0.0);
    assert_ne!(rows[3]["kl"], 0.0);
}
