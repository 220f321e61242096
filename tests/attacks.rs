//! Claims about the wall: each folder of `attacks/` holds a hostile method and what becomes of it.
//!
//! After every attack the learner must still answer, and the same engine must still run an
//! ordinary method. Add an attack by adding a folder with `component.wat` and `expected.txt`.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/fake_learner.rs"]
mod fake_learner;
#[path = "support/guest.rs"]
mod guest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fake_learner::{FakeLearner, rows};
use tunebox_compute::explain::{Exit, Explain};
use tunebox_sandbox::{Batch, Engine, Error, Grants, Limits, Question, Session, SessionSettings, StepReport, imports};

const ATTACKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/attacks");

/// Tight enough that an attack ends soon, loose enough for anything honest.
fn limits() -> Limits {
    Limits { step_seconds: 0.3, init_seconds: 0.3, device_bytes: 8 << 20, handles: 2_000, ..Limits::default() }
}

fn batch() -> Batch {
    Batch {
        sides: vec![("example".into(), rows())],
        size: 2,
        columns: BTreeMap::new(),
        window_targets: BTreeMap::from([("example".into(), 3)]),
        window_size: 2,
        questions: vec![Question::default(); 2],
        ..Batch::default()
    }
}

/// Admits a component and takes it through a whole run of one step.
fn run(engine: &Engine, bytes: &[u8], name: &str) -> Result<StepReport, Error> {
    // What a run grants by name is attacked as well: by the folders that say so.
    let granted = name.starts_with("granted-");
    let named = if granted { Grants::default().with("weights").with("text") } else { Grants::default() };
    let method = engine.admit(bytes, name, &named, &limits())?;
    let (learner, diary) = FakeLearner::with_diary();
    let metric_names = vec!["loss".to_owned()];
    let settings = SessionSettings { limits: limits(), seed: 1, metric_names, ..SessionSettings::default() };
    let mut session = Session::start(&method, learner, settings)?;
    let outcome = session.init(&[]).and_then(|_| {
        let report = session.step(batch())?;
        session.save_state()?;
        session.finish()?;
        Ok(report)
    });
    diary.lock().unwrap().updates = 7;
    assert_eq!(session.into_learner().position(), 7, "`{name}`: the learner answers after the method");
    outcome
}

/// What a person would read, with the measured time left out.
fn told(outcome: Result<StepReport, Error>) -> String {
    let error = match outcome {
        Err(error) => error,
        Ok(report) => {
            let first = report.log.first().map_or("", String::as_str);
            let (kept, dropped) = (report.log.len(), report.dropped_lines);
            return format!("ran to its end, {kept} log lines kept, {dropped} dropped\nfirst: {first}\n");
        }
    };
    assert_eq!(error.exit(), Exit::Sandbox);
    let explanation = error.explanation();
    let mut text = format!("error[{}]: {}\n", explanation.area, explanation.what);
    for (label, part) in [("  --> ", explanation.place), ("why:  ", explanation.why), ("hint: ", explanation.hint)] {
        if let Some(part) = part {
            text.push_str(&format!("{label}{}\n", without_time(&part)));
        }
    }
    text
}

/// Measured seconds differ from run to run; the limit beside them does not.
fn without_time(text: &str) -> String {
    let measured = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    match text.split_once("after ").filter(|(_, rest)| measured(rest)) {
        Some((before, rest)) => {
            let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.');
            format!("{before}after a few{rest}")
        }
        None => text.to_owned(),
    }
}

fn attacks() -> Vec<PathBuf> {
    let mut folders: Vec<_> = std::fs::read_dir(ATTACKS).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

fn name(folder: &Path) -> &str {
    folder.file_name().unwrap().to_str().unwrap()
}

#[test]
fn every_attack_ends_as_written_beside_it_and_leaves_the_host_healthy() {
    let engine = Engine::new().unwrap();
    let ordinary = guest::component("");
    let mut surprises = Vec::new();
    for folder in attacks() {
        let bytes = guest::component(&std::fs::read_to_string(folder.join("component.wat")).unwrap());
        let told = told(run(&engine, &bytes, name(&folder)));
        let expected = std::fs::read_to_string(folder.join("expected.txt")).unwrap_or_default();
        if told != expected {
            surprises.push(format!("# {}\n## expected\n{expected}## told\n{told}", name(&folder)));
        }
        run(&engine, &ordinary, "ordinary").unwrap();
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn a_component_that_is_cut_off_is_refused_unless_all_that_runs_is_left() {
    let engine = Engine::new().unwrap();
    let whole = guest::component("");
    let admitted = (0..whole.len()).filter(|length| {
        let Ok(method) = engine.admit(&whole[..*length], "cut", &Grants::default(), &limits()) else { return false };
        assert!(method.imports().len() > 1, "the first {length} bytes ask for nothing");
        run(&engine, &whole[..*length], "cut").unwrap();
        true
    });
    assert!(admitted.count() < 4, "only custom sections at the end may be missing");
}

#[test]
fn a_component_with_any_byte_changed_is_admitted_or_refused_and_never_a_panic() {
    let engine = Engine::new().unwrap();
    let whole = guest::component("");
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 0x55;
        if let Ok(method) = engine.admit(&changed, "changed", &Grants::default(), &limits()) {
            assert!(method.imports().iter().all(|import| import.starts_with("tunebox:method/")));
        }
    }
}

#[test]
fn a_method_larger_than_its_limit_is_refused_by_its_size_alone() {
    let engine = Engine::new().unwrap();
    let limits = Limits { component_bytes: 100, ..limits() };
    let refusal = engine.admit(&[0; 101], "heavy", &Grants::default(), &limits).err().unwrap();
    assert!(matches!(refusal, Error::TooLarge { size: 101, limit: 100, .. }));
}

#[test]
fn the_imports_of_a_component_are_read_from_its_bytes() {
    let logs = r#"(import "tunebox:method/run@0.1.0" "log" (func (param i32 i32)))"#;
    let mut names = imports(&guest::component(logs)).unwrap();
    names.retain(|name| !name.contains("/types@") && !name.contains("/data@") && !name.contains("/tensor@"));
    assert_eq!(names, ["tunebox:method/run@0.1.0"]);
}
