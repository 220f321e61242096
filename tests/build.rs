//! From a method folder to a component: the committed components are what their sources give,
//! in any folder and by any toolchain, and what cannot be built says why.
//!
//! `BLESS=1 cargo test --release -p tunebox-package --test package build::` builds and writes them anew.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test may stop at the first surprise"))]

mod refusals;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tunebox_foundation::explain::Explain;
use tunebox_package::build::{self, Built, Event, Options, Record};
use tunebox_package::toolchain::{self, Toolchain};
use tunebox_package::{Error, Reference, Value, component, read_manifest};
use wit_component::WitPrinter;

use crate::support::folders::{copy, lock, method_folder};

const BLESS: &str = "BLESS=1 cargo test --release -p tunebox-package --test package build::";

#[test]
fn every_built_in_method_is_what_its_source_gives() {
    for folder in methods() {
        if std::env::var_os("BLESS").is_some() {
            build::build(&folder, &Options::default(), &mut |_| {})
                .unwrap_or_else(|error| panic!("{}", message(&error)));
        }
        let committed = committed(&folder);
        let made = Record::read(&committed).unwrap().expect("a committed component says how it was built");
        let same = toolchain::all().into_iter().find(|toolchain| toolchain.name() == made.toolchain);
        let rebuilt = rebuilt(&folder, same.as_ref());

        if same.is_some() {
            let sizes = (committed.len(), rebuilt.bytes.len());
            assert!(committed == rebuilt.bytes, "{} is not what its source gives {sizes:?}: {BLESS}", folder.display());
            continue;
        }
        let (name, here) = (rebuilt.manifest.name.clone(), toolchain::find().unwrap().name());
        print_uncaptured(&format!("BYTES NOT COMPARED: `{name}` was built by `{}`, here is `{here}`", made.toolchain));
        assert_same_method(&committed, &rebuilt);
    }
}

#[test]
#[ignore = "the second toolchain may have to build the standard library first: two minutes"]
fn every_toolchain_here_gives_the_same_method() {
    let committed = committed(&root().join("methods/lora"));
    for toolchain in toolchain::all() {
        let start = Instant::now();
        let rebuilt = rebuilt(&root().join("methods/lora"), Some(&toolchain));
        print_uncaptured(&format!("{}: {} bytes in {:.1?}", toolchain.name(), rebuilt.bytes.len(), start.elapsed()));
        assert_same_method(&committed, &rebuilt);
    }
}

#[test]
fn a_method_built_afresh_in_another_folder_compiles_everything_into_the_same_bytes() {
    let elsewhere = tempfile::tempdir().unwrap();
    for part in ["sdk/rust", "sdk/derive", "sdk/mirror", "methods/lora", "runtime/compute/patches"] {
        copy(&root().join(part), &elsewhere.path().join(part));
    }
    let whole = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = r#"members = ["sdk/rust", "sdk/derive", "sdk/mirror", "methods/*"]"#;
    let reduced: Vec<&str> = whole
        .lines()
        .filter(|line| !line.starts_with("default-members"))
        .map(|line| if line.starts_with("members") { members } else { line })
        .collect();
    fs::write(elsewhere.path().join("Cargo.toml"), reduced.join("\n")).unwrap();
    lock(elsewhere.path());
    // The target folder of both, in which the other build has left what it compiled.
    let target = format!("build.target-dir = {:?}\n", root().canonicalize().unwrap().join("target"));
    fs::create_dir(elsewhere.path().join(".cargo")).unwrap();
    fs::write(elsewhere.path().join(".cargo/config.toml"), target).unwrap();

    let build = |folder: &Path, clean| {
        let mut compiled = Vec::new();
        let options = Options { clean, ..Options::default() };
        let mut watch = |event: Event<'_>| match event {
            Event::Compiled(name) => compiled.push(name.to_owned()),
            Event::Waiting(_) | Event::TypesNotChecked(_) => {}
        };
        let built = build::compile(folder, &options, &mut watch);
        (built.unwrap_or_else(|error| panic!("{}", message(&error))).bytes, compiled)
    };
    // Compiled for the machine that builds, so the same for every folder and flag that other tests build with.
    let parser = "syn".to_owned();
    let (here, _) = build(&root().join("methods/lora"), false);
    assert!(!build(&root().join("methods/lora"), false).1.contains(&parser), "what was compiled before is taken");
    let (moved, compiled) = build(&elsewhere.path().join("methods/lora"), true);
    assert!(compiled.contains(&parser), "a clean build takes nothing: {compiled:?}");
    assert!(moved == here, "{} bytes there, {} here", moved.len(), here.len());
}

#[test]
fn no_path_of_this_machine_is_in_a_built_in_method() {
    let home = std::env::home_dir().unwrap();
    for folder in methods() {
        let (bytes, root) = (committed(&folder), root().canonicalize().unwrap());
        for path in [&root, &home] {
            let path = path.to_str().unwrap().as_bytes();
            assert!(!bytes.windows(path.len()).any(|window| window == path), "{}", folder.display());
        }
    }
}

