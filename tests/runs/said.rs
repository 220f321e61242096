//! What a method says is lines, however its step ends; and so is a gradient that it never got.

use serde_json::json;
use tunebox_training::{Error, Event, Summary};

use crate::support::guest;
use crate::support::manifested::manifested;
use crate::support::tiny_run::{TestObserver, Workspace};

/// Logs a line in its `init` and one in every step, and back-propagates a loss that hangs on nothing.
const TALKS: &str = r#"
(data (i32.const 256) "\01\00\00\00")
(data (i32.const 272) "hello")
(func $init (param i32 i32) (result i32)
  (call $run/log (i32.const 272) (i32.const 4))
  (call $INIT))
(func $step (param i32) (result i32)
  (call $run/log (i32.const 272) (i32.const 5))
  (call $run/log (i32.const 272) (i32.const 3000))
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $learn/backward (call $handle) (i32.const 64))
  (call $STEP))
(func $trap (result i32) (unreachable))
"#;

/// A run of two steps whose method answers `init` and `step` so, and what was lines of it, in order.
fn run_method(init: &str, step: &str) -> (Result<Summary, Error>, Vec<String>) {
    let place = Workspace::new();
    let bytes = guest::component(&TALKS.replace("$INIT", init).replace("$STEP", step));
    let bytes = manifested("talks", bytes, json!({ "metrics": ["loss"] }));
    let method = place.write_component("method.use", "talks.wasm", &bytes);
    let mut watcher = TestObserver::new();
    let ended = place.train_with("talks", &[&method, "train.steps=2"], &mut watcher);
    let lines = watcher.events.into_iter().filter_map(|event| match event {
        Event::Log { step, line } => Some(format!("{step} {line}")),
        Event::Warning { text } => (text.contains("of the method") || text.contains("refused")).then_some(text),
        _ => None,
    });
    (ended, lines.collect())
}

#[test]
fn what_a_method_logged_before_it_failed_is_reported_once() {
    for end in ["$pass-on", "$trap"] {
        let (ended, lines) = run_method("$done", end);
        assert!(ended.is_err());
        assert_eq!(lines[..2], ["0 hell", "1 hello"], "{end}");
        assert!(lines[2].contains("a log line of the method was too much or too long"), "{lines:?}");
        assert_eq!(lines.len(), 3, "{lines:?}");
    }
    let (ended, lines) = run_method("$trap", "$done");
    assert!(ended.is_err());
    assert_eq!(lines, ["0 hell"]);
}

/// Logs a line in each of its functions.
const NARRATES: &str = r#"
(data (i32.const 272) "initstepsaveloaddone")
(func $init (param i32 i32) (result i32) (call $run/log (i32.const 272) (i32.const 4)) (call $done))
(func $step (param i32) (result i32) (call $run/log (i32.const 276) (i32.const 4)) (call $done))
(func $save-state (result i32)
  (call $run/log (i32.const 280) (i32.const 4)) (i64.store (i32.const 0) (i64.const 0)) (i32.const 0))
(func $load-state (param i32 i32) (result i32) (call $run/log (i32.const 284) (i32.const 4)) (call $done))
(func $finish (result i32) (call $run/log (i32.const 288) (i32.const 4)) (call $done))
"#;

#[test]
fn a_line_outside_of_steps_has_the_number_of_finished_steps() {
    let place = Workspace::new();
    let bytes = manifested("narrates", guest::component(NARRATES), json!({ "metrics": ["loss"] }));
    let method = place.write_component("method.use", "narrates.wasm", &bytes);
    let settings = [method.as_str(), "train.steps=2", "train.save-every=1"];
    let lines = |watcher: TestObserver| -> Vec<String> {
        let logged = watcher.events.into_iter().filter_map(|event| match event {
            Event::Log { step, line } => Some(format!("{step} {line}")),
            _ => None,
        });
        logged.collect()
    };
    let mut watcher = TestObserver::new();
    place.train_with("whole", &settings, &mut watcher).unwrap();
    assert_eq!(lines(watcher), ["0 init", "1 step", "1 save", "2 step", "2 save", "2 done"]);

    place.stop("cut", &settings, 1);
    let mut watcher = TestObserver::new();
    place.resume_with("cut", &settings, &mut watcher).unwrap();
    assert_eq!(lines(watcher), ["1 init", "1 load", "2 step", "2 save", "2 done"]);
}

#[test]
fn a_method_that_goes_on_without_the_gradient_that_it_was_refused_is_named_once() {
    let (ended, lines) = run_method("$done", "$done");
    ended.unwrap();
    let refused: Vec<&String> = lines.iter().filter(|line| line.contains("`learn.backward` was refused")).collect();
    assert_eq!(refused.len(), 1, "{lines:?}");
    assert!(refused[0].contains("at step 1, and the method went on"), "{lines:?}");
    assert!(refused[0].contains("depends on no scores or activations for learning"), "{lines:?}");
}
