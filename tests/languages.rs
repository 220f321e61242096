//! Claims about methods in other languages than Rust: a component from Python, by the package `tunebox`, and one from C
//! without any package give the numbers of the Rust one, ask for what they name and for nothing else, and tell where
//! they went wrong. What the pages of the two examples say to do is done here.
//!
//! Needs `componentize-py` for Python and `clang` with a linker for WebAssembly for C; without them the tests are skipped.

mod c;
mod faults;
mod isolated;
mod python;
mod types;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::golden;
use crate::support::golden_rows::{self, Row};
use crate::support::transcript::BINARY;
use crate::support::workspace::text;
use tunebox_foundation::explain::Explain;
use tunebox_package::{Error as PackageError, Manifest};
use tunebox_sandbox::{Engine, Method};

/// How far a loss or a gradient may be from the Rust component's.
const TOLERANCE: f64 = 1e-6;

/// A line that is seen even when the test passes.
fn print_uncaptured(line: &str) {
    // Past the capture of the test harness.
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}

fn message(error: &PackageError) -> String {
    let lines = [Some(error.to_string()), error.location(), error.why(), error.hint()];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The commands of the program that a page shows, in its order.
fn commands(page: &str) -> Vec<String> {
    let page = fs::read_to_string(golden::root().join(page)).unwrap();
    let lines = page.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line));
    lines.filter(|line| line.starts_with("tunebox ")).map(str::to_owned).collect()
}

/// A command for the shell, in a folder with a home and a cache of its own.
fn command(command: &str, folder: &Path) -> Command {
    let programs = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).env("PATH", path).env("NO_COLOR", "1").stdin(Stdio::null());
    shell.env("TUNEBOX_HOME", folder.join("home")).env("TUNEBOX_CACHE", folder.join("cache"));
    shell
}

/// Gives a command that must succeed to the shell, in a folder with a home and a cache of its own; what it says.
fn play(line: &str, folder: &Path) -> String {
    let output = command(line, folder).output().unwrap();
    assert!(output.status.success(), "`{line}`: {}", text(&output));
    text(&output)
}

/// The numbers of a name in the metrics of a run, step by step.
fn numbers(run: &Path, name: &str) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.filter_map(|row| row.get(name)?.as_f64()).collect()
}

/// The names of the interfaces that a component asks for, in alphabetical order.
fn interfaces(component: &[u8]) -> Vec<String> {
    let imports = tunebox_package::component::interfaces(component).unwrap().imports;
    let name = |import: &String| {
        let name = import.strip_prefix("tunebox:method/").unwrap_or_else(|| panic!("it asks for `{import}`"));
        name.split('@').next().unwrap().to_owned()
    };
    let mut names: Vec<String> = imports.iter().map(name).collect();
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
