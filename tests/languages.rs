//! Claims about methods in other languages than Rust: a component from Python, by the package `tunebox`, and one from C
//! without any package give the numbers of the Rust one, ask for what they name and for nothing else, and tell where
//! they went wrong.
//!
//! Needs `componentize-py` for Python and `clang` with a linker for WebAssembly for C; without them the tests say so.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/given_scores.rs"]
mod given_scores;
#[expect(dead_code, reason = "no page is generated here")]
#[path = "support/golden.rs"]
mod golden;
#[expect(dead_code, reason = "a method is measured by another one here, not by the table")]
#[path = "support/golden_rows.rs"]
mod golden_rows;
#[expect(dead_code, reason = "no run is resumed here")]
#[path = "support/tiny_run.rs"]
mod tiny_run;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use golden::root;
use golden_rows::{Row, package};
use serde_json::json;
use tempfile::TempDir;
use tiny_run::{Place, Watcher};
use tunebox_compute::explain::Explain;
use tunebox_package::build::python::{self, PythonError};
use tunebox_package::build::{self, BuildError, Compiled};
use tunebox_package::template::{Language, Template};
use tunebox_package::{Error as PackageError, Manifest};
use tunebox_sandbox::{Engine, Error, Grants, Limits, Method, Session, SessionSettings, Value};

/// What a run with a method in Python sets, as its page says.
const LIMITS: [&str; 2] = ["limits.component-bytes=33554432", "limits.compile-seconds=120"];

/// How far a loss or a gradient may be from the Rust component's.
const TOLERANCE: f64 = 1e-6;

fn limits() -> Limits {
    Limits { component_bytes: 32 << 20, compile_seconds: 120.0, ..Limits::default() }
}

/// A line that is seen even when the test passes.
#[expect(clippy::explicit_write, reason = "the test harness swallows `eprintln!` of a test that passes")]
fn loudly(line: &str) {
    writeln!(std::io::stderr(), "\n{line}\n").unwrap();
}

