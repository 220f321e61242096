//! A method in Python: the example, by the commands of its page, and what `tunebox new --language python` writes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tunebox_foundation::explain::Explain;
use tunebox_package::Error as PackageError;
use tunebox_package::build::python;
use tunebox_package::error::Reason;
use tunebox_package::{Manifest, read_manifest};
use tunebox_sandbox::{Engine, Error, Grants, Limits, Method};

use super::{TOLERANCE, assert_same_numbers, command, commands, interfaces, numbers, play, print_uncaptured, rows_of};
use crate::support::absent::absent;
use crate::support::folders::copy;
use crate::support::golden::root;
use crate::support::golden_rows::{Row, package};

const FOLDER: &str = "examples/10-python";

/// What a run of the method must allow, as its run file says.
pub(crate) fn limits() -> Limits {
    Limits { component_bytes: 32 << 20, compile_seconds: 120.0, ..Limits::default() }
}

/// Fails as absent if this machine cannot build components from Python.
pub(crate) fn require_compiler() {
    match python::find_tools(None) {
        Ok(_) => (),
        Err(error @ PackageError::Explained { reason: Reason::NoCompiler, .. }) => {
            absent("componentize-py", &error.to_string())
        }
        Err(error) => panic!("{error}"),
    }
}

/// A folder with the example and the part of the repository that its run file names, and what the page says to do there.
fn copied() -> (TempDir, [String; 3]) {
    let place = tempfile::tempdir().unwrap();
    for part in [FOLDER, "runtime/training/sample"] {
        copy(&root().join(part), &place.path().join(part));
    }
    let commands = <[String; 3]>::try_from(commands(&format!("{FOLDER}/README.md")));
    (place, commands.unwrap_or_else(|other| panic!("the page has other commands: {other:?}")))
}

/// The example's component, built once, by the first command of the page.
fn example() -> &'static [u8] {
    static EXAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    let build = || {
        let (place, [build, ..]) = copied();
        play(&build, place.path());
        fs::read(place.path().join(FOLDER).join("dpo-python.wasm")).unwrap()
    };
    require_compiler();
    EXAMPLE.get_or_init(build)
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
#[ignore = "needs componentize-py"]
fn a_method_in_python_gives_the_numbers_of_the_one_in_rust() {
    let bytes = example();
    assert_eq!(interfaces(bytes), ["data", "learn", "model", "run", "tensor", "types"]);

    let engine = Engine::new().unwrap();
    let refused = engine.admit(bytes, "dpo-python", &Grants::default(), &Limits::default()).err().unwrap();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("limits.component-bytes"), "{:?}", refused.hint());
    assert_eq!(engine.compiled(), 0);

    let (start, manifest) = (Instant::now(), read_manifest(bytes).unwrap());
    let method = engine.admit(bytes, "dpo-python", &Grants::default(), &limits()).unwrap();
    let compiled = start.elapsed();
    assert_same_numbers(&engine, &method, &manifest, 6);

    let row = rows_of(&manifest).remove(0);
    let start = Instant::now();
    let (mut session, ..) = row.session_of(&method, &manifest, true);
    let (begun, usage) = (start.elapsed(), session.step(row.batch(&[0, 1])).unwrap().usage);
    let memory = usage.linear_memory;
    let rust = package("dpo");
    let in_rust = engine.admit(&rust.bytes, "dpo", &Grants::default(), &Limits::default()).unwrap();
    let (python, rust) = (pace(&row, &method, &manifest), pace(&row, &in_rust, &rust.manifest));
    print_uncaptured(&format!(
        "Python: {} bytes, compiled in {compiled:.1?}, begun in {begun:.1?} with {memory} bytes of memory; a step, the \
         method's own part of it, and its calls: {python:.1?}, in Rust {rust:.1?}",
        bytes.len()
    ));
    assert!(python.0 < rust.0 + Duration::from_millis(100), "a step in {python:?}, in Rust {rust:?}");
}

#[test]
#[ignore = "needs componentize-py"]
fn the_run_of_the_page_learns_as_by_the_method_in_rust() {
    let bytes = example();
    let (place, [_, inspect, train]) = copied();
    fs::write(place.path().join(FOLDER).join("dpo-python.wasm"), bytes).unwrap();
    let inspected = play(&inspect, place.path());
    assert!(inspected.contains("dpo-python"), "{inspected}");
    // `--yes`: the page builds the folder first, which accepts its run file.
    play(&format!("{train} --yes --name python"), place.path());
    play(&format!("{train} --yes --name rust --set method.use=dpo"), place.path());

    let losses = |name: &str| numbers(&place.path().join("runs").join(name), "loss");
    let (python, rust) = (losses("python"), losses("rust"));
    assert_eq!((python.len(), rust.len()), (20, 20));
    assert_ne!(python[0], python[1]);
    // What differs by a last bit grows from step to step, in any language.
    for (found, wanted) in python.iter().zip(&rust).take(2) {
        assert!((found - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0), "{python:?}, in Rust {rust:?}");
    }
}

#[test]
#[ignore = "needs componentize-py"]
fn a_new_method_in_python_trains_by_its_own_run_file() {
    require_compiler();
    let place = tempfile::tempdir().unwrap();
    play("tunebox new calm-words --language python", place.path());
    let folder = place.path().join("calm-words");
    play("tunebox build", &folder);
    let bytes = fs::read(folder.join("calm-words.wasm")).unwrap();
    let manifest = read_manifest(&bytes).unwrap();
    assert_eq!((manifest.name.as_str(), manifest.settings[0].high), ("calm-words", Some(10.0)));
    play("tunebox train run.toml --name calm --set train.steps=2 --set method.focus=2", &folder);
    assert_slopes(&folder.join("runs/calm"));
    // The sample's run file has no limits; those of the folder are used and shown.
    let shown = play("tunebox train --sample --method . --name bare --set train.steps=2", &folder);
    assert!(shown.contains("raises `component-bytes` from 16.0 MiB to 32.0 MiB"), "{shown}");
    assert_slopes(&folder.join("runs/bare"));
}

