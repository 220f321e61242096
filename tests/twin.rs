//! Claims about native twins: the same source does the same as a component and as a process, to the bit; one that does
//! not is found out; and a test of an author's is served by the very host.

mod author;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::absent::absent;
use crate::support::folders::method_folder;
use crate::support::transcript::BINARY;
use serde_json::Value;
use tempfile::TempDir;

/// The numbers of the sample's adapter: rank 8 on every linear map of the tiny model.
const TRAINED: u64 = 116_736;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tunebox(words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words).env("NO_COLOR", "1").env("TUNEBOX_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled"));
    // None that the cargo above may hold.
    command.env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/twin"));
    command.env("TUNEBOX_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/twin-home"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `tunebox test` of a folder over some steps.
fn run_tests(folder: &Path, steps: &str, more: &[&str]) -> Output {
    let words = [&["test", folder.to_str().unwrap(), "--steps", steps], more].concat();
    tunebox(&words).output().unwrap()
}

/// A file for the component of a folder of this repository, whose own is committed and not a test's to replace.
fn component_path(folder: &str) -> String {
    format!("{}/{}.wasm", env!("CARGO_TARGET_TMPDIR"), folder.replace('/', "-"))
}

/// The object that `tunebox test --json` ends with, of one that came through.
fn assert_twin_agrees(folder: &str, steps: &str) -> Value {
    let output =
        run_tests(&Path::new(ROOT).join(folder), steps, &["--json", "--quiet", "--out", &component_path(folder)]);
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{told}");
    let last = told.lines().last().unwrap();
    let tested: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&tested["event"], &tested["same"]), (&"tested".into(), &true.into()), "{last}");
    assert_eq!(tested["steps"].to_string(), steps);
    tested
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_supervised_method_and_its_twin_are_the_same_to_the_bit() {
    let tested = assert_twin_agrees("methods/lora", "4");
    // Every number of the adapter, after `init`, each step and `finish`; the method keeps no state.
    assert_eq!(tested["bits"].as_u64(), Some(6 * 32 * TRAINED), "{tested}");
    assert!(tested["metrics"].as_u64().unwrap() >= 4 * 3, "{tested}");
}

#[test]
fn a_preference_method_and_its_twin_are_the_same_to_the_bit() {
    let tested = assert_twin_agrees("methods/dpo", "4");
    assert!(tested["metrics"].as_u64().unwrap() >= 4 * 11, "{tested}");
}

#[test]
fn a_method_that_writes_and_is_judged_and_its_twin_are_the_same_to_the_bit() {
    let tested = assert_twin_agrees("examples/9-rloo", "3");
    assert!(tested["metrics"].as_u64().unwrap() >= 3 * 4, "{tested}");
}

#[test]
fn a_method_that_edits_at_the_end_and_its_twin_leave_the_same() {
    let (folder, aside) = (format!("{ROOT}/methods/abliterate"), component_path("methods/abliterate"));
    let output = tunebox(&["test", &folder, "--json", "--out", &aside]).output().unwrap();
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}{said}");
    let tested: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    // The weights that it edited, as its artifact would have them.
    assert!(tested["bits"].as_u64().unwrap() > 32 * 10_000, "{tested}");
}

/// A folder outside of the repository with a method whose step holds `body`.
fn folder(name: &str, body: &str) -> TempDir {
    method_folder(name, &SOURCE.replace("BODY", body))
}

const SOURCE: &str = r#"//! A calm method.

use tunebox::prelude::*;

/// What people may set.
#[derive(Settings)]
pub struct Calm {
    /// How calm.
    #[setting(default = 0.5)]
    half: f32,
}

impl Method for Calm {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let scores = score_for_learning(&rows, Taps::empty(), 1.0)?;
        let loss = loss::token_mean(&-scores.logprob(), batch.window_targets("example")?) * self.half;
        add_metric("loss", &loss);
        BODY
        backward(&loss)?;
        Ok(())
    }
}

