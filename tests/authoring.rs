//! Claims about authoring: what `tunebox new` writes builds and trains at once, the same source gives the same bytes in
//! any folder of any user, and `tunebox dev` takes a changed source into the run that goes on.
//!
//! Builds share one cargo folder, but where the claim is about folders. `BLESS=1` locks the template's dependencies anew.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tunebox_package::builtin;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const BINARY: &str = env!("CARGO_BIN_EXE_tunebox");
const TEMPORARY: &str = env!("CARGO_TARGET_TMPDIR");

/// The longest that anything is waited for: a build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A folder of somebody, with a home of their own.
struct Place {
    folder: TempDir,
    target: PathBuf,
}

impl Place {
    fn new() -> Self {
        Self::building_in(Path::new(TEMPORARY).join("authoring"))
    }

    fn building_in(target: PathBuf) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), target }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(self.folder.path()).env("NO_COLOR", "1");
        command.env("TUNEBOX_HOME", self.path("home")).env("TUNEBOX_CACHE", Path::new(TEMPORARY).join("compiled"));
        command.env("CARGO_TARGET_DIR", &self.target).stdin(Stdio::null());
        command
    }

    /// What a command says where it must succeed.
    fn done(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let said = said(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }

    /// What a command says where it must be refused as a wrong use.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        said
    }

    fn built(&self, name: &str) -> Vec<u8> {
        self.done(&["build", name]);
        std::fs::read(self.path(&format!("{name}/{name}.wasm"))).unwrap()
    }

    /// The steps in the metrics of a run, without what depends on the machine.
    fn steps(&self, run: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(&format!("{run}/metrics.jsonl"))).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut steps: Vec<Value> = rows.filter(|row| row.get("epoch").is_some()).collect();
        for row in &mut steps {
            row.as_object_mut().unwrap().retain(|name, _| !name.contains("second"));
        }
        steps
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_new_method_is_the_same_bytes_in_another_folder_of_another_user() {
    let here = Place::new();
    let said = here.done(&["new", "calm"]);
    assert!(said.contains("cd calm; tunebox build; tunebox test; tunebox train --sample --method ."), "{said}");
    let bytes = here.built("calm");
    here.done(&["train", "--sample", "--method", "calm", "--set", "train.steps=2", "--name", "one"]);
    assert_eq!(here.steps("runs/one").len(), 2);
    // The next version: the lock follows.
    let manifest = here.path("calm/Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("version = \"0.1.0\"", "version = \"0.2.0\"")).unwrap();
    assert!(here.built("calm") != bytes);
    std::fs::write(&manifest, text).unwrap();
    assert!(here.built("calm") == bytes, "the first version is not what it was");

    // Nothing is shared with the first folder, so nothing of it can be taken over.
    let elsewhere = Place::building_in(Path::new(TEMPORARY).join("authoring-elsewhere"));
    elsewhere.done(&["new", "calm"]);
    assert!(elsewhere.built("calm") == bytes, "two folders, two components");
    let home = std::env::home_dir().unwrap();
    for place in [here.folder.path(), elsewhere.folder.path(), &here.target, &elsewhere.target, &home] {
        let place = place.to_str().unwrap().as_bytes();
        assert!(!bytes.windows(place.len()).any(|window| window == place), "a path of this machine is in the bytes");
    }
}

#[test]
fn a_method_begun_with_a_built_in_one_learns_the_same() {
    let place = Place::new();
    for method in ["dpo", "kto", "grpo"] {
        let name = format!("my-{method}");
        place.done(&["new", &name, "--like", method]);
        place.done(&["build", &name]);
        let few = ["--set", "train.steps=2", "--name", method];
        place.done(&[&["-C", &name, "train", "run.toml"][..], &few[..]].concat());
        place.done(&[&["train", "--sample", "--method", method][..], &few[..]].concat());
        let (own, built_in) = (place.steps(&format!("{name}/runs/{method}")), place.steps(&format!("runs/{method}")));
        assert_eq!(own.len(), 2);
        assert_eq!(own, built_in, "{method}");
    }
}