fn told(error: &PackageError) -> String {
    let lines = [Some(error.to_string()), error.place(), error.why(), error.hint()];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The component of a folder with a method in Python, if this machine can make one.
fn made(folder: &Path) -> Option<Compiled> {
    match python::find(folder) {
        Ok(_) => Some(build::compile(folder, None).unwrap_or_else(|error| panic!("{}", told(&error)))),
        Err(PythonError::NoCompiler) => {
            loudly("PYTHON NOT TESTED: there is no `componentize-py` on this machine");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The example, made once.
fn example() -> Option<&'static Compiled> {
    static EXAMPLE: OnceLock<Option<Compiled>> = OnceLock::new();
    EXAMPLE.get_or_init(|| made(&root().join("examples/13-python"))).as_ref()
}

/// The names of the interfaces that a component asks for, in alphabetical order.
fn interfaces(imports: &[String]) -> Vec<&str> {
    let names = imports.iter().map(|import| import.strip_prefix("tunebox:method/").unwrap().split('@').next().unwrap());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

/// The rows of the table that a method can compute: all of their settings are its own, with such values.
fn rows_of(manifest: &Manifest) -> Vec<Row> {
    let takes = |name: &String, value: &serde_json::Value| {
        let setting = manifest.settings.iter().find(|setting| setting.name == *name);
        setting.is_some_and(|setting| {
            value.as_str().is_none_or(|text| setting.choices.iter().any(|choice| choice == text))
        })
    };
    let rows = golden_rows::rows("dpo").into_iter();
    rows.filter(|row| row.settings.iter().all(|(name, value)| takes(name, value))).collect()
}

/// A method's loss and gradients are those of the Rust component, row by row.
fn assert_same_numbers(engine: &Engine, method: &Method, manifest: &Manifest, count: usize) {
    let rows = rows_of(manifest);
    assert_eq!(rows.len(), count);
    for row in rows {
        let (what, records) = (serde_json::Value::Object(row.settings.clone()), [0, 1]);
        let (wanted, gradients, _) = row.run_by(engine, &records, true);
        let (found, arrived, _) = row.step_of(method, manifest, &records, true);
        for (name, found, _) in &found.metrics {
            let wanted = wanted.metrics.iter().find(|(other, ..)| other == name).unwrap().1;
            assert!(
                (found - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0),
                "{what} {name}: {found}, Rust {wanted}"
            );
        }
        assert!(found.metrics.iter().any(|(name, ..)| name == "loss"));
        assert_eq!(arrived.keys().collect::<Vec<_>>(), gradients.keys().collect::<Vec<_>>(), "{what}");
        for (found, wanted) in arrived.values().flatten().zip(gradients.values().flatten()) {
            let off = f64::from((found - wanted).abs());
            assert!(off <= TOLERANCE * f64::from(wanted.abs()).max(0.01), "{what}: gradient {found}, Rust {wanted}");
        }
    }
}

/// What a step takes, the fastest of many: all of it, the method's own part, and its calls to the host.
fn pace(row: &Row, method: &Method, manifest: &Manifest) -> (Duration, Duration, u64) {
    let (mut session, ..) = row.session_of(method, manifest, true);
    let step = |_| {
        let batch = row.batch(&[0, 1]);
        let start = Instant::now();
        let report = session.step(batch).unwrap();
        (start.elapsed(), Duration::from_secs_f64(report.guest_seconds), report.host_calls)
    };
    (0..100).map(step).min().unwrap()
}

#[test]
fn a_method_in_python_gives_the_numbers_of_the_one_in_rust() {
    let Some(built) = example() else { return };
    assert_eq!(interfaces(&built.imports), ["data", "learn", "model", "run", "tensor", "types"]);

    let engine = Engine::new().unwrap();
    let refused = engine.admit(&built.bytes, "dpo-python", &Grants::default(), &Limits::default()).err().unwrap();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("limits.component-bytes"), "{:?}", refused.hint());
    assert_eq!(engine.compiled(), 0);

    let start = Instant::now();
    let method = engine.admit(&built.bytes, "dpo-python", &Grants::default(), &limits()).unwrap();
    let compiled = start.elapsed();
    assert_same_numbers(&engine, &method, &built.manifest, 6);

    let row = rows_of(&built.manifest).remove(0);
    let start = Instant::now();
    let (mut session, ..) = row.session_of(&method, &built.manifest, true);
    let (begun, usage) = (start.elapsed(), session.step(row.batch(&[0, 1])).unwrap().usage);
    let memory = usage.linear_memory;
    let rust = package("dpo");
    let in_rust = engine.admit(&rust.bytes, "dpo", &Grants::default(), &Limits::default()).unwrap();
    let (python, rust) = (pace(&row, &method, &built.manifest), pace(&row, &in_rust, &rust.manifest));
    loudly(&format!(
        "Python: {} bytes, compiled in {compiled:.1?}, begun in {begun:.1?} with {memory} bytes of memory; a step, the \
         method's own part of it, and its calls: {python:.1?}, in Rust {rust:.1?}",
        built.bytes.len()
    ));
    assert!(python.0 < rust.0 + Duration::from_millis(100), "a step in {python:?}, in Rust {rust:?}");
}

#[test]
fn a_run_learns_by_a_method_in_python_as_by_the_one_in_rust() {
    let Some(built) = example() else { return };
    let place = Place::new();
    fs::write(place.path("dpo-python.wasm"), &built.bytes).unwrap();
    let line = |number: usize| {
        json!({ "prompt": format!("{number}+1?"), "chosen": format!("{}", number + 1), "rejected": "no" }).to_string()
    };
    place.write("data.jsonl", &(0..8).map(line).collect::<Vec<_>>().join("\n"));
    let train = |name: &str, method: &str| {
        let method = format!("method.use={method}");
        let own = ["train.steps=2", "train.batch=4", LIMITS[0], LIMITS[1], &method];
        place.train(name, &own, &mut Watcher::new()).unwrap();
        place.metrics(name).iter().map(|row| row["loss"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let python = train("python", &place.path("dpo-python.wasm").display().to_string());
    let rust = train("rust", "dpo");
    assert_eq!(python.len(), 2);
    assert_ne!(python[0], python[1]);
    for (found, wanted) in python.iter().zip(&rust) {
        assert!((found - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0), "{python:?}, in Rust {rust:?}");
    }
}

#[test]
fn a_new_method_in_python_trains() {
    let place = Place::new();
    let folder = Template::new("calm-words", Language::Python, None).unwrap().write(&place.path("")).unwrap();
    let Some(built) = made(&folder) else { return };
    assert_eq!(built.manifest.name, "calm-words");
    assert_eq!(built.manifest.settings[0].high, Some(10.0));
    fs::write(folder.join("calm-words.wasm"), &built.bytes).unwrap();
    let method = format!("method.use={}", folder.display());
    let own = ["train.steps=2", "method.focus=2", LIMITS[0], LIMITS[1], &method];
    place.train("calm", &own, &mut Watcher::new()).unwrap();
    let rows = place.metrics("calm");
    assert!(rows.iter().all(|row| row["gradient-norm"].as_f64().unwrap() > 0.0), "{rows:?}");
}

/// A method that goes wrong in the way that its setting names; a line with `HERE name` is where.
const FAULTS: &str = r#"from typing import Literal

from tunebox import Batch, Error, Refused, method, setting, tensor


@method(shape="supervised", metrics=["kept"])
class Faults:
    """Goes wrong."""

    way: Literal["side", "shapes", "word", "late", "own", "caught", "printed"] = setting("own", doc="How.")

    def step(self, batch: Batch) -> None:
        getattr(self, self.way)(batch)

    def side(self, batch: Batch) -> None:
        batch.rows("nowhere")  # HERE side

    def shapes(self, batch: Batch) -> None:
        tensor.full([2], 1.0) + tensor.full([3], 1.0)  # HERE shapes

    def word(self, batch: Batch) -> None:
        batch.size() + "one"  # HERE word

    def late(self, batch: Batch) -> None:
        import statistics  # HERE late

    def own(self, batch: Batch) -> None:
        raise Error("the `batch` is not to my liking")

    def caught(self, batch: Batch) -> None:
        try:
            batch.rows("nowhere")
        except Refused as refused:
            print("caught", refused.value.code.name)

    def printed(self, batch: Batch) -> None:
        print("one\ntwo", 3)
        print(tensor.full([2], 1.0) * 2.0 + 1.0)
"#;

#[test]
fn a_method_in_python_tells_its_line_and_what_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    write_method(&folder, "faults", FAULTS);
    let Some(built) = made(folder.path()) else { return };
    assert_eq!(interfaces(&built.imports), ["data", "run", "tensor", "types"]);
    let engine = Engine::new().unwrap();
    let method = engine.admit(&built.bytes, "faults", &Grants::default(), &limits()).unwrap();
    let row = golden_rows::rows("dpo").remove(0);
    let step = |way: &str| {
        let (learner, ..) = given_scores::GivenScores::over(Default::default(), false);
        let mut session = Session::start(&method, learner, SessionSettings::default()).unwrap();
        session.init(&[("way".to_owned(), Value::Text(way.to_owned()))]).unwrap();
        session.step(row.batch(&[0, 1]))
    };
    for (way, words) in [("side", "nowhere"), ("shapes", ""), ("word", "TypeError"), ("late", "at the top of the file")]
    {
        let error = step(way).unwrap_err();
        let line = FAULTS.lines().position(|line| line.ends_with(&format!("# HERE {way}"))).unwrap() + 1;
        assert!(error.to_string().contains(words), "{error}");
        let place = error.place().unwrap();
        assert!(place.starts_with(&format!("src/faults.py:{line}:")), "{way}: {place}, {error}");
    }
    let own = step("own").unwrap_err();
    assert!(matches!(&own, Error::Refused { .. }), "{own}");
    assert!(own.to_string().contains("not to my liking"), "{own}");
    assert_eq!(step("caught").unwrap().log, ["caught INVALID_ARGUMENT"]);
    assert_eq!(step("printed").unwrap().log, ["one", "two 3", "Tensor([2], f32)"]);
}

fn write_method(folder: &TempDir, name: &str, source: &str) {
    let project = format!("[project]\nname = \"{name}\"\nversion = \"0.1.0\"\ndescription = \"A test\"\n");
    fs::write(folder.path().join("pyproject.toml"), project).unwrap();
    fs::create_dir_all(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src").join(format!("{name}.py")), source).unwrap();
}

#[test]
fn what_a_source_gets_wrong_is_told_before_anything_is_made() {
    let wrong: [(&str, &str, Option<&str>); 5] = [
        ("from tunebox import method\n\ndef (:\n", "invalid syntax", Some("src/wrong.py:3:")),
        ("from tunebox import weihgts\n", "weihgts", Some("src/wrong.py:1:")),
        ("import tunebox\n", "declares no method", None),
        (
            "from tunebox import method\n\n@method(shape=\"supervised\", metrics=[])\nclass A:\n    pass\n",
            "step",
            Some("src/wrong.py:3:"),
        ),
        (
            "from tunebox import method\n\n@method(shape=\"supervised\", metrics=[])\nclass A:\n    \
             size: int = 3\n\n    def step(self, batch):\n        pass\n",
            "`size` is no setting",
            None,
        ),
    ];
    for (source, words, line) in wrong {
        let folder = tempfile::tempdir().unwrap();
        write_method(&folder, "wrong", source);
        if let Err(PythonError::NoCompiler) = python::find(folder.path()) {
            return loudly("PYTHON NOT TESTED: there is no `componentize-py` on this machine");
        }
        let error = build::compile(folder.path(), None).unwrap_err();
        assert!(matches!(&error, PackageError::Build(BuildError::Source { .. })), "{}", told(&error));
        assert!(error.to_string().contains(words), "{}", told(&error));
        let place = error.place();
        assert_eq!(place.is_some(), line.is_some(), "{}", told(&error));
        assert!(line.is_none_or(|line| place.unwrap().starts_with(line)), "{}", told(&error));
    }
}

/// A C compiler for WebAssembly, if there is one.
fn clang() -> Option<&'static str> {
    let names =
        ["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];
    names.into_iter().find(|name| {
        let targets = Command::new(name).arg("--print-targets").output();
        targets.is_ok_and(|targets| String::from_utf8_lossy(&targets.stdout).contains("wasm32"))
    })
}

/// The bindings that the public generator makes of `wit`, in a folder.
fn bindings(folder: &Path) {
    let mut resolve = wit_bindgen_core::wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let world = resolve.select_world(&[package], Some("method")).unwrap();
    let mut files = wit_bindgen_core::Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files).unwrap();
    for (name, bytes) in files.iter() {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// The example's module, by the command that its page gives.
fn compiled_c(clang: &str, folder: &Path) -> PathBuf {
    let source = root().join("examples/14-c");
    bindings(folder);
    let page = fs::read_to_string(source.join("README.md")).unwrap();
    let (_, command) = page.split_once("$ clang ").unwrap();
    let (command, _) = command.split_once("\n```").unwrap();
    let module = folder.join("dpo-c.core.wasm");
    let command = command.replace("\\\n", " ").replace("generated", folder.to_str().unwrap());
    let command = command.replace("dpo-c.core.wasm", module.to_str().unwrap());
    let output = Command::new(clang).args(command.split_whitespace()).current_dir(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    module
}

#[test]
fn a_method_in_c_without_an_sdk_gives_the_numbers_of_the_one_in_rust() {
    let Some(clang) = clang() else {
        return loudly("C NOT TESTED: there is no `clang` for WebAssembly on this machine");
    };
    let folder = tempfile::tempdir().unwrap();
    let module = compiled_c(clang, folder.path());
    let built = build::compile(&module, None).unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(interfaces(&built.imports), ["data", "learn", "model", "run", "tensor", "types"]);
    assert!(built.bytes.len() < 64 << 10, "{} bytes", built.bytes.len());

    let engine = Engine::new().unwrap();
    let method = engine.admit(&built.bytes, "dpo-c", &Grants::default(), &Limits::default()).unwrap();
    assert_same_numbers(&engine, &method, &built.manifest, 3);
    loudly(&format!("C: {} bytes", built.bytes.len()));
}