#[test]
fn a_method_outside_the_repository_builds_against_the_sdk_by_its_path() {
    let folder = method_folder("calm", METHOD);
    let built = build::build(folder.path(), &Options::default(), &mut |_| {})
        .unwrap_or_else(|error| panic!("{}", message(&error)));
    assert_eq!(built.path, folder.path().join("calm.wasm"));
    assert_eq!(built.manifest.settings[0].default, Some(Value::Number(0.5)));
    assert_eq!(fs::read(&built.path).unwrap(), built.bytes);
    assert!(Reference::parse("./", folder.path()).unwrap().open().is_ok());
}

#[test]
fn a_folder_that_changed_since_it_was_built_does_not_open() {
    let folder = method_folder("calm", METHOD);
    build::build(folder.path(), &Options::default(), &mut |_| {}).unwrap_or_else(|error| panic!("{}", message(&error)));
    fs::write(folder.path().join("src/lib.rs"), format!("{METHOD}\n// later\n")).unwrap();
    let error = Reference::parse("./", folder.path()).unwrap().open().unwrap_err();
    assert!(matches!(error, Error::Stale { .. }), "{error}");
}

/// A method from another project.
const METHOD: &str = r#"//! Calm.
use tunebox::prelude::*;

#[derive(Settings)]
pub struct Calm {
    /// How much of it.
    #[setting(default = 0.5, low = 0.0, high = 1.0)]
    half: f32,
    /// Which way.
    #[setting(default = "gentle")]
    way: Way,
}

#[derive(Choice, Clone, Copy)]
enum Way {
    Gentle,
    VeryGentle,
}

impl Method for Calm {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let scores = score_for_learning(&batch.rows("example")?, Taps::empty(), 1.0)?;
        let share = match self.way {
            Way::Gentle => self.half,
            Way::VeryGentle => 0.1,
        };
        backward(&(scores.logprob().sum(All) * -share))
    }
}

method! { Calm, shape: "supervised", metrics: [] }
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every method and verifier folder of the repository.
fn methods() -> Vec<PathBuf> {
    let inside = |folder: &str| root().join(folder).read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = inside("methods").chain(inside("methods/verifiers")).collect();
    folders.retain(|path| path.is_dir() && !path.ends_with("verifiers"));
    folders.sort();
    assert!(!folders.is_empty());
    folders
}

/// The component that is committed for a folder.
fn committed(folder: &Path) -> Vec<u8> {
    let path = build::component_path(folder).unwrap();
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; {BLESS}", path.display()))
}

/// All that two toolchains must agree on, whatever bytes they make of it.
fn assert_same_method(committed: &[u8], rebuilt: &Built) {
    let source = |bytes: &[u8]| Record::read(bytes).unwrap().unwrap().source;
    assert_eq!(source(committed), source(&rebuilt.bytes), "the source has changed: {BLESS}");
    assert_eq!(read_manifest(committed).unwrap(), rebuilt.manifest, "{BLESS}");
    assert_eq!(component::interfaces(committed).unwrap(), component::interfaces(&rebuilt.bytes).unwrap(), "{BLESS}");
    assert_eq!(world(committed), world(&rebuilt.bytes), "{BLESS}");
}

/// The component that the folder's source gives now.
fn rebuilt(folder: &Path, toolchain: Option<&Toolchain>) -> Built {
    let options = Options { toolchain: toolchain.cloned(), ..Options::default() };
    build::compile(folder, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{}", message(&error)))
}

/// An error with its cause and what to do.
fn message(error: &tunebox_package::Error) -> String {
    let lines =
        [Some(error.to_string()), error.location(), error.why(), error.hint(), Some("`tunebox doctor --fix`".into())];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// A line that is seen even when the test passes.
#[expect(clippy::explicit_write, reason = "the test harness swallows `eprintln!` of a test that passes")]
fn print_uncaptured(line: &str) {
    writeln!(std::io::stderr(), "\n{line}\n").unwrap();
}

/// The functions and types of a component's world, each with what it stands in, in alphabetical order:
/// the order of a component's own text depends on the linker.
fn world(bytes: &[u8]) -> Vec<String> {
    let decoded = wit_component::decode(bytes).unwrap();
    let mut lines = Vec::new();
    for (id, package) in &decoded.resolve().packages {
        let mut printer = WitPrinter::default();
        printer.print(decoded.resolve(), id, &[]).unwrap();
        let mut around = vec![package.name.to_string()];
        for line in printer.output.to_string().lines().map(str::trim) {
            lines.push(format!("{} {line}", around.join(" ")));
            if line.ends_with('{') {
                around.push(line.to_owned());
            } else if line == "}" {
                around.pop();
            }
        }
    }
    lines.sort();
    lines
}
