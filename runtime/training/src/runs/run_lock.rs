//! A file lock that lets one process at a time train a run. The system releases it when the process ends.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use tunebox_foundation::bounded;
use tunebox_foundation::files::FileError;

use crate::error::{Error, path_error};

/// The locked file in the run's folder. It holds the id of the process.
const FILE: &str = ".training";

/// The most bytes of the locked file that are read.
const MAX_BYTES: u64 = 16;

/// Attempts to lock the file, with a pause after each: a process that lists runs, or one that ends, may hold it
/// briefly.
const ATTEMPTS: usize = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// Keeps other processes from training a run until it is dropped.
#[derive(Debug)]
pub(crate) struct RunLock {
    _file: File,
}

impl RunLock {
    /// Locks the run of a folder for this process until the result is dropped, and writes the process's id into the
    /// lock file, unless that file has a second name (hard link). Waits up to 400 ms for another process.
    ///
    /// # Errors
    /// A run whose lock another process holds, which the error names by the id in the lock file; a lock file that
    /// cannot be opened or written, or is no regular file.
    pub(crate) fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let unwritten = |source| FileError { action: "written", path: path.clone(), source };
        let mut file = open(&path).map_err(unwritten)?;
        if !try_lock(&file) {
            let name = folder.file_name().unwrap_or_default().display();
            let process = read_process_id(&path).map_or("another process".into(), |id| format!("process {id}"));
            let (what, why) = (format!("the run `{name}` is running"), format!("{process} trains it"));
            let hint = "wait for its end, or stop it where it runs, by Ctrl-C; without `--resume`, another `--name` begins \
                        a run beside it";
            return Err(path_error(folder, what, why, hint));
        }
        let number = format!("{}\n", std::process::id());
        // A file with a second name elsewhere is not written to: the author of an untrusted run folder may have linked
        // it.
        if file.metadata().map_err(&unwritten)?.nlink() == 1 {
            file.set_len(0).and_then(|()| file.write_all(number.as_bytes())).map_err(unwritten)?;
        }
        Ok(Self { _file: file })
    }
}

/// Whether some process, this one included, holds the lock of the run in `folder`. Does not wait; false if there is no
/// lock file.
pub(crate) fn is_running(folder: &Path) -> bool {
    let path = folder.join(FILE);
    path.symlink_metadata().is_ok_and(|about| about.is_file())
        && File::open(&path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Opens the lock file for writing, or creates it, without truncating it. Fails if something else than a regular file
/// has its name, such as a symbolic link or a pipe.
fn open(path: &Path) -> io::Result<File> {
    if path.symlink_metadata().is_ok_and(|about| !about.is_file()) {
        return Err(io::Error::other("it is no ordinary file"));
    }
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Tries for up to 400 ms to lock the file; returns false if another process holds the lock all that time. Returns true
/// on a file system without locks, where nothing keeps other processes out.
fn try_lock(file: &File) -> bool {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => sleep(PAUSE),
            Ok(()) | Err(TryLockError::Error(_)) => return true,
        }
    }
    false
}

/// The process id in the lock file at `path`; `None` if the file cannot be read, has more than [`MAX_BYTES`] or holds
/// no number.
fn read_process_id(path: &Path) -> Option<u32> {
    bounded::read_text(path, MAX_BYTES).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    #[test]
    fn a_run_in_training_is_locked_until_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_running(folder.path()), "it was never trained");
        let lock = RunLock::take(folder.path()).unwrap();
        assert!(is_running(folder.path()));
        let error = RunLock::take(folder.path()).unwrap_err();
        let why = format!("process {} trains it", std::process::id());
        assert_eq!(error.why(), Some(why));
        assert!(error.to_string().ends_with("is running"), "{error}");
        drop(lock);
        assert!(RunLock::take(folder.path()).is_ok());
    }

    #[test]
    #[cfg(unix)]
    fn what_a_lock_is_a_link_to_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("notes");
        std::fs::write(&elsewhere, "mine").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(FILE)).unwrap();
        assert!(matches!(RunLock::take(folder.path()), Err(Error::File(_))));
        assert_eq!(std::fs::read_to_string(elsewhere).unwrap(), "mine");
        assert!(!is_running(folder.path()));
    }
}
