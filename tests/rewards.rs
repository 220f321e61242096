//! Claims about the built-in verifiers: what each gives for what text, through the real components.
//!
//! The rows of `golden/methods/rewards.jsonl` hold the reference's reward functions (TRL 1.16.0 with
//! math-verify 0.9.0) where there is one; lengths count words here, tokens there. And about the wall
//! around verifiers: whatever one does, there is a verdict or a word for what it did.

mod models;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::support::golden::root;
use crate::support::guest;
use crate::support::manifested::manifested;
use crate::support::tiny_run::{TestObserver, Workspace};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tunebox_foundation::explain::{Exit, Explain};
use tunebox_package::{Reference, builtin, resolve_settings};
use tunebox_sandbox::{CodeOptions, Compiling, Engine, Error, Judge, Limits, Verdict};
use tunebox_training::Event;

/// One line of the file.
#[derive(Deserialize)]
struct Row {
    verifier: String,
    settings: Map<String, Json>,
    answer: String,
    completion: String,
    reward: Option<f64>,
}

fn judge(engine: &Engine, name: &str, settings: &Map<String, Json>) -> Result<Judge, Error> {
    let package = Reference::verifier(name, &root()).unwrap().open().unwrap();
    let settings = resolve_settings(&package.manifest, &toml::Table::try_from(settings).unwrap()).unwrap();
    Judge::new(engine.admit_verifier(&package.bytes, name, &Limits::default())?, &settings)
}

#[test]
fn every_verifier_gives_what_the_table_says() {
    let engine = Engine::new().unwrap();
    let text = std::fs::read_to_string(root().join("tests/golden/methods/rewards.jsonl")).unwrap();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in text.lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        let mut judge = judge(&engine, &row.verifier, &row.settings).unwrap();
        let verdict = judge.verdict("", &row.completion, &row.answer, None);
        let right = match (&verdict, row.reward) {
            (Verdict::Value(found), Some(wanted)) => (f64::from(*found) - wanted).abs() <= 1e-6,
            (Verdict::Abstained, None) => true,
            _ => false,
        };
        if !right {
            let (verifier, answer) = (&row.verifier, &row.answer);
            let shown: String = row.completion.chars().take(60).collect();
            wrong.push(format!(
                "{verifier} {:?}: `{answer}` | `{shown}`: {verdict:?}, wanted {:?}",
                row.settings, row.reward
            ));
        }
        seen.insert(row.verifier);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(builtin::verifiers().iter().all(|verifier| seen.contains(verifier.name)), "a verifier without a row");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_the_verifiers_words() {
    let engine = Engine::new().unwrap();
    let cases = BTreeMap::from([
        ("pattern", (json!({ "pattern": "(" }), "no regular expression")),
        ("json", (json!({ "schema": "{\"$ref\": \"#\"}" }), "uses `$ref`")),
        ("text", (json!({}), "nothing to check")),
        ("overlong", (json!({ "length": 5, "buffer": 6 }), "must not be larger")),
    ]);
    for (name, (settings, wanted)) in cases {
        let error = judge(&engine, name, settings.as_object().unwrap()).err().unwrap().to_string();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

/// A verifier written as text; `body` is what `verify` does.
fn hostile(body: &str) -> Vec<u8> {
    let module = format!(
        r#"(module (memory (export "memory") 1) (global $top (mut i32) (i32.const 4096))
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $top) (global.set $top (i32.add (global.get $top) (local.get 3))))
          (func (export "tunebox:method/verify@0.2.0#init") (param i32 i32) (result i32) (i32.const 0))
          (func $again (export "tunebox:method/verify@0.2.0#verify") (param i32 i32 i32 i32 i32 i32) (result i32) {body}))"#
    );
    let (resolve, world) = guest::read_world(&root().join("wit"), "verifier");
    guest::encode(&module, &resolve, world)
}

/// Why a verifier that traps gives no verdict.
const GAVE_UP: &str = "it gave up, as after a panic in Rust or an exception in Python; its own tests show where";

#[test]
fn whatever_a_verifier_does_there_is_a_verdict() {
    let engine = Engine::new().unwrap();
    let limits = Limits { verifier_seconds: 0.1, verifier_memory: 1 << 20, ..Limits::default() };
    let some = |number: &str| {
        format!("(i32.store8 (i32.const 16) (i32.const 1)) (f32.store (i32.const 20) {number}) (i32.const 16)")
    };
    let again = format!("(call $again {})", "(local.get 0) ".repeat(6));
    for (body, wanted) in [
        (
            "(loop $on (br $on)) (unreachable)".to_owned(),
            "it took longer than 0.1 s; `--set limits.verifier-seconds=1` allows it more",
        ),
        ("(unreachable)".to_owned(), GAVE_UP),
        (again, "it ran out of stack"),
        (
            "(memory.grow (i32.const 100))".to_owned(),
            "(it may use 1.0 MiB of memory); `--set limits.verifier-memory=8388608` allows it more",
        ),
        ("(i32.const -8)".to_owned(), "memory"),
        (some("(f32.const nan)"), "its verdict is NaN"),
        (some("(f32.const inf)"), "its verdict is inf"),
    ] {
        let verifier = engine.admit_verifier(&hostile(&body), "hostile", &limits).unwrap();
        let mut judge = Judge::new(verifier, &[]).unwrap();
        for _ in 0..2 {
            let verdict = judge.verdict("a", "b", "c", None);
            let Verdict::Failed(reason) = &verdict else { panic!("{body}: {verdict:?}") };
            assert!(reason.contains(wanted), "{body}: {reason}");
        }
    }
    let mut honest =
        Judge::new(engine.admit_verifier(&hostile(&some("(f32.const 0.5)")), "honest", &limits).unwrap(), &[]).unwrap();
    assert_eq!(honest.verdict("a", "b", "c", None), Verdict::Value(0.5));
}

