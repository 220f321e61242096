//! The best validation ships, whatever stopped the run on the way, and a run that no longer improves can end early.

use std::path::Path;

use serde_json::Value;
use tunebox_foundation::explain::Explain;
use tunebox_training::Event;

use super::ADAPTER;
use crate::support::tiny_run::{TestObserver, Workspace};

/// A run that learns its few records by heart, with checkpoints and validations every five steps.
const HEART: [&str; 6] = [
    "train.steps=40",
    "train.validate-every=5",
    "train.save-every=5",
    "train.batch=2",
    "train.rate=0.02",
    "train.schedule=constant",
];

/// A workspace with validation data that are unlike the training data, and the setting that names them.
fn workspace() -> (Workspace, String) {
    let place = Workspace::new();
    let setting = place.write_unlike();
    (place, setting)
}

/// The steps and validation losses of a run, the first before its first step.
fn looks(place: &Workspace, run: &str) -> Vec<(u64, f64)> {
    let rows = place.metrics(run);
    rows.iter().filter_map(|row| Some((row["step"].as_u64()?, row.get("validation-loss")?.as_f64()?))).collect()
}

/// The step of the lowest validation loss after the first step.
fn best_step(place: &Workspace, run: &str) -> u64 {
    let looks = looks(place, run);
    looks[1..].iter().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap().0
}

/// The lock of a run.
fn lock(place: &Workspace, run: &str) -> toml::Table {
    place.text(run, "run.lock").parse().unwrap()
}

#[test]
fn the_best_validation_ships_and_card_metrics_lock_and_summary_name_it_beside_the_last() {
    let (place, held_out) = workspace();
    let settings = [&HEART[..], &[held_out.as_str(), "train.keep=100"]].concat();
    let summary = place.train("best", &settings).unwrap();
    let (best, looks) = (best_step(&place, "best"), looks(&place, "best"));
    assert!(best > 0 && best < 40 && looks.last().unwrap().1 > 1.03 * looks[best as usize / 5].1, "{looks:?}");

    let checkpoint = |step: u64| place.bytes("best", &format!("steps/{step:06}/{ADAPTER}"));
    assert!(place.bytes("best", ADAPTER) == checkpoint(best), "not the best");
    assert!(checkpoint(best) != checkpoint(40));
    let (low, last) = (looks[best as usize / 5].1, looks.last().unwrap().1);
    let outcome = summary.outcome.unwrap();
    assert_eq!((outcome.shipped, outcome.steps, outcome.is_overfitting, outcome.longer), (best, 40, true, None));
    let row = place.metrics("best").into_iter().find(|row| row.contains_key("shipped")).unwrap();
    assert_eq!((row["shipped"].as_u64(), row["step"].as_u64()), (Some(best), Some(40)));
    assert_eq!((row["best-validation-loss"].as_f64(), row["last-validation-loss"].as_f64()), (Some(low), Some(last)));
    let result = lock(&place, "best")["result"].clone();
    assert_eq!(result["shipped"].as_integer(), Some(best as i64));
    assert_eq!(result["best-validation-loss"].as_float(), Some(low));
    assert_eq!(result["last-validation-loss"].as_float(), Some(last));
    let card = place.text("best", "README.md");
    let sentence = format!(
        "Shipped are the weights of step {best}, the best validation: validation loss {low:.4}; at the end, step 40, it \
         was {last:.4}."
    );
    assert!(card.contains(&sentence), "{card}");
    assert_eq!(place.replay("best", &[]).1.steps, 40);
}

#[test]
fn without_keep_best_the_last_step_ships_and_is_not_praised() {
    let (place, held_out) = workspace();
    let settings = [&HEART[..], &[held_out.as_str(), "train.keep-best=false", "train.keep=1"]].concat();
    place.train("last", &settings).unwrap();
    let names = std::fs::read_dir(place.path("runs/last/steps")).unwrap().count();
    assert!(place.bytes("last", ADAPTER) == place.bytes("last", &format!("steps/000040/{ADAPTER}")));
    let card = place.text("last", "README.md");
    assert!(card.contains("the model learned the records by heart"), "{card}");
    assert!(card.contains("Shipped are the weights of the last step"), "{card}");
    assert!(names <= 2, "{names}");
}

