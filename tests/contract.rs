//! The contract over time: what was released stays, what was built for it runs, what wants more is told which version it
//! needs. And looking into a method: its world as text, its faults with functions and lines, its time as a profile.

mod form;
mod inside;
mod released;
mod track;
mod viewer;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::transcript;

/// The repository.
fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).to_owned()
}

/// A folder with the tiny model and a few records for it.
fn workspace() -> tempfile::TempDir {
    let (place, sample) = (tempfile::tempdir().unwrap(), root().join("runtime/training/sample"));
    fs::create_dir(place.path().join("model")).unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        fs::copy(sample.join("model").join(name), place.path().join("model").join(name)).unwrap();
    }
    let data = fs::read_to_string(sample.join("lora.jsonl")).unwrap();
    let few: Vec<&str> = data.lines().take(40).collect();
    fs::write(place.path().join("answers.jsonl"), few.join("\n") + "\n").unwrap();
    place
}

/// Writes a component with a manifest that names a version of the contract.
fn write_method(place: &Path, name: &str, mut bytes: Vec<u8>, interface: &str) {
    let manifest = serde_json::json!({
        "name": name, "version": "0.1.0", "description": "A method of a test",
        "shape": "supervised", "settings": [], "metrics": [], "interface": interface,
    });
    let manifest = manifest.to_string();
    tunebox_package::section::append(&mut bytes, tunebox_package::manifest::SECTION, manifest.as_bytes());
    fs::write(place.join(format!("{name}.wasm")), bytes).unwrap();
}

/// A run of some steps over the records of [`place`].
fn train(place: &Path, method: &Path, steps: u32) -> Command {
    let mut command = Command::new(transcript::BINARY);
    command.current_dir(place).args(["train", "--model", "model", "--data", "answers.jsonl", "--name", "run"]);
    command.arg("--method").arg(method).args(["--set", &format!("train.steps={steps}")]).env("NO_COLOR", "1");
    command
}

/// Plays a page of `tests/contract` in a place.
fn play(page: &str, place: &Path) {
    let page = root().join("tests/contract").join(page);
    if let Err(difference) = transcript::compare(&page, place) {
        panic!("{}\n{difference}\n`BLESS=1 cargo test` writes what came out", page.display());
    }
}