method! { Calm, shape: "supervised", metrics: ["loss"] }
"#;

#[test]
fn a_method_that_asks_what_it_is_compiled_for_is_found_out() {
    // What it reports is the same, and so is the number of its calls: only the weights tell.
    let folder = folder("shifty", r#"let loss = loss * if cfg!(target_arch = "wasm32") { 1.0 } else { -1.0 };"#);
    let output = run_tests(folder.path(), "3", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error[test]: the component and the native twin of `shifty` differ"), "{said}");
    assert!(said.contains("trained numbers") && said.contains("at step 1"), "{said}");
}

#[test]
fn an_extra_parameter_that_differs_is_found() {
    let value = r#"tunebox::tensor::from_list(&[if cfg!(target_arch = "wasm32") { 1.0 } else { 2.0 }], &[1])"#;
    let folder = folder("leaning", &format!("tunebox::optimizer::extra(\"odd\", &{value})?;"));
    let output = run_tests(folder.path(), "3", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the tensor `extra/odd`") && said.contains("at step 1"), "{said}");
}

#[test]
fn a_twin_that_panics_is_shown_with_file_and_line() {
    let folder = folder("nervous", r#"assert!(cfg!(target_arch = "wasm32"), "only calm in a component");"#);
    let line = SOURCE.lines().position(|line| line.contains("BODY")).unwrap() + 1;
    let output = run_tests(folder.path(), "3", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("only calm in a component"), "{said}");
    assert!(said.contains(&format!("src/lib.rs:{line}:")), "{said}");
    assert!(said.contains("it went on"), "{said}");
}

#[test]
#[ignore = "needs gdb"]
fn a_debugger_stops_in_the_method_at_its_line() {
    // Some containers let no process be traced.
    let traced = Command::new("gdb").args(["-batch", "-ex", "run", "--args", "true"]).output();
    if !traced.is_ok_and(|output| text(&output.stdout).contains("exited normally")) {
        absent("gdb", "none that may trace a process");
    }
    let folder = folder("watched", "");
    let line = SOURCE.lines().position(|line| line.contains("backward(&loss)?;")).unwrap() + 1;
    let words = ["test", folder.path().to_str().unwrap(), "--steps", "1", "--debug"];
    let mut host = tunebox(&words).stdout(Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(host.stderr.take().unwrap()).lines().map(Result::unwrap);
    let shown = said.find_map(|line| Some(line.split_once("Debug ")?.1.to_owned())).unwrap();
    let script = format!("gdb -batch -ex 'break src/lib.rs:{line}' -ex run -ex kill --args");
    let output = Command::new("sh").arg("-c").arg(shown.replace("gdb --args", &script)).output().unwrap();
    said.for_each(drop);
    host.wait().unwrap();
    let (told, complaint) = (text(&output.stdout), text(&output.stderr));
    let stopped =
        told.lines().find(|told| told.contains("::step (self=")).unwrap_or_else(|| panic!("{told}{complaint}"));
    assert!(stopped.ends_with(&format!("at src/lib.rs:{line}")), "{told}{complaint}");
}

#[test]
fn a_test_of_the_authors_that_fails_is_the_answer() {
    let folder = folder("wrong", "");
    let path = folder.path().join("src/lib.rs");
    let source = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{source}\n#[test]\nfn calm_is_half() {{\n    assert_eq!(1, 2);\n}}\n")).unwrap();
    let output = run_tests(folder.path(), "1", &["--json"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("calm_is_half"));
    let tested: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&tested["own"], &tested["same"]), (&false.into(), &Value::Null));
    // What was tested is what trains: the folder is as a build leaves it.
    assert!(tunebox_package::Reference::parse("./", folder.path()).unwrap().open().is_ok());
}

#[test]
fn a_folder_without_a_method_has_no_twin() {
    let place = tempfile::tempdir().unwrap();
    let output = run_tests(place.path(), "1", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no method in"), "{}", text(&output.stderr));
}
