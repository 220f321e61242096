//! Claims about admission: what is let in, what is not, and that nothing is compiled before that is decided.
//!
//! The attacks of `attacks/` are run by `wall.rs`.

use crate::support::attack::{self, limits, run};
use crate::support::{guest, own_process};
use tunebox_sandbox::{Engine, Error, Grants, Limits, imports};

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
    let logs = r#"(import "tunebox:method/run@0.2.0" "log" (func (param i32 i32)))"#;
    let mut names = imports(&guest::component(logs)).unwrap();
    names.retain(|name| !name.contains("/types@") && !name.contains("/data@") && !name.contains("/tensor@"));
    assert_eq!(names, ["tunebox:method/run@0.2.0"]);
}

/// The interfaces that a training method needs, and one import of each that it was not granted.
const TWINS: [(&str, &str); 8] = [
    ("sample", r#"(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func (result i32)))"#),
    ("reward", r#"(import "tunebox:method/reward@0.2.0" "verifiers" (func (param i32)))"#),
    ("teacher", r#"(import "tunebox:method/teacher@0.2.0" "names" (func (param i32)))"#),
    ("hidden", r#"(import "tunebox:method/hidden@0.2.0" "layers" (func (result i32)))"#),
    ("patch", r#"(import "tunebox:method/patch@0.2.0" "[resource-drop]patch" (func (param i32)))"#),
    ("weights", r#"(import "tunebox:method/weights@0.2.0" "keep-as" (func (param i32 i32)))"#),
    ("text", r#"(import "tunebox:method/text@0.2.0" "encode" (func (param i32 i32 i32)))"#),
    ("filesystem", ""),
];

/// The honest one: it scores, learns and reports, with nothing but what training takes.
const HONEST: &str = r#"
(import "tunebox:method/run@0.2.0" "position" (func (result i32)))
(import "tunebox:method/tensor@0.2.0" "[resource-drop]tensor" (func (param i32)))
(import "tunebox:method/model@0.2.0" "policy" (func (result i32)))
(import "tunebox:method/learn@0.2.0" "rate" (func (result f64)))
"#;

#[test]
fn a_twin_that_wants_one_interface_more_is_refused_before_a_byte_of_it_is_compiled() {
    let engine = Engine::new().unwrap();
    let interfaces = ["types", "run", "tensor", "data", "model", "learn"].map(str::to_owned).into();
    let grants = Grants { interfaces };
    let honest = engine.admit(&guest::component(HONEST), "honest", &grants, &limits()).unwrap();
    assert!(honest.imports().iter().any(|import| import.contains("/learn@")));
    let compiled = engine.compiled();
    assert_eq!(compiled, 1);
    for (interface, import) in TWINS {
        let bytes = match import {
            "" => std::fs::read_to_string(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../tests/attacks/reads-files/component.wat"
            ))
            .map(|text| guest::component(&text))
            .unwrap(),
            import => guest::component(&format!("{HONEST}{import}")),
        };
        let Err(Error::NotGranted { import, .. }) = engine.admit(&bytes, "twin", &grants, &limits()) else {
            panic!("the twin with `{interface}` was let in")
        };
        assert!(import.contains(interface), "{import}");
    }
    assert_eq!(engine.compiled(), compiled, "a twin was compiled");
}

/// In a process of its own, since the error stream belongs to the process.
#[test]
fn a_panic_of_the_host_is_told_once_and_not_on_the_error_stream() {
    let output = own_process::output("attacks::a_host_that_panics");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("the host failed") && shown.contains("fake_run.rs:"), "{shown}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
#[expect(clippy::print_stdout, reason = "the other process reads it")]
fn a_host_that_panics() {
    let engine = Engine::new().unwrap();
    let scores = r#"
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $model/score-for-learning (call $handle) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
  (call $done))"#;
    let error = attack::run_on_a_host_that_panics(&engine, &guest::component(scores));
    println!("{error}");
}
