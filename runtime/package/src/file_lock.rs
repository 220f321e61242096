//! Waiting for a lock that another program holds: not for ever, since whoever holds it may never give it free.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Error;

/// How long others may write: they need a moment, so whoever takes longer holds the lock for something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is tried again.
const PAUSE: Duration = Duration::from_millis(5);

/// Tries to take a lock: `File::try_lock` alone, `File::try_lock_shared` among others who read.
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
/// `path` is for errors. Errors: a file that cannot be locked, or [`Error::Held`] if another process keeps the lock.
pub(crate) fn lock_exclusive(file: File, path: &Path, end: Instant) -> Result<File, Error> {
    match wait_for_lock(&file, File::try_lock, end) {
        Ok(true) => Ok(file),
        Ok(false) => Err(Error::Held { path: path.to_owned() }),
        Err(error) => Err(Error::file("lock", path)(error)),
    }
}
