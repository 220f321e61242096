//! One process at a time trains a run: it holds a lock that the system frees with it, however it ends.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use tunebox_foundation::bounded;

use crate::error::Error;
use tunebox_foundation::files::FileError;

/// The file that is locked, in the run's folder. It holds the number of the process.
const FILE: &str = ".training";

/// Bytes of the longest number of a process, and the end of its line.
const LONGEST: u64 = 16;

/// How often a lock is tried, with a pause after each: whoever lists runs holds it for a moment, and so may a process that
/// was ended just now.
const ATTEMPTS: usize = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// A run that nobody else trains until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _file: File,
}

impl Held {
    /// Takes the run of a folder for this process. Errors: another one trains it; a lock that cannot be written.
    pub(crate) fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let unwritten = |source| FileError { action: "written", path: path.clone(), source };
        let mut file = open(&path).map_err(unwritten)?;
        if !locked(&file) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(Error::Running { name, folder: folder.to_owned(), process: process_in(&path) });
        }
        let number = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(number.as_bytes())).map_err(unwritten)?;
        Ok(Self { _file: file })
    }
}

/// Whether a process trains the run of a folder.
pub(crate) fn is_running(folder: &Path) -> bool {
    let path = folder.join(FILE);
    path.symlink_metadata().is_ok_and(|about| about.is_file())
        && File::open(&path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Opens the file, or makes it. What a stranger put in its place, as a link or a pipe, is not written to.
fn open(path: &Path) -> io::Result<File> {
    if path.symlink_metadata().is_ok_and(|about| !about.is_file()) {
        return Err(io::Error::other("it is no ordinary file"));
    }
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Whether the lock is this process's from now on. On a file system that locks no files nobody is kept out.
fn locked(file: &File) -> bool {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => sleep(PAUSE),
            Ok(()) | Err(TryLockError::Error(_)) => return true,
        }
    }
    false
}

/// The process that wrote its number into a lock, where that can be read.
fn process_in(path: &Path) -> Option<u32> {
    bounded::read_text(path, LONGEST).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    #[test]
    fn a_run_that_is_trained_is_nobody_else_s_until_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_running(folder.path()), "nobody ever trained it");
        let held = Held::take(folder.path()).unwrap();
        assert!(is_running(folder.path()));
        let error = Held::take(folder.path()).unwrap_err();
        let why = format!("process {} trains it", std::process::id());
        assert_eq!(error.why(), Some(why));
        assert!(error.to_string().ends_with("is running"), "{error}");
        drop(held);
        assert!(Held::take(folder.path()).is_ok());
    }

    #[test]
    #[cfg(unix)]
    fn what_a_lock_is_a_link_to_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("notes");
        std::fs::write(&elsewhere, "mine").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(FILE)).unwrap();
        assert!(matches!(Held::take(folder.path()), Err(Error::File(_))));
        assert_eq!(std::fs::read_to_string(elsewhere).unwrap(), "mine");
        assert!(!is_running(folder.path()));
    }
}