#[test]
fn a_verifier_begun_with_a_built_in_one_builds_with_what_it_depends_on() {
    let place = Place::new();
    let said = place.done(&["new", "my-pattern", "--like", "pattern"]);
    assert!(said.contains("cd my-pattern; tunebox build; tunebox test\n"), "{said}");
    place.built("my-pattern");
    let inspected = place.done(&["inspect", "my-pattern"]);
    assert!(inspected.contains("my-pattern"), "{inspected}");
}

#[test]
fn every_beginning_is_a_folder_that_cargo_understands() {
    let place = Place::new();
    let names = builtin::list().iter().chain(builtin::verifiers()).map(|built_in| Some(built_in.name));
    for like in names.chain([None]) {
        let name = like.map_or("calm".to_owned(), |like| format!("my-{like}"));
        let words = like.map_or(vec!["new", &name], |like| vec!["new", &name, "--like", like]);
        place.done(&words);
        let locked = place.path(&name).join("Cargo.lock").is_file();
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--format-version", "1"]).args(locked.then_some("--locked"));
        let output = cargo.current_dir(place.path(&name)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_lock_of_the_template_is_what_cargo_makes_of_the_repository_s() {
    let place = Place::new();
    place.done(&["new", "calm"]);
    let (folder, template) = (place.path("calm"), Path::new(ROOT).join("sdk/template/rust/Cargo.lock"));
    std::fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let shortened = Command::new("cargo").args(["update", "--workspace", "--quiet"]).current_dir(&folder).status();
    assert!(shortened.unwrap().success());
    let lock = std::fs::read_to_string(folder.join("Cargo.lock")).unwrap().replace("\"calm\"", "\"blank\"");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&template, &lock).unwrap();
    }
    let packages = |text: &str| {
        let mut packages: Vec<String> = text.split("[[package]]").skip(1).map(|part| part.trim().to_owned()).collect();
        packages.sort();
        packages
    };
    let kept = std::fs::read_to_string(&template).unwrap();
    assert_eq!(packages(&kept), packages(&lock), "`BLESS=1 cargo test --release --test authoring` locks anew");
}

#[test]
fn what_cannot_be_begun_is_refused_and_leaves_nothing() {
    let place = Place::new();
    for (words, told) in [
        (vec!["new", "CalmDpo"], "hint: `tunebox new calm-dpo`"),
        (vec!["new", "dpo"], "`dpo` is built in"),
        (vec!["new", "loop"], "keeps that word for itself"),
        (vec!["new", "../calm"], "hint: `tunebox new calm`"),
        (vec!["new", "calm", "--like", "dppo"], "did you mean `dpo`?"),
        (vec!["new", "calm", "--language", "cobol"], "invalid value 'cobol'"),
        (vec!["dev", "--method", "calm"], "`tunebox dev` has no `--method`"),
        (vec!["dev", "nowhere"], "cannot read `nowhere/"),
    ] {
        let said = place.refused(&words);
        assert!(said.contains(told), "{words:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_exists_is_left_as_it_is() {
    let place = Place::new();
    place.done(&["new", "calm"]);
    std::fs::write(place.path("calm/src/lib.rs"), "//! Mine.\n").unwrap();
    assert!(place.refused(&["new", "calm"]).contains("nothing that exists is replaced"));
    assert!(place.refused(&["-C", "calm", "new", "calmer", "--here"]).contains("exists"));
    assert_eq!(std::fs::read_to_string(place.path("calm/src/lib.rs")).unwrap(), "//! Mine.\n");

    std::fs::create_dir(place.path("own")).unwrap();
    let said = place.done(&["-C", "own", "new", "calm", "--here"]);
    assert!(said.contains("Next tunebox build; tunebox test; tunebox train --sample --method ."), "{said}");
    assert!(place.path("own/src/lib.rs").is_file() && place.path("own/runs/.sample/model").is_dir());
}

#[test]
fn an_sdk_of_another_version_is_asked_for_in_vain() {
    let place = Place::new();
    place.done(&["new", "calm"]);
    let manifest = std::fs::read_to_string(place.path("calm/Cargo.toml")).unwrap();
    std::fs::write(place.path("calm/Cargo.toml"), manifest.replace("\"0.1\"", "\"9.1\"")).unwrap();
    let said = place.refused(&["build", "calm"]);
    assert!(said.contains("asks for version `9.1` of the SDK"), "{said}");
}

/// A run of `tunebox dev`, and what it tells.
struct Dev {
    child: Child,
    told: Receiver<Value>,
}

impl Dev {
    fn start(place: &Place, words: &[&str]) -> Self {
        let mut child =
            place.command(words).arg("--json").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, told) = channel();
        std::thread::spawn(move || {
            let mut events = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            events.try_for_each(|event| send.send(event))
        });
        Self { child, told }
    }

    /// The next event of a kind; the losses of the steps before it.
    fn until(&self, kind: &str) -> (Value, Vec<(u64, f64)>) {
        let mut losses = Vec::new();
        loop {
            let event = self.told.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no `{kind}`: {error}"));
            if event["event"] == kind {
                return (event, losses);
            }
            if event["event"] == "step" {
                losses.push((event["step"].as_u64().unwrap(), event["metrics"]["loss"].as_f64().unwrap()));
            }
            assert!(event["event"] != "finished", "the run ended before `{kind}`");
        }
    }

    /// The losses of the coming steps.
    fn steps(&self, count: usize) -> Vec<(u64, f64)> {
        let step = |event: Value| {
            (event["step"].as_u64().unwrap(), event["metrics"]["loss"].as_f64().unwrap_or_else(|| panic!("{event}")))
        };
        (0..count).map(|_| step(self.until("step").0)).collect()
    }

    fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_changed_source_goes_into_the_run_and_one_that_is_wrong_does_not_end_it() {
    let place = Place::new();
    place.done(&["new", "calm"]);
    let source = place.path("calm/src/lib.rs");
    let first = std::fs::read_to_string(&source).unwrap();
    let save = |text: String| std::fs::write(&source, text).unwrap();
    let dev = Dev::start(
        &place,
        &["dev", "calm", "--name", "long", "--set", "train.steps=100000", "--set", "method.focus=0.5"],
    );
    let before = dev.steps(2).pop().unwrap().1;

    let tenfold = first.replace("-(unknown", "-10.0 * (unknown");
    save(tenfold.clone());
    let (swapped, passed) = dev.until("swapped");
    let after = dev.steps(2);
    assert_eq!(after[0].0, swapped["step"].as_u64().unwrap() + 1, "no step is left out or done twice");
    assert!(after[0].1 > 3.0 * passed.last().map_or(before, |(_, loss)| *loss), "{passed:?} {after:?}");

    save(tenfold.replace("self.focus", "self.fokus"));
    let (error, _) = dev.until("error");
    assert!(error["what"].as_str().unwrap().contains("fokus"), "{error}");
    dev.steps(3);

    save(tenfold.replace("focus", "sharpness"));
    let (error, _) = dev.until("error");
    assert!(error["what"].as_str().unwrap().contains("`focus`"), "{error}");
    dev.until("kept");
    dev.steps(3);

    save(tenfold.replace("let scores", "assert!(targets == 0, \"too calm\");\n        let scores"));
    dev.until("swapped");
    let (error, _) = dev.until("error");
    assert!(error.to_string().contains("too calm"), "{error}");
    save(first);
    let (swapped, _) = dev.until("swapped");
    let last = dev.steps(2);
    assert_eq!(last[0].0, swapped["step"].as_u64().unwrap() + 1);

    assert_eq!(dev.interrupt(), Some(130));
    let steps = place.steps("runs/long");
    assert!(steps.len() as u64 >= last[1].0);
    let numbers = steps.iter().map(|row| row["step"].as_u64().unwrap());
    assert!(numbers.eq(1..=steps.len() as u64), "the numbers of the steps have a gap");
    let text = std::fs::read_to_string(place.path("runs/long/metrics.jsonl")).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\"method\"")).count(), 3, "every version is written down");
}