#[test]
#[ignore = "needs componentize-py"]
fn a_new_method_in_python_and_plain_python_are_the_same_to_the_bit() {
    require_compiler();
    let place = tempfile::tempdir().unwrap();
    play("tunebox new calm-words --language python", place.path());
    let folder = place.path().join("calm-words");
    fs::create_dir(folder.join("tests")).unwrap();
    fs::write(folder.join("tests/test_contract.py"), REACHABLE).unwrap();
    let shown = play("tunebox test --steps 2", &folder);
    assert!(shown.contains("Same 2 steps"), "{shown}");
    assert!(shown.contains("unsandboxed"), "{shown}");

    // A test of the author's that fails is the answer.
    fs::write(folder.join("tests/test_wrong.py"), WRONG).unwrap();
    let output = command("tunebox test --steps 2", &folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "needs componentize-py"]
fn a_new_verifier_or_environment_in_python_passes_its_tests_and_gives_the_rewards_of_a_run() {
    require_compiler();
    let place = tempfile::tempdir().unwrap();
    for kind in ["verifier", "environment"] {
        let name = format!("my-{kind}");
        play(&format!("tunebox new {name} --kind {kind} --language python"), place.path());
        let folder = place.path().join(&name);
        let shown = play("tunebox test", &folder);
        assert!(shown.contains(&format!("Passed the {kind}'s own tests")) && !shown.contains("arning"), "{shown}");
        play("tunebox train run.toml --name few --set train.steps=2", &folder);
        let rewards = numbers(&folder.join("runs/few"), &format!("reward-{name}-mean"));
        assert!(rewards.len() == 2 && rewards.iter().any(|reward| *reward > 0.0), "{kind}: {rewards:?}");
    }
}

/// A test of an author's that fails.
const WRONG: &str = "import unittest\n\n\nclass Wrong(unittest.TestCase):\n    def test_one_is_two(self) -> None:\n        \
                     self.assertEqual(1, 2)\n";

/// A test of an author's: every function and type of the contract is reachable from the package.
const REACHABLE: &str = r#"import unittest
from importlib import import_module

import calm_words  # noqa: F401  declares the method
import tunebox
from tunebox.arguments import camel, located
from tunebox.bench import Bench
from tunebox.contract import FUNCTIONS, TYPES


def module(interface: str):
    try:
        return getattr(tunebox, interface)
    except AttributeError:
        return import_module(f"tunebox.{interface}")


class TestContract(unittest.TestCase):
    def test_every_function_and_type_is_reachable(self) -> None:
        self.assertGreater(sum(map(len, FUNCTIONS.values())), 150)
        for interface, functions in FUNCTIONS.items():
            for key, _, _ in functions:
                # The package has a class of its own for the taps, which it turns into those of the contract.
                if not key.partition("]")[2].startswith("taps"):
                    home, name = located(module(interface), key)
                    self.assertTrue(callable(getattr(home, name)), key)
            for name in TYPES[interface]:
                self.assertTrue(hasattr(module(interface), camel(name)), name)

    def test_the_loss_falls(self) -> None:
        with Bench(records=[{"text": "calm seas"}], seed=1, set={"train.rate": 0.01}) as run:
            before = run.step().metrics["loss"]
            self.assertLess(run.step().metrics["loss"], before)
"#;

/// Every step of a run had a gradient.
fn assert_slopes(run: &Path) {
    let norms = numbers(run, "gradient-norm");
    assert_eq!(norms.len(), 2);
    assert!(norms.iter().all(|norm| *norm > 0.0), "{norms:?}");
}

#[test]
#[ignore = "needs componentize-py"]
fn a_saved_change_of_a_method_in_python_is_in_the_run_of_dev_within_seconds() {
    require_compiler();
    let place = tempfile::tempdir().unwrap();
    play("tunebox new calm-words --language python", place.path());
    let (folder, source) = (place.path().join("calm-words"), "src/calm_words.py");
    let mut dev =
        command("exec tunebox dev --json", &folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut events = BufReader::new(dev.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_for = |event: &str| {
        let line = events.find(|line| line.contains(&format!("\"event\":\"{event}\"")));
        line.unwrap_or_else(|| panic!("no `{event}`"))
    };
    assert!(wait_for("loaded").contains("\"sandboxed\":false"));
    wait_for("step");
    let text = fs::read_to_string(folder.join(source)).unwrap();
    fs::write(folder.join(source), text.replace("return -(", "return -2.0 * (")).unwrap();
    let saved = Instant::now();
    wait_for("swapped");
    let took = saved.elapsed();
    print_uncaptured(&format!("Python: a saved change is in the run of `dev` after {took:.2?}"));
    assert!(!folder.join("calm-words.wasm").exists());

    // The message about an exception names its line, and the run continues once the source is corrected.
    fs::write(folder.join(source), text.replace("return -(", "return missing * -(")).unwrap();
    wait_for("waiting");
    fs::write(folder.join(source), text).unwrap();
    wait_for("swapped");
    dev.kill().unwrap();
    dev.wait().unwrap();
}
