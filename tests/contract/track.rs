//! Components of the track 0.2 run; those of other versions are refused before anything is compiled.

use std::fs;
use std::path::Path;

use serde_json::json;
use tunebox_package::{Manifest, read_manifest, resolve_settings};
use tunebox_sandbox::{Engine, Grants, Judge, Limits, Session, SessionSettings, Value, Verdict};
use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{ManglingAndAbi, Resolve};

use super::released::changed;
use super::{play, train};
use crate::support::golden::root;
use crate::support::workspace::Workspace;
use crate::support::{attack, fake_run, guest};

/// A component that was built for the first version of the track.
fn released_component(name: &str) -> Vec<u8> {
    fs::read(root().join("tests/tracks/0.2").join(name)).unwrap()
}

/// Every setting of a manifest, with some given.
fn settings(manifest: &Manifest, given: &str) -> Vec<(String, Value)> {
    resolve_settings(manifest, &given.parse().unwrap()).unwrap()
}

#[test]
fn a_method_of_the_track_still_learns() {
    let (engine, bytes) = (Engine::new().unwrap(), released_component("lora.wasm"));
    let manifest = read_manifest(&bytes).unwrap();
    let method = engine.admit(&bytes, "lora", &Grants::default(), &Limits::default()).unwrap();
    let (train_state, record) = fake_run::FakeRun::with_record();
    let own = SessionSettings { metric_names: manifest.metrics.clone(), ..SessionSettings::default() };
    let mut session = Session::start(&method, train_state, own).unwrap();
    session.init(&settings(&manifest, "")).unwrap();
    let report = session.step(attack::batch()).unwrap();
    session.finish().unwrap();

    let named: Vec<&str> = report.metrics.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(named, ["loss", "entropy", "accuracy"]);
    // The loss is −Σ log p over three targets.
    let seeds = &record.lock().unwrap().seeds;
    let wanted = [[0.0, -1.0, -1.0], [0.0, -1.0, 0.0]].map(|row| row.map(|seed: f32| seed / 3.0));
    assert_eq!(seeds.len(), 1, "one backward pass");
    assert!(seeds[0].iter().flatten().zip(wanted.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-6), "{seeds:?}");
}

#[test]
fn the_program_trains_by_a_method_of_the_track() {
    let place = Workspace::with_sample(40);
    let output = train(&place, &root().join("tests/tracks/0.2/lora.wasm"), 2).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metrics = fs::read_to_string(place.path("runs/run/metrics.jsonl")).unwrap();
    assert!(metrics.lines().count() >= 2 && metrics.contains("\"loss\""), "{metrics}");
}

#[test]
fn a_verifier_of_the_track_still_judges() {
    let (engine, bytes) = (Engine::new().unwrap(), released_component("overlong.wasm"));
    let verifier = engine.admit_verifier(&bytes, "overlong", &Limits::default()).unwrap();
    let given = settings(&read_manifest(&bytes).unwrap(), "length = 4\nbuffer = 2");
    let mut judge = Judge::new(verifier, &given).unwrap();
    assert_eq!(judge.verdict("", "one two", "", None), Verdict::Value(0.0));
    assert_eq!(judge.verdict("", "one two three", "", None), Verdict::Value(-0.5));
}

#[test]
fn every_function_of_the_track_is_still_there() {
    let (engine, bytes) = (Engine::new().unwrap(), released_component("everything.wasm"));
    let grants = Grants::default().with("weights").with("text");
    let method = engine.admit(&bytes, "everything", &grants, &Limits::default()).unwrap();
    let mut names: Vec<&str> = method.imports().iter().filter_map(|name| name.split(['/', '@']).nth(1)).collect();
    names.sort_unstable();
    let all = "data hidden learn model optimizer patch reward run sample teacher tensor text types weights";
    assert_eq!(names, all.split(' ').collect::<Vec<_>>());
}

#[test]
#[ignore = "made `everything.wasm` of the track 0.2; it is made once, when the version is released"]
fn the_component_that_wants_everything_is_made() {
    let path = root().join("tests/tracks/0.2/everything.wasm");
    assert!(!path.exists(), "what is kept of a track is never made anew");
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let world = resolve.select_world(&[package], Some("method")).unwrap();
    let mut module = dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let component = ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap();
    fs::write(path, component).unwrap();
}

/// The contract as it may be one day: a version later, with a function more.
fn later() -> tempfile::TempDir {
    let negate = "    negate: func() -> result<tensor, error>;\n";
    let folder = changed("tensor.wit", negate, &format!("{negate}    /// Later.\n    whisper: func() -> u32;\n"));
    let world = folder.path().join("world.wit");
    let text = fs::read_to_string(&world).unwrap();
    fs::write(&world, text.replace("package tunebox:method@0.2.0;", "package tunebox:method@0.2.1;")).unwrap();
    folder
}

