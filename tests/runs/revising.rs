//! A method that is changed while its run goes on, or before that is resumed: what `init` does is done once and over the
//! model of the beginning, and each version is written down once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::json;
use tunebox_package::Manifest;
use tunebox_training::{Error, Event, Observer, Summary, Version, plan, run};

use crate::support::guest;
use crate::support::manifested::manifested;
use crate::support::tiny_run::{TestObserver, Workspace};

/// Draws, reads a row of a matrix and edits that matrix in its `init`, draws in every step, and reports both draws and the
/// sum of the row.
const DRAWS: &str = r#"
(data (i32.const 256) "lossdrawnread")
(data (i32.const 272) "\20\00\00\00")
(global $drawn (mut i32) (i32.const 0))
(global $read (mut i32) (i32.const 0))
(func $draw (result i32)
  (call $tensor/randn (i32.const 256) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))
(func $ones-of-the-width (result i32)
  (call $tensor/ones (i32.const 272) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $handle))
(func $read-one (result i32)
  (call $weights/read-rows (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 64))
  (call $tensor/tensor.sum (call $handle) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))
(func $init (param i32 i32) (result i32)
  (global.set $drawn (call $draw))
  (global.set $read (call $read-one))
  (call $weights/add-outer (i32.const 4) (i32.const 0) (call $ones-of-the-width) (call $ones-of-the-width) (f32.const 0.5) (i32.const 64))
  (call $pass-on))
(func $step (param i32) (result i32)
  STUMBLE
  (call $run/metric-of (i32.const 260) (i32.const 5) (global.get $drawn) (i32.const 64))
  (call $run/metric-of (i32.const 265) (i32.const 4) (global.get $read) (i32.const 64))
  (call $run/metric-of (i32.const 256) (i32.const 4) (call $draw) (i32.const 64))
  (call $pass-on))
"#;

/// The component of a version; each is another, and `stumble` is what it does first in a step.
fn version(number: usize, stumble: &str) -> Vec<u8> {
    let about = json!({ "version": format!("0.{number}.0"), "metrics": ["drawn", "loss", "read"] });
    manifested("draws", guest::component(&DRAWS.replace("STUMBLE", stumble)), about)
}

const SETTINGS: [&str; 4] = ["method.grants=[\"weights\"]", "train.steps=4", "train.save-every=2", "train.keep=3"];

/// An author with one further version.
struct Author {
    next: Option<Vec<u8>>,
    /// Whether it is there before so many steps, or only once a step has failed.
    before: Option<usize>,
    asked: usize,
    swapped: usize,
}

impl Author {
    fn mending(next: Vec<u8>) -> Self {
        Self { next: Some(next), before: None, asked: 0, swapped: 0 }
    }

    fn done() -> Self {
        Self { next: None, before: None, asked: 0, swapped: 0 }
    }
}

/// An author who watches a run.
struct WatchingAuthor<'a>(&'a mut Author, &'a mut TestObserver);

impl Observer for WatchingAuthor<'_> {
    fn event(&mut self, event: &Event) {
        self.1.event(event);
    }

    fn next_version(&mut self, _: &[u8]) -> Option<Version> {
        self.0.asked += 1;
        if self.0.before == Some(self.0.asked) { self.0.next.take().map(Version::Component) } else { None }
    }

    fn wait_for_fix(&mut self, _: &Error, _: &std::sync::atomic::AtomicBool) -> Option<Version> {
        self.0.next.take().map(Version::Component)
    }

    fn report_outcome(&mut self, _: u64, outcome: Result<&Manifest, &Error>) {
        outcome.unwrap();
        self.0.swapped += 1;
    }
}

/// Makes the version the method of the place.
fn save(place: &Workspace, bytes: &[u8]) -> String {
    place.write_component("method.use", "draws.wasm", bytes)
}

/// A run of an author.
fn dev(
    place: &Workspace,
    name: &str,
    method: &str,
    author: &mut Author,
    watcher: &mut TestObserver,
    resume: bool,
) -> Summary {
    let name = format!("run.name={name}");
    let mut settings = place.settings(&[&[name.as_str(), method], &SETTINGS[..]].concat()).unwrap();
    (settings.authoring, settings.resume) = (true, resume);
    let stop = watcher.stop;
    run(plan(settings).unwrap(), &mut WatchingAuthor(author, watcher), stop).unwrap()
}

