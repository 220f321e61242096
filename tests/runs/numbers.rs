//! What a run computes does not depend on how it is cut up, looked at or begun.

use serde_json::json;
use tunebox_training::Event;

use super::{ADAPTER, HARD, losses, whole};
use crate::support::guest;
use crate::support::manifested::manifested;
use crate::support::tiny_run::{TestObserver, Workspace, records};

#[test]
fn two_micro_batches_of_two_are_one_batch_of_four() {
    let place = Workspace::new();
    let run = |name: &str, batch: &str, accumulation: &str| {
        place.train(name, &["train.steps=4", batch, accumulation]).unwrap();
        let rows = place.metrics(name);
        let column = |key: &str| rows.iter().map(|row| row[key].as_f64().unwrap()).collect::<Vec<f64>>();
        (column("loss"), column("gradient-norm"))
    };
    let four = run("four", "train.batch=4", "train.accumulation=1");
    let two = run("two", "train.batch=2", "train.accumulation=2");
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1.0));

    assert_eq!(four.0.len(), 4);
    assert!(near(&four.0, &two.0), "losses {four:?} {two:?}");
    assert!(near(&four.1, &two.1), "gradient norms {four:?} {two:?}");
}

#[test]
fn training_makes_the_loss_smaller() {
    let place = Workspace::new();
    place.train("learns", &["train.steps=30"]).unwrap();
    let losses = losses(&place, "learns");

    assert!(losses[29] < 0.5 * losses[0], "{losses:?}");
}

/// Patches the last block in its first step, and keeps the patch.
const PATCHES: &str = r#"
(func $step (param i32) (result i32)
  (local $vector i32)
  (i32.store (i32.const 256) (call $hidden/dimension))
  (i32.store (i32.const 272) (i32.sub (call $hidden/layers) (i32.const 1)))
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (local.set $vector (call $handle))
  (call $patch/add (i32.const 272) (i32.const 1) (i32.const 3) (local.get $vector) (f32.const 100) (i32.const 0) (i32.const 64))
  (drop (call $handle))
  (call $done))
"#;

#[test]
fn validation_and_answers_are_those_of_the_weights_that_ship_whatever_a_method_patches() {
    let place = Workspace::new();
    place.write("held-out.jsonl", &records(4));
    let held_out = place.set("data.validation", "held-out.jsonl");
    let patches = manifested("patches", guest::component(PATCHES), json!({}));
    let method = place.write_component("method.use", "patches.wasm", &patches);
    let mut watcher = TestObserver::new();
    place
        .train_with("patches", &[&method, &held_out, "train.steps=2", "train.validate-every=1"], &mut watcher)
        .unwrap();
    let rows = place.metrics("patches");
    let looks: Vec<f64> = rows.iter().filter_map(|row| row.get("validation-loss")?.as_f64()).collect();
    assert!(looks.len() == 3 && looks.iter().all(|loss| *loss == looks[0]), "no weight changed: {looks:?}");
    let answered = watcher.events.iter().filter_map(|event| match event {
        Event::Answered { answers, .. } => Some(answers),
        _ => None,
    });
    let answers: Vec<_> = answered.collect();
    assert!(answers.len() == 2 && answers[0] == answers[1], "{answers:?}");
}

#[test]
fn validation_data_is_looked_at_before_during_and_after() {
    let place = Workspace::new();
    place.write("held-out.jsonl", &records(4));
    let held_out = place.set("data.validation", "held-out.jsonl");
    let settings = ["train.steps=6", "train.validate-every=3", &held_out];
    place.train("looks", &settings).unwrap();
    let rows = place.metrics("looks");
    let looks: Vec<_> =
        rows.iter().filter_map(|row| Some((row["step"].as_u64()?, row.get("validation-loss")?))).collect();

    assert_eq!(looks.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 3, 6]);
    assert!(looks[2].1.as_f64() < looks[0].1.as_f64());
    let card = place.text("looks", "README.md");
    assert!(card.contains("Validation loss: "), "{card}");
}

#[test]
fn looking_at_validation_data_changes_no_bit_of_the_run() {
    let place = Workspace::new();
    let held_out = place.set("data.validation", "data.jsonl");
    place.train("seen", &[&HARD[..], &["train.validate-every=2", &held_out]].concat()).unwrap();

    assert!(place.bytes("seen", ADAPTER) == whole(&place), "the adapters differ");
}

#[test]
fn a_run_goes_on_from_the_adapter_of_another() {
    let place = Workspace::new();
    place.train("base", &["train.steps=10"]).unwrap();
    let adapter = place.set("model.adapter", "runs/base");
    place.train("next", &[&adapter, "train.steps=1"]).unwrap();

    assert!(losses(&place, "next")[0] < 0.9 * losses(&place, "base")[0]);
}

#[test]
fn a_method_of_windows_gets_all_records_of_an_update_at_once() {
    let place = Workspace::new();
    let line = |number: u32| serde_json::json!({ "prompt": format!("{number}?"), "completion": "yes", "label": number.is_multiple_of(2) });
    place.write("data.jsonl", &(0..8).map(|number| format!("{}\n", line(number))).collect::<String>());
    let settings = ["method.use=kto", "train.batch=2", "train.accumulation=4", "train.steps=2"];
    place.train("window", &settings).unwrap();
    let row = place.metrics("window").remove(1);

    // A mean reward of good and of bad answers in one line: both kinds were in the one call of the step.
    assert!(row["rewards-chosen"].is_number() && row["rewards-rejected"].is_number());
    assert!(row["kl"].as_f64().unwrap() >= 0.0);
}
