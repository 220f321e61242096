//! The lock of the files of trust: one command at a time writes them.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Error;
use crate::file_lock::{PATIENCE, lock_exclusive, wait_for_lock};

/// The file that is locked where the system locks no folders.
const GUARD: &str = ".tunebox-guard";

/// Keeps other commands from writing into folders, until it is dropped.
pub(super) struct Guard {
    _folders: Vec<File>,
}

impl Guard {
    /// Locks two folders against other commands that write there, and waits for these for up to a minute. Errors: a
    /// folder that cannot be locked in any way, or that another process keeps locked.
    pub(super) fn of(folders: [&Path; 2]) -> Result<Self, Error> {
        Self::within(folders, PATIENCE)
    }

    /// Locks two folders as [`of`](Self::of) does, but waits for at most `patience` in all. Two paths of one folder are
    /// locked once.
    fn within(folders: [&Path; 2], patience: Duration) -> Result<Self, Error> {
        let mut places = Vec::with_capacity(folders.len());
        for folder in folders {
            places.push(folder.canonicalize().map_err(Error::file("find", folder))?);
        }
        // All commands take them in one order, and none takes the same one twice: nobody waits for each other.
        places.sort();
        places.dedup();
        let end = Instant::now() + patience;
        let locked: Result<_, Error> = places.iter().map(|place| lock(place, end)).collect();
        Ok(Self { _folders: locked? })
    }
}

/// Takes the exclusive lock of a folder, and waits for it until the time `end`. Where the system cannot lock folders,
/// locks the file [`GUARD`] in it. Dropping the returned file releases the lock.
fn lock(folder: &Path, end: Instant) -> Result<File, Error> {
    if let Ok(file) = File::open(folder) {
        match wait_for_lock(&file, File::try_lock, end) {
            Ok(true) => return Ok(file),
            Ok(false) => return Err(Error::Held { path: folder.to_owned() }),
            // A system that locks no folders.
            Err(_) => {}
        }
    }
    let path = folder.join(GUARD);
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    lock_exclusive(open.map_err(Error::file("lock", folder))?, &path, end)
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn a_lock_that_somebody_keeps_is_waited_for_and_then_told() {
        let folder = tempfile::tempdir().unwrap();
        let places = [folder.path(), folder.path()];
        let held = Guard::of(places).unwrap();
        let error = Guard::within(places, Duration::from_millis(20)).err().unwrap();
        let place = folder.path().canonicalize().unwrap();
        assert!(matches!(&error, Error::Held { path } if *path == place), "{error}");
        assert!(error.hint().unwrap().contains("`lsof`"), "{error}");
        drop(held);
        assert!(Guard::within(places, Duration::ZERO).is_ok());
    }
}
