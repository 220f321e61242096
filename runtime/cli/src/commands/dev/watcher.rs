//! Polls a method folder and a run file, builds each new version of the source, and sends what it finds. A method in
//! Python is not built: its source runs in plain Python, outside of the sandbox.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SendError, Sender};
use std::time::{Duration, Instant};

use tunebox_foundation::bounded;
use tunebox_package::build::python::{Twin, is_python};
use tunebox_package::build::{self, Event, Options};
use tunebox_package::{Built, Error, digest};

/// The time between two polls. A change counts once two polls in a row find it.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Largest run file that is read, in bytes.
const MAX_RUN_FILE_BYTES: u64 = 1 << 20;

/// A change that the watcher found.
pub(super) enum Change {
    /// The source changed, and a build has begun.
    Source,
    /// The build waits for another one, which holds this lock file.
    Waiting(PathBuf),
    /// The build ended after this time; or an error why there is nothing to build.
    Built(Box<Result<Build, Error>>, Duration),
    /// The run file changed to this content; `None` if it is gone.
    RunFile(Option<Vec<u8>>),
}

/// A version of the method.
pub(super) enum Build {
    /// A component, as `tunebox build` writes it.
    Component(Built),
    /// The source of a method in Python, which was imported once.
    Python(Twin),
}

/// A polled value and the one reported last.
#[derive(Default)]
struct Polled<T> {
    last: Option<T>,
    reported: Option<T>,
}

impl<T: PartialEq + Clone> Polled<T> {
    /// Records a polled value. Returns true if it equals the previous poll's value and is not the one reported last, so
    /// each value is reported once. Waiting for two equal polls skips files that an editor is just replacing.
    fn is_new(&mut self, now: &T) -> bool {
        let is_new = self.last.as_ref() == Some(now) && self.reported.as_ref() != Some(now);
        if is_new {
            self.reported = Some(now.clone());
        }
        self.last = Some(now.clone());
        is_new
    }
}

/// Polls the folder and the run file every [`POLL_INTERVAL`], builds each new version of the source, and sends every
/// change, the first state of both included. A source that cannot be read is sent as a failed build. Blocks until the
/// receiver is gone. `offline` keeps builds from using a network.
pub(super) fn watch(folder: &Path, run_file: Option<&Path>, offline: bool, changes: &Sender<Change>) {
    let (mut sources, mut run_files) = (Polled::default(), Polled::default());
    let mut poll = || -> Result<(), SendError<Change>> {
        let source = digest::source(folder);
        let now = source.as_ref().map_or_else(ToString::to_string, String::clone);
        if sources.is_new(&now) {
            match source {
                Ok(_) => build(folder, offline, changes)?,
                Err(error) => changes.send(Change::Built(Box::new(Err(error)), Duration::ZERO))?,
            }
        }
        let now = read_run_file(run_file);
        if run_files.is_new(&now) { changes.send(Change::RunFile(now)) } else { Ok(()) }
    };
    while poll().is_ok() {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Builds the folder, or imports the source of a method in Python, and sends three kinds of changes: that a build
/// begins, that it waits for another one, and its result. A failed build is a result; an error means that the receiver
/// is gone.
fn build(folder: &Path, offline: bool, changes: &Sender<Change>) -> Result<(), SendError<Change>> {
    changes.send(Change::Source)?;
    let start = Instant::now();
    let mut report = |event: Event<'_>| {
        if let Event::Waiting(lock) = event {
            // If the receiver is gone, the send below returns the error.
            let _ = changes.send(Change::Waiting(lock.to_owned()));
        }
    };
    let result = if is_python(folder) {
        Twin::open(folder, &mut report).map(Build::Python)
    } else {
        let options = Options { offline, ..Options::default() };
        build::build(folder, &options, &mut report).map(Build::Component)
    };
    changes.send(Change::Built(Box::new(result), start.elapsed()))
}

/// Reads the content of the run file. `None` if there is no path, or if the file is missing, unreadable or above 1 MiB.
pub(super) fn read_run_file(run_file: Option<&Path>) -> Option<Vec<u8>> {
    bounded::read(run_file?, MAX_RUN_FILE_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_found_by_two_polls_is_new_once() {
        let mut polled = Polled::default();
        let new = ["a", "a", "a", "b", "a", "c", "c"].map(|value| polled.is_new(&value));
        assert_eq!(new, [false, true, false, false, false, false, true]);
    }

    #[test]
    fn a_folder_without_source_is_an_error_once_and_is_built_when_it_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let path = folder.path().to_owned();
        let watcher = std::thread::spawn(move || watch(&path, None, true, &sender));
        let next = || loop {
            match receiver.recv_timeout(Duration::from_secs(20)).unwrap() {
                Change::RunFile(_) => {}
                other => break other,
            }
        };
        let Change::Built(result, _) = next() else { panic!("a build without source succeeded") };
        assert!(result.err().unwrap().to_string().contains("src"));
        std::fs::write(folder.path().join("Cargo.toml"), "no manifest").unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        assert!(matches!(next(), Change::Source));
        drop(receiver);
        watcher.join().unwrap();
    }
}
