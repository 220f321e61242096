//! A run that is resumed with more steps than before, and what a finished run keeps for that.

use std::sync::atomic::AtomicBool;

use tunebox_foundation::explain::Explain;
use tunebox_sandbox::Compiling;
use tunebox_training::{RunSettings, plan, run, verify};

use super::{ADAPTER, losses};
use crate::support::tiny_run::{TestObserver, Workspace};

/// The names of a run's checkpoints.
fn checkpoints(place: &Workspace, run: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("runs").join(run).join("steps")).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The learning rates of a run's steps.
fn rates(place: &Workspace, run: &str) -> Vec<f64> {
    place.metrics(run).iter().filter_map(|row| row.get("rate")?.as_f64()).collect()
}

/// Fails if a replay of the run ends in other bits.
fn assert_replays(place: &Workspace, run: &str) {
    let (inputs, _) = place.replay(run, &[]);
    assert!(inputs.iter().all(tunebox_training::Comparison::is_same), "{inputs:?}");
}

#[test]
fn a_finished_run_goes_on_with_more_steps_and_its_schedule_is_stretched_from_there() {
    let place = Workspace::new();
    let held_out = place.set("data.validation", "data.jsonl");
    let of =
        |steps: &'static str| [steps, "train.keep=1", "train.validate-every=4", "train.adapter.dropout=0.1", &held_out];
    place.train("more", &of("train.steps=10")).unwrap();
    let summary = place.resume("more", &of("train.steps=20")).unwrap();
    assert_eq!((summary.step, summary.total, losses(&place, "more").len()), (20, 20, 20));

    let rates = rates(&place, "more");
    let rate = |step: usize, steps: f64| 0.01 * (1.0 - step as f64 / steps);
    assert!((rates[9] - rate(9, 10.0)).abs() < 1e-9 && (rates[10] - rate(10, 20.0)).abs() < 1e-9, "{rates:?}");
    let lock = place.text("more", "run.lock");
    assert!(lock.contains("steps = 20\n") && lock.contains("[[extended]]\nafter = 10\nsteps = 10\n"), "{lock}");
    let shipped = place.metrics("more").iter().filter(|row| row.contains_key("shipped")).count();
    assert_eq!(shipped, 1, "what was written at the end before is written once");
    let looks: Vec<_> = place
        .metrics("more")
        .iter()
        .filter(|row| row.contains_key("validation-loss"))
        .map(|row| row["step"].as_u64().unwrap())
        .collect();
    assert_eq!(looks, [0, 4, 8, 10, 12, 16, 20]);
    assert_replays(&place, "more");

    // Stopped after it went on, and resumed, it ends in the same bits.
    place.train("twice", &of("train.steps=10")).unwrap();
    let mut watcher = TestObserver { stop_after: Some(13), ..TestObserver::new() };
    assert!(place.resume_with("twice", &of("train.steps=20"), &mut watcher).unwrap().interrupted);
    let error = verify(&place.path("runs/twice"), &[], true, Compiling::default()).err().unwrap();
    assert_eq!(error.to_string(), "the run is not finished");
    // By its own run file, which has the new length.
    let mut settings = RunSettings::load(&place.path("runs/twice/run.toml"), &[]).unwrap();
    settings.resume = true;
    run(plan(settings).unwrap(), &mut TestObserver::new(), &AtomicBool::new(false)).unwrap();
    assert!(place.bytes("twice", ADAPTER) == place.bytes("more", ADAPTER), "the adapters differ");
    assert_replays(&place, "twice");
}

#[test]
fn a_stopped_run_goes_on_with_more_epochs_and_not_with_fewer_steps() {
    let place = Workspace::new();
    place.stop("epochs", &["train.epochs=2"], 3);
    for (fewer, told) in [
        ("train.epochs=1", "the run `epochs` cannot go on: `train.epochs` was `2`, is `1`"),
        ("train.steps=5", "the run `epochs` cannot go on: it was planned for 8 steps, now 5"),
    ] {
        let error = place.resume("epochs", &[fewer]).unwrap_err();
        assert_eq!(error.to_string(), told);
    }
    let summary = place.resume("epochs", &["train.epochs=3"]).unwrap();
    assert_eq!(summary.step, 12);
    assert_replays(&place, "epochs");
}

#[test]
fn a_finished_run_keeps_no_checkpoint_and_says_what_is_lost() {
    let place = Workspace::new();
    let summary = place.train("done", &["train.steps=4", "train.save-every=1"]).unwrap();
    assert_eq!((summary.checkpoint, place.path("runs/done/steps").exists()), (None, false));
    let error = place.resume("done", &["train.steps=8"]).unwrap_err().explanation();
    assert_eq!(error.what, "the run `done` is finished");
    assert!(error.why.unwrap().contains("the state of the optimizer"));
    let hint = error.hint.unwrap();
    let adapter = format!("`--set model.adapter={}`", place.path("runs/done").display());
    assert!(hint.contains(&adapter) && hint.contains("`--set train.keep=1`"), "{hint}");

    place.train("kept", &["train.steps=4", "train.keep=1"]).unwrap();
    assert_eq!(checkpoints(&place, "kept"), ["000004"]);
    let error = place.resume("kept", &["train.steps=4", "train.keep=1"]).unwrap_err();
    assert!(error.hint().unwrap().starts_with("for more steps, raise `train.epochs` or `train.steps`"), "{error}");
    assert_eq!(place.resume("kept", &["train.steps=6"]).unwrap().step, 6);
}

#[test]
fn a_loss_that_was_still_falling_keeps_the_last_checkpoint_and_the_advice_can_be_followed() {
    let place = Workspace::new();
    let summary = place.train("falling", &["train.epochs=4", "train.rate=0.002"]).unwrap();
    let losses = losses(&place, "falling");
    let outcome = summary.outcome.unwrap();
    assert_eq!(outcome.longer.as_deref(), Some("train.epochs=8"), "{losses:?}");
    assert_eq!(checkpoints(&place, "falling"), ["000016"]);
    let card = place.text("falling", "README.md");
    assert!(
        card.contains("The loss was still falling at the end: a longer run (`train.epochs=8`) may be better."),
        "{card}"
    );
    let longer = ["train.epochs=4", "train.rate=0.002", "train.epochs=8"];
    assert_eq!(place.resume("falling", &longer).unwrap().step, 32);
}

#[test]
fn a_length_that_no_run_had_is_damage() {
    let place = Workspace::new();
    place.stop("run", &["train.steps=4"], 2);
    let state = place.path("runs/run/steps/000002/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    for (from, to) in [
        ("\"planned\": 4", "\"planned\": 4, \"extended\": [{\"after\": 2, \"steps\": 1}]"),
        ("\"best\": null", "\"best\": {\"step\": 3, \"score\": {\"loss\": 0}}"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        std::fs::write(&state, changed).unwrap();
        let error = place.resume("run", &["train.steps=4"]).unwrap_err();
        assert!(error.to_string().contains("is damaged: it claims lengths or validations"), "{error}");
    }
}