#[test]
fn a_run_with_a_best_step_ends_in_the_same_bits_wherever_it_was_stopped_or_killed() {
    let (place, held_out) = workspace();
    for (kind, more) in [
        ("lora", &["train.adapter.dropout=0.1"][..]),
        ("dora", &["train.adapter.kind=dora"]),
        ("full", &["train.adapter.kind=full", "train.rate=0.01"]),
    ] {
        // One checkpoint is kept, so that of the best is older than all that would be.
        let settings = [&HEART[..], &[held_out.as_str(), "train.keep=1"], more].concat();
        let artifact = if kind == "full" { "model.safetensors" } else { ADAPTER };
        place.train(kind, &settings).unwrap();
        let (whole, best) = (place.bytes(kind, artifact), best_step(&place, kind));
        assert!(best > 0 && best < 30, "{kind}: {:?}", looks(&place, kind));
        let metrics = |run: &str| -> Vec<Value> {
            let rows = place.metrics(run).into_iter().filter(|row| !row.contains_key("rate"));
            rows.map(Value::Object).collect()
        };
        for step in [best, best + 2, 38] {
            let stopped = format!("{kind}-stopped-{step}");
            place.stop(&stopped, &settings, step);
            place.resume(&stopped, &settings).unwrap();
            assert!(place.bytes(&stopped, artifact) == whole, "{stopped}");
            assert_eq!(metrics(&stopped), metrics(kind), "{stopped}");

            let killed = format!("{kind}-killed-{step}");
            place.kill(&killed, &settings, step);
            place.resume(&killed, &settings).unwrap();
            assert!(place.bytes(&killed, artifact) == whole, "{killed}");
        }
    }
}

#[test]
fn a_best_checkpoint_that_cannot_be_written_leaves_the_one_before_and_the_run_resumes_to_the_same_bits() {
    let (place, held_out) = workspace();
    let settings = [&HEART[..], &[held_out.as_str()]].concat();
    place.train("whole", &settings).unwrap();
    let best = best_step(&place, "whole");
    let obstacle = place.path(&format!("runs/torn/steps/.{best:06}.partial"));
    let in_the_way = obstacle.clone();
    // A file where the folder of the best checkpoint would be begun.
    let saved = move |step: u64, _: &Path| {
        if step + 5 == best {
            std::fs::write(&in_the_way, "").unwrap();
        }
    };
    let mut watcher = TestObserver { saved: Box::new(saved), ..TestObserver::new() };
    assert!(best > 5, "{:?}", looks(&place, "whole"));
    place.train_with("torn", &settings, &mut watcher).unwrap_err();
    assert!(!place.path("runs/torn").join(ADAPTER).exists());
    std::fs::remove_file(obstacle).unwrap();
    place.resume("torn", &settings).unwrap();
    assert!(place.bytes("torn", ADAPTER) == place.bytes("whole", ADAPTER), "the adapters differ");
}

#[test]
fn a_resumed_run_with_other_validations_is_refused_only_where_they_decide() {
    let (place, held_out) = workspace();
    let more = "train.validate-every=7";
    for (run, keeps, is_refused) in [("keeps", "train.keep-best=true", true), ("not", "train.keep-best=false", false)] {
        let settings = [&HEART[..], &[held_out.as_str(), keeps]].concat();
        place.stop(run, &settings, 7);
        let resumed = place.resume(run, &[&settings[..], &[more]].concat());
        let wanted = format!("the run `{run}` cannot go on: `train.validate-every` was `5`, is `7`");
        assert_eq!(resumed.err().map(|error| error.to_string()), is_refused.then_some(wanted));
    }
    let settings = [&HEART[..], &[held_out.as_str()]].concat();
    place.stop("moved", &settings, 7);
    place.write("held-out.jsonl", "{\"prompt\": \"Who?\", \"completion\": \"You.\"}\n");
    let error = place.resume("moved", &settings).unwrap_err();
    assert_eq!(error.to_string(), "the run `moved` cannot go on: the validation data are others");
}

#[test]
fn a_run_whose_best_checkpoint_is_gone_is_refused_before_it_goes_on() {
    let (place, held_out) = workspace();
    let settings = [&HEART[..], &[held_out.as_str(), "train.keep=1"]].concat();
    place.stop("gone", &settings, 33);
    let best = place.path(&format!("runs/gone/steps/{:06}", best_step(&place, "gone")));
    std::fs::remove_dir_all(&best).unwrap();
    let error = place.resume("gone", &settings).unwrap_err();
    assert!(error.to_string().ends_with("the checkpoint of its best validation is missing"), "{error}");
}