/// What every step drew, and what the last checkpoint holds of the edit.
fn drawn(place: &Workspace, run: &str) -> (Vec<(f64, f64)>, Vec<u8>) {
    let rows = place.metrics(run);
    let number = |row: &serde_json::Map<String, serde_json::Value>, name: &str| row.get(name)?.as_f64();
    let steps = rows.iter().filter_map(|row| Some((number(row, "drawn")?, number(row, "loss")?)));
    (steps.collect(), place.bytes(run, "steps/000004/edits.safetensors"))
}

/// How often the metrics of a run say that its method changed.
fn written_down(place: &Workspace, run: &str) -> usize {
    place.metrics(run).iter().filter(|row| row.contains_key("method")).count()
}

#[test]
fn what_init_did_is_not_done_again_by_a_run_that_is_resumed() {
    let place = Workspace::new();
    let method = save(&place, &version(1, ""));
    let settings = [&[method.as_str()], &SETTINGS[..]].concat();
    place.train("whole", &settings).unwrap();
    place.stop("stopped", &settings, 2);
    place.resume("stopped", &settings).unwrap();

    let whole = drawn(&place, "whole");
    assert_eq!(whole.0.len(), 4);
    assert!(drawn(&place, "stopped") == whole, "{:?} {:?}", drawn(&place, "stopped").0, whole.0);
}

#[test]
fn a_first_step_that_is_tried_again_begins_before_init() {
    let place = Workspace::new();
    let method = save(&place, &version(2, ""));
    let settings = [&[method.as_str()], &SETTINGS[..]].concat();
    place.train("straight", &settings).unwrap();
    let method = save(&place, &version(1, "(drop (call $draw)) (unreachable)"));
    let mut author = Author::mending(version(2, ""));
    dev(&place, "tried", &method, &mut author, &mut TestObserver::new(), false);

    assert_eq!(author.swapped, 1);
    let straight = drawn(&place, "straight");
    assert!(drawn(&place, "tried") == straight, "{:?} {:?}", drawn(&place, "tried").0, straight.0);
    // It is wholly the version's that came to its first step, and can be done again by it.
    let lock = place.text("tried", "run.lock");
    assert!(written_down(&place, "tried") == 0 && !lock.contains("revised"), "{lock}");
}

#[test]
fn an_init_finds_the_model_of_the_beginning_whenever_it_comes() {
    let place = Workspace::new();
    let read =
        |run: &str| -> Vec<f64> { place.metrics(run).iter().filter_map(|row| row.get("read")?.as_f64()).collect() };
    let method = save(&place, &version(1, ""));
    let mut author = Author { before: Some(3), ..Author::mending(version(2, "")) };
    dev(&place, "swapped", &method, &mut author, &mut TestObserver::new(), false);
    assert_eq!((author.swapped, written_down(&place, "swapped")), (1, 1));
    let found = read("swapped");
    assert!(found.len() == 4 && found.iter().all(|sum| *sum == found[0]), "{found:?}");
}

#[test]
fn a_version_that_is_there_when_a_run_is_resumed_is_written_down_once() {
    let place = Workspace::new();
    let method = save(&place, &version(1, ""));
    let two = || TestObserver { stop_after: Some(2), ..TestObserver::new() };
    dev(&place, "left", &method, &mut Author::done(), &mut two(), false);
    assert_eq!(written_down(&place, "left"), 0);

    save(&place, &version(2, ""));
    let mut three = TestObserver { stop_after: Some(3), ..TestObserver::new() };
    dev(&place, "left", &method, &mut Author::done(), &mut three, true);
    assert_eq!(written_down(&place, "left"), 1);
    dev(&place, "left", &method, &mut Author::done(), &mut TestObserver::new(), true);
    assert_eq!(written_down(&place, "left"), 1);
}

#[test]
fn a_version_that_was_taken_over_after_the_last_checkpoint_is_written_down_once() {
    let place = Workspace::new();
    let method = save(&place, &version(1, ""));
    let mut author = Author { before: Some(3), ..Author::mending(version(2, "")) };
    let mut watcher = TestObserver { die_after: Some(3), ..TestObserver::new() };
    let died = || dev(&place, "killed", &method, &mut author, &mut watcher, false);
    catch_unwind(AssertUnwindSafe(died)).unwrap_err();
    assert_eq!((author.swapped, written_down(&place, "killed")), (1, 1));

    save(&place, &version(2, ""));
    dev(&place, "killed", &method, &mut Author::done(), &mut TestObserver::new(), true);
    assert_eq!(written_down(&place, "killed"), 1);
    let lock = place.text("killed", "run.lock");
    assert_eq!(lock.matches("after = ").count(), 1, "{lock}");
}
