//! A folder that somebody works on: what is built of it, and the run that takes it up.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tunebox_compute::explain::Explain;
use tunebox_package::build::{Options, build, is_same};
use tunebox_package::{Built, Error as PackageError, Manifest, Reference, digest};
use tunebox_sandbox::interface_of;
use tunebox_training::{Error, Event, Observer, Outcome, Revisions, RunSettings, plan, run_revised};

use super::super::building::note_source;
use super::super::train::Watch;
use crate::terminal::diagnostic::Failure;
use crate::terminal::{Terminal, bytes, duration};

/// How often the folder is looked at. A source is built when two looks find it the same.
const GLANCE: Duration = Duration::from_millis(200);

/// What happens to the folder.
enum Found {
    /// A change, which is being built.
    Change,
    /// What became of it, after so long.
    Built(Box<Result<Built, PackageError>>, Duration),
}

/// A folder under work.
pub(super) struct Workshop {
    terminal: Terminal,
    folder: PathBuf,
    found: Receiver<Found>,
    /// The thread that builds, until it is gone.
    builder: Option<JoinHandle<()>>,
    watch: Rc<RefCell<Watch>>,
    /// Whether the last run has begun.
    begun: Rc<Cell<bool>>,
    /// Whether what was built last asks to learn.
    learns: bool,
}

impl Workshop {
    /// Begins to look at a folder. Errors: it holds no method.
    pub(super) fn open(terminal: Terminal, folder: PathBuf, offline: bool) -> Result<Self, Failure> {
        note_source(terminal, &folder)?;
        let (send, found) = channel();
        let place = folder.clone();
        let builder = Some(std::thread::spawn(move || look_after(&place, offline, &send)));
        let (watch, begun) = (Rc::new(RefCell::new(Watch::new(terminal))), Rc::default());
        Ok(Self { terminal, folder, found, builder, watch, begun, learns: false })
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

    /// Waits for a component; `None` once somebody wants to stop.
    pub(super) fn wait(&mut self, stop: &AtomicBool) -> Option<Vec<u8>> {
        while !stop.load(Ordering::SeqCst) {
            match self.found.recv_timeout(GLANCE) {
                Ok(found) => {
                    if let Some(component) = self.take(found) {
                        return Some(component);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.fall(),
            }
        }
        None
    }

    /// Ends as the thread did that builds: by itself it goes only when nobody listens.
    fn fall(&mut self) -> Option<Vec<u8>> {
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
        self.learns
    }

    /// Whether the source is not what its component was built from.
    pub(super) fn is_behind(&self) -> bool {
        matches!(Reference::Folder(self.folder.clone()).open(), Err(PackageError::Stale { .. }))
    }

    /// A line for a person.
    pub(super) fn say(&self, verb: &str, text: &str) {
        self.watch.borrow().above(|| self.terminal.say(verb, text));
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
            Found::Built(outcome, taken) => match *outcome {
                Ok(built) => Some(self.built(built, taken)),
                Err(error) => {
                    self.show(&Failure::from(error));
                    None
                }
            },
        }
    }

    fn built(&mut self, built: Built, taken: Duration) -> Vec<u8> {
        self.learns = built.imports.iter().any(|import| interface_of(import) == Some("learn"));
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
        self.say("Waiting", "for a change of the source that mends it; Ctrl-C ends the run");
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

/// Builds the folder now, and after every change, until nobody listens.
fn look_after(folder: &Path, offline: bool, found: &Sender<Found>) {
    let (mut built, mut seen) = (None, None);
    loop {
        // A file that an editor is just replacing may be gone for a moment.
        let now = digest::source(folder).ok();
        if now.is_some() && now == seen && now != built {
            built.clone_from(&now);
            if found.send(Found::Change).is_err() {
                return;
            }
            let begun = Instant::now();
            let outcome = Box::new(build(folder, &Options { offline, ..Options::default() }));
            if found.send(Found::Built(outcome, begun.elapsed())).is_err() {
                return;
            }
        }
        seen = now;
        std::thread::sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_build_that_panics_is_no_wish_to_stop() {
        let (send, found) = channel();
        let builder = std::thread::spawn(move || {
            let _nobody: Sender<Found> = send;
            panic!("the build broke");
        });
        let terminal = Terminal { json: false, quiet: true, verbose: false };
        let (watch, begun) = (Rc::new(RefCell::new(Watch::new(terminal))), Rc::default());
        let (folder, builder) = (PathBuf::from("."), Some(builder));
        let mut workshop = Workshop { terminal, folder, found, builder, watch, begun, learns: false };
        let ended = catch_unwind(AssertUnwindSafe(|| workshop.wait(&AtomicBool::new(false))));
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"the build broke"));
    }
}