#[test]
fn a_run_that_no_longer_improves_ends_by_its_patience_and_replays() {
    let (place, held_out) = workspace();
    let settings = [&HEART[..], &[held_out.as_str(), "train.patience=2", "train.keep=2"]].concat();
    let summary = place.train("patient", &settings).unwrap();
    let best = best_step(&place, "patient");
    assert_eq!((summary.step, summary.total), (best + 10, 40), "{:?}", looks(&place, "patient"));
    let outcome = summary.outcome.unwrap();
    assert_eq!((outcome.patience, outcome.shipped), (Some(2), best));
    let said = format!("The run ended after {} of 40 steps: 2 validations in a row brought no better score", best + 10);
    assert!(place.text("patient", "README.md").contains(&said));
    assert_eq!(lock(&place, "patient")["result"]["patience"].as_integer(), Some(2));
    assert_eq!(place.replay("patient", &[]).1.steps, best + 10);

    // Killed after its last checkpoint and before its artifact, it does no further step.
    place.stop("late", &settings, best + 10);
    assert!(place.bytes("late", ADAPTER) == place.bytes("patient", ADAPTER), "the stop came too late to matter");

    // With more patience it goes on as if it had never ended.
    let without = [&HEART[..], &[held_out.as_str(), "train.keep=2"]].concat();
    place.resume("patient", &without).unwrap();
    place.train("straight", &without).unwrap();
    assert!(place.bytes("patient", ADAPTER) == place.bytes("straight", ADAPTER), "the adapters differ");
    assert_eq!(looks(&place, "patient"), looks(&place, "straight"));
    assert_eq!(place.replay("patient", &[]).1.steps, 40);
}

#[test]
fn a_validation_that_rises_while_the_training_loss_falls_is_a_warning_once() {
    let (place, held_out) = workspace();
    let mut watcher = TestObserver::new();
    place.train_with("warned", &[&HEART[..], &[held_out.as_str()]].concat(), &mut watcher).unwrap();
    let warnings = watcher.events.iter().filter_map(|event| match event {
        Event::Warning { text } if text.contains("learns the records by heart") => Some(text),
        _ => None,
    });
    let risen: Vec<&String> = warnings.collect();
    assert_eq!(risen.len(), 1, "{risen:?}");
    let best = best_step(&place, "warned");
    assert!(risen[0].contains(&format!("at step {best} to ")), "{risen:?}");
    assert!(risen[0].contains(&format!("the weights of step {best} are kept and will be shipped")), "{risen:?}");
}

#[test]
fn what_cannot_be_the_best_is_an_error_of_the_settings() {
    let (place, held_out) = workspace();
    let refused = |more: &[&str]| place.plan("refused", more).err().unwrap().explanation();
    for key in ["train.keep-best=true", "train.patience=2"] {
        let error = refused(&[key]);
        assert!(error.what.ends_with("compares scores of validation data, and the run has none"), "{}", error.what);
        assert!(error.hint.unwrap().contains("`--set data.validation=FILE`"));
    }
    place.write("contrast.jsonl", "{\"positive\": \"Yes.\", \"negative\": \"No.\"}\n");
    let [data, validation] =
        ["data.path", "data.validation"].map(|key| format!("{key}={}", place.path("contrast.jsonl").display()));
    let steer = ["method.use=steer", &data, &validation];
    let error = refused(&[&steer[..], &["train.keep-best=true"]].concat());
    assert_eq!(error.what, "`steer` trains nothing, so no step of it is better than another");
    assert!(!place.path("runs").exists());
    assert!(place.plan("fine", &["train.keep-best=true", &held_out]).is_ok());
}

#[test]
fn of_pairs_the_last_step_ships_unless_the_best_is_asked_for() {
    let place = Workspace::new();
    let pairs = "{\"prompt\": \"2+2?\", \"chosen\": \"4\", \"rejected\": \"5\"}\n".repeat(4);
    place.write("data.jsonl", &pairs);
    let held_out = place.set("data.validation", "data.jsonl");
    let settings = ["method.use=dpo", "train.steps=6", "train.validate-every=2", &held_out];
    let shipped = |run: &str, more: &[&str]| {
        let settings = [&settings[..], more].concat();
        let outcome = place.train(run, &settings).unwrap().outcome.unwrap();
        (outcome.shipped, outcome.best.unwrap().step)
    };
    assert_eq!(shipped("pairs", &[]).0, 6);
    let (shipped, best) = shipped("asked", &["train.keep-best=true"]);
    assert_eq!(shipped, best);
}
