//! The state of `tunebox dev`: the watched folder, what was built from it, and the run that uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use tunebox_foundation::explain::Explain;
use tunebox_foundation::format::{bytes, duration};
use tunebox_package::build::is_same;
use tunebox_package::build::python::Twin;
use tunebox_package::{Built, Error as PackageError, Manifest, Reference, digest};
use tunebox_sandbox::interface_of;
use tunebox_sandbox::native::every_interface;
use tunebox_training::plan::trains;
use tunebox_training::{Error, Event, NativeMethod, Observer, RunSettings, Summary, Version, plan, run};

use super::watcher::{Build, Change, POLL_INTERVAL, read_run_file, watch};
use crate::commands::test::start_process;
use crate::package::build::{check_source, show_compiler_warnings};
use crate::run::display::RunDisplay;
use crate::terminal::{Failure, Terminal};

/// A `tunebox dev` command: the thread that watches and builds the method folder, and the display of the present run.
pub(super) struct Session {
    terminal: Terminal,
    folder: PathBuf,
    /// The watched run file; it need not exist.
    run_file: Option<PathBuf>,
    /// The content of the run file when the last run started.
    used_run_file: Option<Vec<u8>>,
    changes: Receiver<Change>,
    /// The thread that polls and builds; `None` after it ended.
    watcher: Option<JoinHandle<()>>,
    display: RunDisplay,
    /// Whether the method of the last build trains ([`trains`]); `None` if the build failed.
    learns: Option<bool>,
    /// The last version of a method in Python; `None` for another language.
    native: Option<NativeMethod>,
}

impl Session {
    /// Starts a thread that watches and builds the method folder, and watches the run file. Fails if the folder holds
    /// no method. Also notes once per folder that building runs its code.
    pub(super) fn open(
        terminal: Terminal,
        folder: PathBuf,
        run_file: Option<PathBuf>,
        offline: bool,
    ) -> Result<Self, Failure> {
        check_source(terminal, &folder)?;
        let (sender, changes) = channel();
        let (watched, file) = (folder.clone(), run_file.clone());
        let watcher = Some(std::thread::spawn(move || watch(&watched, file.as_deref(), offline, &sender)));
        let display = RunDisplay::new(terminal);
        Ok(Self {
            terminal,
            folder,
            run_file,
            used_run_file: None,
            changes,
            watcher,
            display,
            learns: None,
            native: None,
        })
    }

    /// Stores the present content of the run file as that of the run about to start. Only a different content counts as
    /// a change later.
    pub(super) fn remember_run_file(&mut self) {
        self.used_run_file = read_run_file(self.run_file.as_deref());
    }

    /// Plans a run and carries it out with a new progress display, which is cleared at the end. Each component that is
    /// built during the run replaces the run's method. `stop` ends the run. Errors: those of the plan and of the run.
    pub(super) fn train(&mut self, mut settings: RunSettings, stop: &AtomicBool) -> Result<Summary, Error> {
        settings.native.clone_from(&self.native);
        self.display = RunDisplay::new(self.terminal);
        let summary = plan(settings).and_then(|plan| run(plan, self, stop));
        self.display.clear();
        summary
    }