#[test]
fn a_verifier_that_asks_for_anything_is_refused_and_so_is_a_method_in_its_place() {
    let engine = Engine::new().unwrap();
    let method = Reference::parse("grpo", &root()).unwrap().open().unwrap();
    let refusal = engine.admit_verifier(&method.bytes, "grpo", &Limits::default()).err().unwrap();
    assert!(
        matches!(&refusal, Error::IsolatedImports { import, .. } if import.starts_with("tunebox:method/")),
        "{refusal}"
    );
    let small = Limits { verifier_component_bytes: 100, ..Limits::default() };
    assert!(matches!(engine.admit_verifier(&method.bytes, "grpo", &small).err(), Some(Error::TooLarge { .. })));
}

/// Appends a core module and `count` instances of it to a component that holds one core module.
fn with_instances(mut component: Vec<u8>, module: &str, count: u8) -> Vec<u8> {
    let module = wat::parse_str(module).unwrap();
    let mut length = module.len();
    component.push(1);
    while length >= 0x80 {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend(module);
    component.extend([2, 1 + 3 * count, count]);
    component.extend([0, 1, 0].repeat(count.into()));
    component
}

#[test]
fn all_memories_tables_and_instances_of_a_verifier_share_its_memory() {
    let engine = Engine::new().unwrap();
    let limits = Limits { verifier_memory: 16 << 20, ..Limits::default() };
    let judge = |module: &str, count| {
        let verifier = with_instances(hostile("(unreachable)"), module, count);
        Judge::new(engine.admit_verifier(&verifier, "many", &limits).unwrap(), &[]).map(drop)
    };
    let globals = format!("(module {})", "(global i64 (i64.const 0))".repeat(60_000));
    for (module, count) in [("(module (memory 64))", 8), ("(module (table 90000 funcref))", 15), (&globals, 8)] {
        let few = judge(module, 1);
        let error = judge(module, count).unwrap_err().to_string();
        assert!(error.contains("memory") || error.contains("tables"), "{error}");
        assert!(few.is_ok(), "{few:?}");
    }
}

#[test]
fn a_verdict_ends_with_the_step_and_its_start_counts() {
    let engine = Engine::new().unwrap();
    let limits = Limits { verifier_seconds: 20.0, ..Limits::default() };
    let verifier = engine.admit_verifier(&hostile("(loop $on (br $on)) (unreachable)"), "slow", &limits).unwrap();
    let mut judge = Judge::new(verifier, &[]).unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        let verdict = judge.verdict("a", "b", "c", Some(begun + Duration::from_millis(50)));
        assert!(matches!(verdict, Verdict::Failed(_)) && begun.elapsed().as_secs_f64() < 15.0, "{verdict:?}");
    }
}

