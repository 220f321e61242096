//! Looks at a folder and a run file again and again, builds what is new, and tells what it found.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SendError, Sender};
use std::time::{Duration, Instant};

use tunebox_foundation::bounded;
use tunebox_package::build::{Event, Options, build_watched};
use tunebox_package::{Built, Error, digest};

/// How often it looks. What two looks find the same is taken.
pub(super) const GLANCE: Duration = Duration::from_millis(200);

/// Bytes of the longest run file.
const LONGEST: u64 = 1 << 20;

/// What happens to the folder, and to the run file.
pub(super) enum Found {
    /// A change, which is being built.
    Change,
    /// Another build holds the lock of this file, and is waited for.
    Waiting(PathBuf),
    /// What became of it, after so long; or why there is nothing to build.
    Built(Box<Result<Built, Error>>, Duration),
    /// What the run file holds now.
    RunFile(Option<Vec<u8>>),
}

/// Something that is looked at.
#[derive(Default)]
struct Seen<T> {
    last: Option<T>,
    taken: Option<T>,
}

impl<T: PartialEq + Clone> Seen<T> {
    /// Whether it is another than before. A file that an editor is just replacing may be gone for a moment: two looks
    /// must find the same.
    fn is_new(&mut self, now: &T) -> bool {
        let new = self.last.as_ref() == Some(now) && self.taken.as_ref() != Some(now);
        if new {
            self.taken = Some(now.clone());
        }
        self.last = Some(now.clone());
        new
    }
}

/// Builds the folder now, and after every change, until nobody listens.
pub(super) fn look_after(folder: &Path, run_file: Option<&Path>, offline: bool, found: &Sender<Found>) {
    let (mut sources, mut settings) = (Seen::default(), Seen::default());
    let mut look = || -> Result<(), SendError<Found>> {
        let source = digest::source(folder);
        let now = source.as_ref().map_or_else(ToString::to_string, String::clone);
        if sources.is_new(&now) {
            match source {
                Ok(_) => built(folder, offline, found)?,
                Err(error) => found.send(Found::Built(Box::new(Err(error)), Duration::ZERO))?,
            }
        }
        let now = contents(run_file);
        if settings.is_new(&now) { found.send(Found::RunFile(now)) } else { Ok(()) }
    };
    while look().is_ok() {
        std::thread::sleep(GLANCE);
    }
}

fn built(folder: &Path, offline: bool, found: &Sender<Found>) -> Result<(), SendError<Found>> {
    found.send(Found::Change)?;
    let begun = Instant::now();
    let mut watch = |event: Event<'_>| {
        if let Event::Waiting(lock) = event {
            // Where nobody listens, the next word ends it.
            let _ = found.send(Found::Waiting(lock.to_owned()));
        }
    };
    let outcome = Box::new(build_watched(folder, &Options { offline, ..Options::default() }, &mut watch));
    found.send(Found::Built(outcome, begun.elapsed()))
}

/// What a run file holds; none where there is none.
pub(super) fn contents(run_file: Option<&Path>) -> Option<Vec<u8>> {
    bounded::read(run_file?, LONGEST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_looks_find_is_taken_once() {
        let mut seen = Seen::default();
        let looks = ["a", "a", "a", "b", "a", "c", "c"].map(|look| seen.is_new(&look));
        assert_eq!(looks, [false, true, false, false, false, false, true]);
    }

    #[test]
    fn a_folder_without_a_source_is_told_of_once_and_built_when_it_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let (send, found) = std::sync::mpsc::channel();
        let place = folder.path().to_owned();
        let looking = std::thread::spawn(move || look_after(&place, None, true, &send));
        let next = || loop {
            match found.recv_timeout(Duration::from_secs(20)).unwrap() {
                Found::RunFile(_) => {}
                other => break other,
            }
        };
        let Found::Built(outcome, _) = next() else { panic!("it is built from nothing") };
        assert!(outcome.unwrap_err().to_string().contains("src"));
        std::fs::write(folder.path().join("Cargo.toml"), "no manifest").unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        assert!(matches!(next(), Found::Change));
        drop(found);
        looking.join().unwrap();
    }
}