    /// Waits between two runs until a new one should start: after a successful build, or, if the last build succeeded,
    /// after the run file has another content than when the last run started. Shows builds meanwhile. Returns false
    /// after Ctrl-C.
    pub(super) fn wait_for_run(&mut self, stop: &AtomicBool) -> bool {
        while let Some(change) = self.next_change(stop) {
            match change {
                Change::RunFile(now) if self.learns.is_some() && now != self.used_run_file => {
                    self.show_run_file_change("a new run uses it");
                    return true;
                }
                Change::RunFile(_) => {}
                change => {
                    if self.handle_change_during_run(change).is_some() {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Waits, during a run, for the next successful build and returns it. Shows failed builds meanwhile. Returns `None`
    /// after Ctrl-C.
    fn wait_for_version(&mut self, stop: &AtomicBool) -> Option<Version> {
        loop {
            let change = self.next_change(stop)?;
            if let Some(version) = self.handle_change_during_run(change) {
                return Some(version);
            }
        }
    }

    /// Waits for the next change that the watcher sends. Returns `None` after Ctrl-C. If the watcher panicked, panics
    /// with the same payload.
    fn next_change(&mut self, stop: &AtomicBool) -> Option<Change> {
        while !stop.load(Ordering::SeqCst) {
            match self.changes.recv_timeout(POLL_INTERVAL) {
                Ok(change) => return Some(change),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match self.watcher.take().map(JoinHandle::join) {
                    Some(Err(panic)) => std::panic::resume_unwind(panic),
                    _ => return None,
                },
            }
        }
        None
    }

    /// Shows a change; after a failed build also that a fix is waited for, without waiting here. Returns the version of
    /// the method if the change is a successful build, else `None`.
    fn handle_change_during_run(&mut self, change: Change) -> Option<Version> {
        let has_failed = matches!(&change, Change::Built(result, _) if result.is_err());
        let version = self.handle_change(change);
        if has_failed {
            self.show_waiting("for a change of the source that fixes it; Ctrl-C ends");
        }
        version
    }

    /// Whether the last run that [`train`](Self::train) started has sent an event, so that its folder may exist.
    pub(super) fn has_begun(&self) -> bool {
        self.display.has_begun()
    }

    /// Whether the last build succeeded and its method trains ([`trains`]).
    pub(super) fn is_learning(&self) -> bool {
        self.learns == Some(true)
    }

    /// Whether the source has changed since its component was built, or since it was imported in Python. False if there
    /// is no component, or if it cannot be opened for another reason.
    pub(super) fn is_stale(&self) -> bool {
        if let Some(native) = &self.native {
            return digest::source(&self.folder).is_ok_and(|now| now != native.digest);
        }
        matches!(Reference::Folder(self.folder.clone()).open(), Err(PackageError::Stale { .. }))
    }

    /// Writes a message with a label above the progress bar.
    fn status(&self, label: &str, text: &str) {
        self.display.write_above(|| self.terminal.status(label, text));
    }

    /// Writes a message about what the command waits for, and emits a `waiting` event.
    pub(super) fn show_waiting(&self, text: &str) {
        self.status("Waiting", text);
        self.terminal.event(json!({ "event": "waiting" }));
    }

    /// Shows an error above the progress bar, without ending the command.
    pub(super) fn show_failure(&self, failure: &Failure) {
        self.display.write_above(|| failure.show(self.terminal));
    }

    /// Shows a change. Returns the version of the method if the change is a successful build, else `None`. A successful
    /// build sets `learns`, a failed one sets it to `None`. Shows nothing for a run file with the content that the
    /// present run uses.
    fn handle_change(&mut self, change: Change) -> Option<Version> {
        match change {
            Change::Source => self.status("Building", &self.folder.display().to_string()),
            Change::Waiting(lock) => {
                self.status("Waiting", &format!("for another build, which holds `{}`", lock.display()));
            }
            Change::Built(result, time) => match *result {
                Ok(Build::Component(built)) => return Some(Version::Component(self.show_built(built, time))),
                Ok(Build::Python(twin)) => return Some(Version::Process(self.show_python(twin, time))),
                Err(error) => {
                    self.learns = None;
                    self.show_failure(&Failure::from(error));
                }
            },
            Change::RunFile(now) if now != self.used_run_file => {
                self.show_run_file_change("the next run uses it; this one continues unchanged");
            }
            Change::RunFile(_) => {}
        }
        None
    }

    /// Shows that the run file changed, with the given effect, and emits an event. Does nothing without a run file.
    fn show_run_file_change(&self, effect: &str) {
        let Some(path) = &self.run_file else { return };
        self.status("Note", &format!("{} has changed: {effect}", path.display()));
        self.terminal.event(json!({ "event": "run-file-changed", "path": path }));
    }

    /// Shows a successful build with its compiler warnings, stores whether the method trains, and returns the bytes of
    /// the component.
    fn show_built(&mut self, built: Built, time: Duration) -> Vec<u8> {
        self.display.write_above(|| show_compiler_warnings(self.terminal, &built.warnings));
        self.learns = Some(built.imports.iter().any(|import| trains(import)));
        let (size, time) = (bytes(built.bytes.len() as u64), duration(time.as_secs_f64()));
        self.status("Built", &format!("{} {}, {size}, in {time}", built.manifest.name, built.manifest.version));
        self.terminal.event(json!({ "event": "built", "path": built.path, "bytes": built.bytes.len() }));
        built.bytes
    }

    /// Shows a version of a method in Python, stores whether it trains, and stores and returns the method of which each
    /// session starts a process of plain Python that runs the source.
    fn show_python(&mut self, twin: Twin, time: Duration) -> NativeMethod {
        let is_used = |import: &&String| {
            interface_of(import).is_some_and(|name| twin.interfaces.iter().any(|interface| interface == name))
        };
        self.learns = Some(every_interface().iter().filter(is_used).any(|import| trains(import)));
        let (name, version) = (&twin.manifest.name, &twin.manifest.version);
        let (time, unsandboxed) =
            (duration(time.as_secs_f64()), "plain Python runs it unsandboxed, as your own source");
        self.status("Loaded", &format!("{name} {version} in {time}; {unsandboxed}"));
        self.terminal.event(json!({ "event": "loaded", "name": name, "version": version, "sandboxed": false }));
        let (manifest, interfaces, digest) = (twin.text.clone(), twin.interfaces.clone(), twin.source.clone());
        let start = Arc::new(move || start_process(&twin).map(Some));
        let native = NativeMethod { manifest, interfaces, digest, start };
        self.native = Some(native.clone());
        native
    }
}

impl Observer for Session {
    fn event(&mut self, event: &Event) {
        self.display.event(event);
    }

    /// Shows the changes that the watcher has sent since the last call, without waiting. Returns the version of the
    /// last successful build among them. `None` if there is none, or if its component equals `present` apart from the
    /// build record.
    fn next_version(&mut self, present: &[u8]) -> Option<Version> {
        let mut newest = None;
        while let Ok(change) = self.changes.try_recv() {
            newest = self.handle_change(change).or(newest);
        }
        let newest = newest?;
        if matches!(&newest, Version::Component(bytes) if is_same(present, bytes)) {
            self.status("Unchanged", "the component is the same: the run continues with it");
            return None;
        }
        Some(newest)
    }

    /// Shows the error, then waits for the next successful build and returns it. `None` after Ctrl-C.
    fn wait_for_fix(&mut self, error: &Error, stop: &AtomicBool) -> Option<Version> {
        self.show_failure(&Failure::new(error.explanation(), error.exit()));
        self.show_waiting("for a change of the source that fixes it; Ctrl-C ends the run");
        self.wait_for_version(stop)
    }

    /// Shows that the new version replaced the method after `step`, or its error and that the previous version stays.
    /// Emits a `swapped` or `kept` event.
    fn report_outcome(&mut self, step: u64, outcome: Result<&Manifest, &Error>) {
        match outcome {
            Ok(Manifest { name, version, .. }) => {
                let text = format!("after step {step}: {name} {version}, with the same weights, optimizer and data");
                self.status("Swapped", &text);
                self.terminal.event(json!({ "event": "swapped", "step": step, "version": version }));
            }
            Err(error) => {
                self.show_failure(&Failure::new(error.explanation(), error.exit()));
                self.status("Kept", &format!("after step {step}: the previous version"));
                self.terminal.event(json!({ "event": "kept", "step": step }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
