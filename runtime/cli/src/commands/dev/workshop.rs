//! A folder that somebody works on: what is built of it, and the run that takes it up.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use tunebox_foundation::explain::Explain;
use tunebox_package::build::is_same;
use tunebox_package::{Built, Error as PackageError, Manifest, Reference};
use tunebox_sandbox::interface_of;
use tunebox_training::{Error, Event, Observer, Outcome, Revisions, RunSettings, plan, run_revised};

use super::super::building::{note_source, warn_of_compiler};
use super::super::train::Watch;
use super::looking::{Found, GLANCE, contents, look_after};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::{bytes, duration};

/// A folder under work.
pub(super) struct Workshop {
    terminal: Terminal,
    folder: PathBuf,
    /// The run file, if there may be one.
    run_file: Option<PathBuf>,
    /// What the run file held when the last run took it.
    run_by: Option<Vec<u8>>,
    found: Receiver<Found>,
    /// The thread that builds, until it is gone.
    builder: Option<JoinHandle<()>>,
    watch: Rc<RefCell<Watch>>,
    /// Whether the last run has begun.
    begun: Rc<Cell<bool>>,
    /// Whether what was built last asks to learn; none where that is no component.
    learns: Option<bool>,
}

impl Workshop {
    /// Begins to look at a folder and a run file. Errors: the folder holds no method.
    pub(super) fn open(
        terminal: Terminal,
        folder: PathBuf,
        run_file: Option<PathBuf>,
        offline: bool,
    ) -> Result<Self, Failure> {
        note_source(terminal, &folder)?;
        let (send, found) = channel();
        let (place, file) = (folder.clone(), run_file.clone());
        let builder = Some(std::thread::spawn(move || look_after(&place, file.as_deref(), offline, &send)));
        let (watch, begun) = (Rc::new(RefCell::new(Watch::new(terminal))), Rc::default());
        Ok(Self { terminal, folder, run_file, run_by: None, found, builder, watch, begun, learns: None })
    }

    /// Notes that a run takes the run file as it is now.
    pub(super) fn take_run_file(&mut self) {
        self.run_by = contents(self.run_file.as_deref());
    }

    /// Trains with what was built last, and with what will be built meanwhile.
    pub(super) fn train(&mut self, settings: RunSettings, stop: &AtomicBool) -> Result<Outcome, Error> {
        self.watch = Rc::new(RefCell::new(Watch::new(self.terminal)));
        self.begun.set(false);
        let mut shown = Shown { watch: Rc::clone(&self.watch), begun: Rc::clone(&self.begun) };
        let ended = plan(settings).and_then(|plan| run_revised(plan, &mut shown, stop, self));
        self.watch.borrow().clear();
        ended
    }