/// A guest of the contract in a folder, with more imports.
fn guest_of(contract: &Path, version: &str, more: &str) -> Vec<u8> {
    let body = r#"
(import "tunebox:method/run@0.2.0" "position" (func $position (result i32)))
(import "tunebox:method/tensor@0.2.0" "[resource-drop]tensor" (func (param i32)))
"#;
    guest::component_for(&format!("{body}{more}"), contract, version)
}

#[test]
fn what_was_built_for_a_later_version_runs_as_long_as_it_wants_nothing_new() {
    let (engine, later) = (Engine::new().unwrap(), later());
    let bytes = guest_of(later.path(), "0.2.1", "");
    let imports = tunebox_sandbox::imports(&bytes).unwrap();
    assert!(imports.iter().all(|import| import.ends_with("@0.2.1")), "{imports:?}");
    let told = attack::message(attack::run(&engine, &bytes, "early"));
    assert!(told.starts_with("ran to its end"), "{told}");
}

#[test]
fn what_wants_a_version_of_the_future_is_refused_before_anything_is_compiled() {
    let (engine, later) = (Engine::new().unwrap(), later());
    let whisper = r#"(import "tunebox:method/tensor@0.2.0" "[method]tensor.whisper" (func (param i32) (result i32)))"#;
    let newer = "hint: a newer tunebox may keep it, `tunebox --version` tells which this is; or its author builds it for 0.2.0\n";
    let other = "why:  a version that is not 0.2.x is another contract, with functions of its own\n";
    let component = |text: &str| wat::parse_str(format!("(component {text})")).unwrap();
    let imports = |name: &str| component(&format!("(import \"tunebox:method/{name}\" (instance))"));
    let exports = component(r#"(instance $none) (export "tunebox:method/training@0.3.0" (instance $none))"#);
    let older = "hint: its author can build it again with the SDK of this version\n";
    let cases = [
        (imports("tensor@0.3.0"), "0.3.0", "import `tunebox:method/tensor@0.3.0`", other, newer),
        (imports("tensor@1.0.0"), "1.0.0", "import `tunebox:method/tensor@1.0.0`", other, newer),
        (imports("tensor@0.0.9"), "0.0.9", "import `tunebox:method/tensor@0.0.9`", other, older),
        (
            imports("telepathy@0.2.3"),
            "0.2.3",
            "import `tunebox:method/telepathy@0.2.3`",
            "why:  `telepathy` is newer than 0.2.0\n",
            newer,
        ),
        (
            guest_of(later.path(), "0.2.1", whisper),
            "0.2.1",
            "import `tunebox:method/tensor@0.2.1`",
            "why:  `tensor.tensor.whisper` is newer than 0.2.0\n",
            newer,
        ),
        (exports, "0.3.0", "export `tunebox:method/training@0.3.0`", other, newer),
    ];
    for (bytes, wants, place, why, hint) in cases {
        let told = attack::message(attack::run(&engine, &bytes, "early"));
        let what = format!("error[sandbox]: `early` needs `tunebox:method@{wants}`, this program keeps 0.2.0\n");
        assert_eq!(told, format!("{what}  --> {place}, found before anything ran\n{why}{hint}"));
    }
    assert_eq!(engine.compiled(), 0);
}

#[test]
fn a_verifier_of_the_future_is_refused_by_its_version() {
    let engine = Engine::new().unwrap();
    let text = r#"(component (instance $none) (export "tunebox:method/verify@0.3.0" (instance $none)))"#;
    let refusal = engine.admit_verifier(&wat::parse_str(text).unwrap(), "early", &Limits::default());
    let told = refusal.err().unwrap().to_string();
    assert_eq!(told, "`early` needs `tunebox:method@0.3.0`, this program keeps 0.2.0");
    assert_eq!(engine.compiled(), 0);
}

#[test]
fn a_person_is_told_which_version_a_method_needs() {
    let place = Workspace::with_sample(40);
    let imports =
        |name: &str| wat::parse_str(format!("(component (import \"tunebox:method/{name}\" (instance)))")).unwrap();
    place.write_method("telepathy", imports("telepathy@0.2.3"), json!({ "interface": "0.2.3" }));
    place.write_method("tensors", imports("tensor@0.3.0"), json!({}));
    place.write_method("tomorrow", guest::component(""), json!({ "interface": "0.3.0" }));
    play("refused.md", &place);
}
