//! Looking into a method: functions, files and lines of its faults, where its time goes, its world as text.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tunebox_foundation::explain::Explain;
use tunebox_package::Reference;
use tunebox_package::build::{Built, Options, Record, build};

use super::{form, play, train};
use crate::support::folders::method_folder;
use crate::support::guest;
use crate::support::transcript::METHOD_TARGET;
use crate::support::workspace::Workspace;

/// Two steps of nothing, then a fault in a function of its own. It asks for `learn`, so there is an adapter to save.
const TRIPS: &str = r#"
(import "tunebox:method/learn@0.2.0" "rate" (func (result f64)))
(global $steps (mut i32) (i32.const 0))
(func $stumble (unreachable))
(func $step (param i32) (result i32)
  (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
  (if (i32.gt_u (global.get $steps) (i32.const 2)) (then (call $stumble)))
  (call $done))
"#;

/// Counts for some tenths of a second in a function of its own, then asks the host for something.
pub(super) const COUNTS: &str = r#"
(func $churn (param $turns i32)
  (loop $again
    (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
    (br_if $again (local.get $turns))))
(func $step (param i32) (result i32)
  (call $churn (i32.const 200000000))
  (drop (call $learn/rate))
  ;; The viewer shows what lies between samples, so that the last call needs one after it.
  (call $churn (i32.const 200000000))
  (call $done))
"#;

#[test]
fn a_person_sees_what_there_is_to_see() {
    let place = Workspace::with_sample(40);
    place.write_method("trips", guest::component(TRIPS), json!({}));
    place.write_method("counts", guest::component(COUNTS), json!({}));
    play("inside.md", &place);
}

/// The profile in a file, which has the form that a viewer reads.
fn profile(path: &Path) -> Value {
    let profile: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(form::check(&profile), Ok(()));
    assert_eq!(profile["meta"]["interval"], 10.0);
    profile
}

#[test]
fn a_profile_names_the_functions_of_a_method_and_what_it_asked_the_host() {
    let place = Workspace::with_sample(40);
    place.write_method("counts", guest::component(COUNTS), json!({}));
    let mut command = train(&place, Path::new("counts.wasm"), 2);
    let output = command.args(["--in-process", "--guest-profile", "counts.json"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("counts.json") && told.contains("https://profiler.firefox.com"), "{told}");

    let profile = profile(&place.path("counts.json"));
    let thread = &profile["threads"][0];
    assert_eq!(thread["name"], "counts");
    assert!(thread["samples"]["length"].as_u64().unwrap() >= 3, "{}", thread["samples"]);
    let functions = form::names(&profile, "funcTable");
    assert!(functions.contains(&"churn") && functions.contains(&"step"), "{functions:?}");
    assert_eq!(form::names(&profile, "markers").iter().filter(|name| **name == "learn.rate").count(), 2);
}

#[test]
fn a_built_in_method_has_a_profile_without_being_asked_for_trust() {
    let place = Workspace::with_sample(40);
    let mut command = train(&place, Path::new("lora"), 2);
    let output = command.args(["--guest-profile", "lora.json", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let profile = profile(&place.path("lora.json"));
    assert!(form::names(&profile, "markers").contains(&"model.score-for-learning"));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let event = told.lines().find(|line| line.contains("\"profile\"")).unwrap();
    assert!(serde_json::from_str::<Value>(event).unwrap()["calls"].as_u64().unwrap() > 20, "{event}");
}

/// Works for a while in a function of its own, and falls over in another at its second step.
const BUSY: &str = r#"//! Busy.
use tunebox::prelude::*;

/// How many steps it has made.
pub struct Busy(usize);

/// What people may set.
#[derive(Settings)]
pub struct Turns {
    /// How often it turns in a step.
    #[setting(default = 30000000, low = 1)]
    turns: u32,
}

static TURNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

#[inline(never)]
fn churn(turns: u32) -> u32 {
    (0..turns).fold(1, |sum: u32, turn| std::hint::black_box(sum.wrapping_mul(31).wrapping_add(turn)))
}

#[inline(never)]
fn stumble(numbers: &[u32], place: usize) -> u32 {
    numbers[place]
}

impl Method for Busy {
    type Settings = Turns;

    fn init(settings: Turns) -> Result<Self> {
        TURNS.store(settings.turns, std::sync::atomic::Ordering::Relaxed);
        Ok(Self(0))
    }

    fn step(&mut self, _: &Batch) -> Result<()> {
        let sum = churn(TURNS.load(std::sync::atomic::Ordering::Relaxed));
        self.0 += stumble(&[1, 1 + sum % 1], self.0.min(1) + self.0) as usize;
        Ok(())
    }
}

method! { Busy, shape: "supervised", metrics: [] }
"#;

/// A folder with a method in it, which shares what was compiled before it.
fn folder(source: &str) -> TempDir {
    let folder = method_folder("busy", source);
    fs::create_dir(folder.path().join(".cargo")).unwrap();
    fs::write(folder.path().join(".cargo/config.toml"), format!("build.target-dir = {METHOD_TARGET:?}\n")).unwrap();
    folder
}

/// The folder's component with names and lines.
fn debug(folder: &Path) -> Built {
    let built = build(folder, &Options { debug: true, ..Options::default() }, &mut |_| {});
    built.unwrap_or_else(|error| panic!("{error}: {:?}", error.why()))
}

/// The line of the source that holds a text.
fn line(text: &str) -> usize {
    BUSY.lines().position(|line| line.contains(text)).unwrap() + 1
}

#[test]
fn a_debug_build_shows_functions_with_file_and_line_and_is_the_same_in_every_folder() {
    let (here, there) = (folder(BUSY), folder(BUSY));
    let built = debug(here.path());
    assert!(built.bytes == debug(there.path()).bytes, "two folders give two components");
    assert!(Record::read(&built.bytes).unwrap().unwrap().debug);
    let path = here.path().to_str().unwrap().as_bytes();
    assert!(!built.bytes.windows(path.len()).any(|window| window == path), "a path of this machine is in it");
    assert!(Reference::parse("./", here.path()).unwrap().open().is_ok());

    let place = Workspace::with_sample(40);
    let mut command = train(&place, &built.path, 4);
    let output = command.args(["--in-process", "--guest-profile", "busy.json"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    let stumbled = format!("busy::stumble at src/lib.rs:{}\n", line("numbers[place]"));
    let called = format!("step at src/lib.rs:{}\n", line("stumble(&["));
    assert!(told.contains(&format!("--> src/lib.rs:{}:", line("numbers[place]"))), "{told}");
    assert!(told.contains(&stumbled) && told.contains(&called), "{told}");
    let from = told.split_once("from: ").unwrap().1;
    assert!(from.starts_with("core::panicking::panic_bounds_check at rust/library/core/src/panicking.rs:"), "{told}");
    // Of what the SDK puts between the host and the method, no more than what the author's own lines called.
    assert!(from.lines().count() <= 6, "{told}");

    let profile = profile(&place.path("busy.json"));
    let functions = form::names(&profile, "funcTable");
    // Whether the compiler puts it into its caller or not.
    assert!(functions.iter().any(|name| name.contains("churn at src/lib.rs:")), "{functions:?}");
}
