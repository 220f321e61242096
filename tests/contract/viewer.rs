//! A profile of a method, opened by the Firefox Profiler itself: `profiler-cli` is that viewer without its window. That a
//! profile has the form which the viewer publishes is looked at in `inside.rs`, on every machine.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::inside::COUNTS;
use super::train;
use crate::support::absent::require;
use crate::support::guest;
use crate::support::workspace::Workspace;

/// A viewer with an open profile, which ends with this.
struct Viewer {
    sessions: tempfile::TempDir,
}

impl Viewer {
    /// Opens a profile. Fails as absent if `profiler-cli` is.
    fn open(profile: &Path) -> Self {
        require("profiler-cli", "--version");
        let viewer = Self { sessions: tempfile::tempdir().unwrap() };
        viewer.run(&["load", profile.to_str().unwrap()]);
        viewer
    }

    fn command(&self) -> Command {
        let mut command = Command::new("profiler-cli");
        command.env("PROFILER_CLI_SESSION_DIR", self.sessions.path()).env("PROFILER_CLI_NO_SYMBOLICATE", "1");
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Vec<u8> {
        let output = self.command().args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// What it shows of the only thread.
    fn thread_report(&self, what: &str) -> Value {
        serde_json::from_slice(&self.run(&["thread", what, "--json"])).unwrap()
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.command().arg("stop").output();
    }
}

/// The values under a key in a list of objects.
fn column<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs profiler-cli"]
fn the_public_viewer_shows_the_functions_of_a_method_and_what_it_asked_the_host() {
    let place = Workspace::with_sample(40);
    place.write_method("counts", guest::component(COUNTS), json!({}));
    let mut command = train(&place, Path::new("counts.wasm"), 2);
    let output = command.args(["--in-process", "--guest-profile", "counts.json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let viewer = Viewer::open(&place.path("counts.json"));

    let samples = viewer.thread_report("samples");
    assert_eq!(samples["friendlyThreadName"], "counts", "{samples}");
    assert_eq!(column(&samples["topFunctionsBySelf"], "name")[0], "churn", "{samples}");
    assert!(column(&samples["topFunctionsByTotal"], "name").contains(&"step"), "{samples}");
    let markers = viewer.thread_report("markers");
    let mut kinds = markers["byType"].as_array().unwrap().iter();
    let rates = kinds.find(|kind| kind["markerName"] == "learn.rate").unwrap_or_else(|| panic!("{markers}"));
    assert_eq!(rates["count"], 2, "a call in each of two steps: {markers}");
}
