//! Waiting for a lock that another program holds: with a time limit, because the holder may never release it.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Error;

/// How long to wait for others that write: a write takes a moment, so a longer hold has another reason.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The file that is locked in a folder where the system locks no folders.
const GUARD_FILE: &str = ".tunebox-guard";

/// The time between two attempts to take a lock.
const PAUSE: Duration = Duration::from_millis(5);

/// A function that tries to take a lock: `File::try_lock` for an exclusive one, `File::try_lock_shared` for a shared
/// one.
type Try = fn(&File) -> Result<(), TryLockError>;

/// Takes the lock of a file by calling `attempt` every 5 ms until the time `end`, and at least once. Returns false if
/// another process holds the lock until then. Errors: the system cannot lock this file.
pub(crate) fn wait_for_lock(file: &File, attempt: Try, end: Instant) -> io::Result<bool> {
    loop {
        match attempt(file) {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return Ok(false),
            Err(TryLockError::WouldBlock) => sleep(PAUSE),
        }
    }
}

/// Takes the exclusive lock of a file, and waits for it until the time `end`; dropping the returned file releases it.
/// Calls `on_wait` once if another process holds the lock. `path` is for errors. Errors: a file that cannot be locked,
/// or [`Error::Held`] if another process keeps the lock.
pub(crate) fn lock_exclusive(file: File, path: &Path, end: Instant, on_wait: impl FnOnce()) -> Result<File, Error> {
    let attempt = |end| wait_for_lock(&file, File::try_lock, end).map_err(Error::file("locked", path));
    if !attempt(Instant::now())? {
        on_wait();
        if !attempt(end)? {
            return Err(Error::Held { path: path.to_owned() });
        }
    }
    Ok(file)
}

/// Takes the exclusive locks of two folders, so that no other command writes there, and waits for them for `timeout`
/// in all. Two paths of one folder are locked once. Dropping the returned files releases the locks. Errors: a folder
/// that does not exist, one where neither the folder nor the file [`GUARD_FILE`] in it can be locked, or
/// [`Error::Held`] if another process keeps a lock.
pub(crate) fn lock_folders(folders: [&Path; 2], timeout: Duration) -> Result<Vec<File>, Error> {
    let places = folders.into_iter().map(|folder| folder.canonicalize().map_err(Error::file("found", folder)));
    // All commands take the locks in the same order and each lock once, so that they cannot deadlock.
    let places: BTreeSet<_> = places.collect::<Result<_, _>>()?;
    let end = Instant::now() + timeout;
    places.iter().map(|place| lock_folder(place, end)).collect()
}

/// Takes the exclusive lock of a folder, and waits for it until the time `end`. Where the folder cannot be opened or
/// locked, locks the file [`GUARD_FILE`] in it, and creates that file if it is missing. Dropping the returned file
/// releases the lock. Errors: [`Error::Held`] if another process keeps the lock, or that file cannot be created or
/// locked either.
fn lock_folder(folder: &Path, end: Instant) -> Result<File, Error> {
    if let Ok(file) = File::open(folder) {
        match wait_for_lock(&file, File::try_lock, end) {
            Ok(true) => return Ok(file),
            Ok(false) => return Err(Error::Held { path: folder.to_owned() }),
            // A system that locks no folders.
            Err(_) => {}
        }
    }
    let path = folder.join(GUARD_FILE);
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    lock_exclusive(open.map_err(Error::file("locked", folder))?, &path, end, || {})
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn folders_that_another_command_keeps_locked_are_waited_for_and_then_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let places = [folder.path(), folder.path()];
        let held = lock_folders(places, LOCK_TIMEOUT).unwrap();
        let error = lock_folders(places, Duration::from_millis(20)).err().unwrap();
        let place = folder.path().canonicalize().unwrap();
        assert!(matches!(&error, Error::Held { path } if *path == place), "{error}");
        assert!(error.hint().unwrap().contains("`lsof`"), "{error}");
        drop(held);
        assert!(lock_folders(places, LOCK_TIMEOUT).is_ok());
    }

    #[test]
    fn a_wait_for_the_lock_of_a_file_is_announced_once_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guest.lock");
        let lock = |timeout, on_wait: &mut dyn FnMut()| {
            lock_exclusive(File::create(&path).unwrap(), &path, Instant::now() + timeout, on_wait)
        };
        let held = lock(LOCK_TIMEOUT, &mut || panic!("the lock is free")).unwrap();
        let mut waits = 0;
        let error = lock(Duration::from_millis(20), &mut || waits += 1).unwrap_err();
        assert!(matches!(&error, Error::Held { path: held } if *held == path), "{error}");
        assert_eq!(waits, 1, "once, however often it is tried");
        drop(held);
        // A process that another test starts keeps the lock until it has its own program.
        assert!(lock(LOCK_TIMEOUT, &mut || {}).is_ok());
    }
}
