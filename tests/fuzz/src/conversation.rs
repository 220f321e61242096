//! A run whose worker sends the bytes of an input, and how the parent reads them.
//!
//! The worker is `cat` over a file: every input starts a process, and there are some hundreds a second.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::json;
use tunebox_sandbox::Compiling;
use tunebox_sandbox::child::Program;
use tunebox_training::{Error, Event, Observer, RunSettings, Summary, execute, serve};

use crate::scratch::with_file;

/// How a worker of this program begins, as one says it to whom gives it no job.
static GREETING: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let said = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    serve(std::io::empty(), Arc::clone(&said), Compiling::default(), &stop, || ());
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    said.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()
});

struct IgnoreEvents;

impl Observer for IgnoreEvents {
    fn event(&mut self, _: &Event) {}
}

/// What becomes of a run whose worker greets and then says `said`.
pub(crate) fn after_greeting(said: &[u8]) -> Result<Summary, Error> {
    // Of a method that is not built in, so that a worker does it.
    let overrides = ["model.path=.", "data.path=data.jsonl", "method.use=./stranger.wasm"].map(str::to_owned);
    let settings = RunSettings::from_overrides(&overrides)?;
    with_file("said", &[GREETING.as_slice(), said].concat(), |path, _| {
        let worker = Program::at("cat").with(path);
        execute(settings, Some(&worker), &mut IgnoreEvents, &AtomicBool::new(false))
    })
}

/// The line by which a worker tells that it has planned a run in a folder.
pub(crate) fn planned(folder: &Path) -> Vec<u8> {
    let report = json!({
        "lines": 8, "skipped": [], "dropped": [], "truncated": 0, "merged": 0, "tokens": 64, "targets": 32, "longest": 8,
        "length": 64,
    });
    let memory = json!({ "weights": 1, "training": 1, "activations": 1, "scratch": 1, "head": 1, "runtime": 1 });
    let summary = json!({
        "name": "one", "model": "tiny", "family": "llama", "parameters": 64, "device": "cpu", "method": "stranger",
        "method-version": "0.1.0", "imports": [], "settings": {}, "data": "data.jsonl", "records": 8, "report": report,
        "adapter": "lora", "rank": 4, "trainable": 16, "steps": 9, "steps-per-epoch": 3, "batch": 2, "accumulation": 1,
        "rate": 0.001, "schedule": "linear", "log-every": 1, "precision": [["weights", "f32"]], "memory": memory,
    });
    let event = json!({ "event": { "planned": { "summary": summary, "folder": folder, "resumed": null } } });
    format!("{event}\n").into_bytes()
}