    /// Waits, between two runs, for what makes another run of it: a component, or another run file for the one that is
    /// there. Whether there is; not once somebody wants to stop.
    pub(super) fn next_run(&mut self, stop: &AtomicBool) -> bool {
        while let Some(found) = self.next(stop) {
            match found {
                Found::RunFile(now) if self.learns.is_some() && now != self.run_by => {
                    self.told_otherwise("a new run takes it");
                    return true;
                }
                Found::RunFile(_) => {}
                found => {
                    if self.component_of(found).is_some() {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Waits, in a run, for a component; `None` once somebody wants to stop.
    fn wait(&mut self, stop: &AtomicBool) -> Option<Vec<u8>> {
        loop {
            let found = self.next(stop)?;
            if let Some(component) = self.component_of(found) {
                return Some(component);
            }
        }
    }

    /// What is found next; `None` once somebody wants to stop.
    fn next(&mut self, stop: &AtomicBool) -> Option<Found> {
        while !stop.load(Ordering::SeqCst) {
            match self.found.recv_timeout(GLANCE) {
                Ok(found) => return Some(found),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.fall(),
            }
        }
        None
    }

    /// Tells what was found, and that a source that does not build is waited for; gives the component if it is one.
    fn component_of(&mut self, found: Found) -> Option<Vec<u8>> {
        let broken = matches!(&found, Found::Built(outcome, _) if outcome.is_err());
        let component = self.take(found);
        if broken {
            self.waiting("for a change of the source that mends it; Ctrl-C ends");
        }
        component
    }

    /// Ends as the thread did that builds: by itself it goes only when nobody listens.
    fn fall(&mut self) -> Option<Found> {
        match self.builder.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => None,
        }
    }

    /// Whether the last run got as far as its folder.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Whether what was built last asks to learn.
    pub(super) fn learns(&self) -> bool {
        self.learns == Some(true)
    }

    /// Whether the source is not what its component was built from.
    pub(super) fn is_behind(&self) -> bool {
        matches!(Reference::Folder(self.folder.clone()).open(), Err(PackageError::Stale { .. }))
    }

    /// A line for a person.
    pub(super) fn say(&self, verb: &str, text: &str) {
        self.watch.borrow().above(|| self.terminal.say(verb, text));
    }

    /// Says what it waits for.
    pub(super) fn waiting(&self, text: &str) {
        self.say("Waiting", text);
        if self.terminal.json {
            self.terminal.object(json!({ "event": "waiting" }));
        }
    }

    /// An error that ends nothing.
    pub(super) fn show(&self, failure: &Failure) {
        if self.terminal.json {
            self.terminal.object(failure.json());
            return;
        }
        let text = failure.text(self.terminal.verbose);
        self.watch.borrow().above(|| {
            use std::io::Write;
            // Nobody can be told that nobody can be told.
            let _ = anstream::stderr().write_all(text.as_bytes());
        });
    }

    /// Tells what was found; gives the component if it is one.
    fn take(&mut self, found: Found) -> Option<Vec<u8>> {
        match found {
            Found::Change => {
                self.say("Building", &self.folder.display().to_string());
                None
            }
            Found::Waiting(lock) => {
                self.say("Waiting", &format!("for another build, which holds `{}`", lock.display()));
                None
            }
            Found::Built(outcome, taken) => match *outcome {
                Ok(built) => Some(self.built(built, taken)),
                Err(error) => {
                    self.learns = None;
                    self.show(&Failure::from(error));
                    None
                }
            },
            Found::RunFile(now) => {
                if now != self.run_by {
                    self.told_otherwise("the next run takes it, this one goes on as it began");
                }
                None
            }
        }
    }

    /// Says that the run file is another since a run took it, and what comes of that.
    fn told_otherwise(&self, then: &str) {
        let Some(path) = &self.run_file else { return };
        self.say("Note", &format!("{} has changed: {then}", path.display()));
        if self.terminal.json {
            self.terminal.object(json!({ "event": "run-file-changed", "path": path }));
        }
    }

    fn built(&mut self, built: Built, taken: Duration) -> Vec<u8> {
        self.watch.borrow().above(|| warn_of_compiler(self.terminal, &built.warnings));
        self.learns = Some(built.imports.iter().any(|import| interface_of(import) == Some("learn")));
        let (size, taken) = (bytes(built.size), duration(taken.as_secs_f64()));
        self.say("Built", &format!("{} {}, {size}, in {taken}", built.manifest.name, built.manifest.version));
        if self.terminal.json {
            self.terminal.object(json!({ "event": "built", "path": built.path, "bytes": built.size }));
        }
        built.bytes
    }

    /// An error of the run that it outlives.
    fn show_of_run(&self, error: &Error) {
        self.show(&Failure { explanation: Box::new(error.explanation()), exit: error.exit() });
    }
}

impl Revisions for Workshop {
    fn newer(&mut self, present: &[u8]) -> Option<Vec<u8>> {
        let mut newest = None;
        while let Ok(found) = self.found.try_recv() {
            newest = self.take(found).or(newest);
        }
        let newest = newest?;
        if is_same(present, &newest) {
            self.say("Unchanged", "the component is the same: the run goes on with it");
            return None;
        }
        Some(newest)
    }

    fn mended(&mut self, error: &Error, stop: &AtomicBool) -> Option<Vec<u8>> {
        self.show_of_run(error);
        self.waiting("for a change of the source that mends it; Ctrl-C ends the run");
        self.wait(stop)
    }

    fn settled(&mut self, step: u64, outcome: Result<&Manifest, &Error>) {
        match outcome {
            Ok(manifest) => {
                let (name, version) = (&manifest.name, &manifest.version);
                let text = format!("after step {step}: {name} {version}, over the same weights, optimiser and data");
                self.say("Swapped", &text);
                if self.terminal.json {
                    self.terminal.object(json!({ "event": "swapped", "step": step, "version": version }));
                }
            }
            Err(error) => {
                self.show_of_run(error);
                self.say("Kept", &format!("after step {step}: the version before"));
                if self.terminal.json {
                    self.terminal.object(json!({ "event": "kept", "step": step }));
                }
            }
        }
    }
}

/// The watcher of the run, whose bar the workshop must not write over.
struct Shown {
    watch: Rc<RefCell<Watch>>,
    begun: Rc<Cell<bool>>,
}

impl Observer for Shown {
    fn event(&mut self, event: Event<'_>) {
        self.begun.set(true);
        self.watch.borrow_mut().event(event);
    }
}

#[cfg(test)]
mod tests;