#[test]
fn a_verdict_past_its_instructions_fails_whatever_the_time() {
    let code = CodeOptions { count_instructions: true, ..CodeOptions::default() };
    let engine = Engine::with(Compiling { code, ..Compiling::default() }).unwrap();
    let limits = Limits { verifier_instructions: 1_000_000, verifier_seconds: 1e-9, ..Limits::default() };
    let verdicts = |body: &str| {
        let verifier = engine.admit_verifier(&hostile(body), "counted", &limits).unwrap();
        let mut judge = Judge::new(verifier, &[]).unwrap();
        [(); 3].map(|()| judge.verdict("a", "b", "c", None))
    };
    let allowed = "`--set limits.verifier-instructions=2000000` allows it more";
    let failed = Verdict::Failed(format!("it executed more than 1,000,000 instructions; {allowed}"));
    assert_eq!(verdicts("(loop $on (br $on)) (unreachable)"), [(); 3].map(|()| failed.clone()));
    // Each verdict has the whole limit: this one takes more than a third of it.
    let counts = "(local $left i32) (local.set $left (i32.const 100000))
        (loop $on (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (i32.store8 (i32.const 16) (i32.const 0)) (i32.const 16)";
    assert_eq!(verdicts(counts), [(); 3].map(|()| Verdict::Abstained));
}

#[test]
fn verifiers_take_no_longer_than_a_step_may_in_it_and_in_validation() {
    let loops = "(loop $on (br $on)) (unreachable)";
    let times = ["limits.step-wall-seconds=1", "limits.verifier-seconds=0.4"];
    let wanted = ["took longer than a step may at step 1", "the verifiers took longer than a step may"];
    for (is_validated, wanted) in [false, true].into_iter().zip(wanted) {
        let begun = Instant::now();
        let error = train_more(loops, "slow", &times, is_validated).err().unwrap();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!(error.exit(), Exit::Sandbox);
        assert!(begun.elapsed().as_secs_f64() < 8.0, "{:?}", begun.elapsed());
    }
}

/// Trains a tiny model for two steps with a verifier written as text.
fn train_with(body: &str, name: &str) -> Result<Workspace, tunebox_training::Error> {
    train_more(body, name, &[], false)
}

/// Trains as [`train_with`] does, under further settings; if `is_validated`, with the data for validation as well.
fn train_more(body: &str, name: &str, more: &[&str], is_validated: bool) -> Result<Workspace, tunebox_training::Error> {
    let place = Workspace::new();
    let prompt = |number: usize| json!({ "prompt": format!("Say {number}"), "answer": "x" });
    place.write_lines("data.jsonl", (0..8).map(prompt));
    let component = manifested(name, hostile(body), json!({ "world": "verifier", "shape": "completion" }));
    let verifier = place.write_component("verifier.0.use", "judge.wasm", &component);
    let settings = ["method.use=grpo", "method.completions=4", "data.max-length=40", "train.steps=2", &verifier];
    let validation = place.set("data.validation", "data.jsonl");
    let validation = if is_validated { vec![validation.as_str()] } else { Vec::new() };
    place.train(name, &[&settings, more, &validation].concat()).map(|_| place)
}

#[test]
fn a_verifier_that_fails_on_most_completions_ends_the_run_with_its_reason() {
    let error = train_with("(unreachable)", "gives-up").err().unwrap();
    assert_eq!(error.to_string(), "the verifier `gives-up` failed on 9 of 16 completions");
    assert_eq!(error.why().as_deref(), Some(GAVE_UP));
    assert!(error.hint().unwrap().contains("`on-failure`"), "{:?}", error.hint());
    assert_eq!(error.exit(), Exit::Sandbox);
}

#[test]
fn a_verifier_that_fails_now_and_then_is_counted_and_the_run_goes_on() {
    // It gives up where the length of a completion is one short of a multiple of four.
    let body = "(if (i32.eq (i32.and (local.get 3) (i32.const 3)) (i32.const 3)) (then (unreachable)))
        (i32.store8 (i32.const 16) (i32.const 1))
        (f32.store (i32.const 20) (f32.convert_i32_u (i32.and (local.get 3) (i32.const 3)))) (i32.const 16)";
    let rows = train_with(body, "moody").unwrap().metrics("moody");
    let failed = |row: &Map<String, Json>| row["reward-moody-failed"].as_f64().unwrap();
    assert!(rows.iter().any(|row| failed(row) > 0.0), "{rows:?}");
    for row in &rows {
        assert_eq!(row["unjudged"].as_f64().unwrap() * 16.0, failed(row));
    }
}

#[test]
fn a_step_without_any_verdict_is_told() {
    let place = train_with("(i32.const 16)", "silent").unwrap();
    let verifier = place.set("verifier.0.use", "judge.wasm");
    let settings = ["method.use=grpo", "method.completions=4", "data.max-length=40", "train.steps=1", &verifier];
    let mut watcher = TestObserver::new();
    place.train_with("again", &settings, &mut watcher).unwrap();
    let is_told =
        |event: &Event| matches!(event, Event::Warning { text } if text.starts_with("no verifier gave a verdict"));
    assert_eq!(watcher.events.iter().filter(|event| is_told(event)).count(), 1);
}

#[test]
fn a_failure_can_have_a_verdict_which_ends_no_run() {
    let rows =
        train_more("(unreachable)", "gives-up", &["verifier.0.on-failure=0.25"], false).unwrap().metrics("gives-up");
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert_eq!((number("reward-gives-up-mean"), number("reward-gives-up-failed")), (0.25, 16.0), "{row:?}");
        assert_eq!(number("unjudged"), 0.0);
    }
}

#[test]
fn a_fresh_verifier_remembers_nothing_of_another_completion() {
    // 1 to the first completion that an instance judges, 0 to all others.
    let body = "(i32.store8 (i32.const 16) (i32.const 1))
        (f32.store (i32.const 20) (f32.convert_i32_u (i32.eqz (i32.load (i32.const 64)))))
        (i32.store (i32.const 64) (i32.const 1)) (i32.const 16)";
    for (more, wanted) in [(&[][..], 1.0 / 16.0), (&["verifier.0.fresh=true"], 1.0)] {
        let rows = train_more(body, "first", more, false).unwrap().metrics("first");
        assert!(rows.iter().all(|row| row["reward-first-mean"] == wanted), "{more:?}: {rows:?}");
    }
}
