//! Claims about isolation: a method that is not built in runs in a worker, which may die in any way and at any moment
//! without harm to the caller, to the last checkpoint, or to a bit of the resumed run.
#![cfg(target_os = "linux")]

mod attacks;
mod compiling;
mod ends;
mod hub_data;
mod likeness;
mod strangers;

use std::process::{Child, Command, Output};

use serde_json::json;

use crate::support::golden::root;
use crate::support::guest;
use crate::support::processes::{is_worker, processes, status, wait_for};
use crate::support::workspace::{Workspace, errors};

/// A folder with a tiny model, a little data, an untrusted method, and a cache of its own.
fn workspace() -> Workspace {
    let mut place = Workspace::with_sample(40);
    place.cache = place.path("cache");
    // The bytes of a built-in method under another name are untrusted.
    std::fs::copy(root().join("methods/lora/lora.wasm"), place.path("stranger.wasm")).unwrap();
    place
}

/// A run of 24 steps with everything that could lead a resumed one astray.
fn train(place: &Workspace, name: &str, more: &[&str]) -> Command {
    let mut command = place.tunebox(&["train", "--model", "model", "--data", "answers.jsonl"]);
    command.args(["--method", "stranger.wasm", "--name", name, "--set", "data.max-length=96"]);
    for set in ["steps=24", "save-every=4", "batch=2", "accumulation=2", "warmup=3", "adapter.dropout=0.1"] {
        command.args(["--set", &format!("train.{set}")]);
    }
    command.args(more);
    command
}

/// Carries out such a run, which must succeed.
fn succeed(place: &Workspace, name: &str, more: &[&str]) -> Output {
    let output = train(place, name, more).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output
}

/// Writes a hostile method, from the body of its module, as `NAME.wasm`.
fn write_hostile(place: &Workspace, name: &str, body: &str) {
    place.write_method(name, guest::component(body), json!({ "metrics": ["loss"] }));
}

/// The worker below a command, which may run in a child of its own.
fn worker(child: &mut Child) -> u32 {
    let parent = child.id();
    let children =
        |parent| processes().filter(move |process| status(*process).is_some_and(|(_, above)| above == parent));
    let below = || children(parent).flat_map(|child| children(child).chain([child]));
    wait_for(child, "a worker", || below().find(|process| is_worker(*process)))
}
