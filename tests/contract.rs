//! The contract over time: what was released stays, what was built for it runs, what wants more is told which version it
//! needs. And looking into a method: its world as text, its faults with functions and lines, its time as a profile.

mod form;
mod inside;
mod released;
mod track;
mod viewer;

use std::path::Path;
use std::process::Command;

use crate::support::golden::root;
use crate::support::transcript;
use crate::support::workspace::Workspace;

/// A run of some steps over the sample's answers.
fn train(place: &Workspace, method: &Path, steps: u32) -> Command {
    let mut command = place.tunebox(&["train", "--model", "model", "--data", "answers.jsonl", "--name", "run"]);
    command.arg("--method").arg(method).args(["--set", &format!("train.steps={steps}")]);
    command
}

/// Plays a page of `tests/contract` in a folder.
fn play(page: &str, place: &Workspace) {
    let page = root().join("tests/contract").join(page);
    if let Err(difference) = transcript::compare(&page, place.folder()) {
        panic!("{}\n{difference}\n`BLESS=1 cargo test` writes what came out", page.display());
    }
}
