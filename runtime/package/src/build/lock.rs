//! One build at a time where two would write the same files: whoever comes later hears of it, and does not wait for
//! ever.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Event, Watch};
use crate::{Error, file_lock};

/// How long another build may take: the longest compile the standard library as well, on machines with much to do.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Takes the exclusive lock of the open file `file` at `path`; dropping the returned file releases it. If another build
/// holds the lock, sends `Event::Waiting` to `watch` once and waits for up to 15 minutes. Errors: the file cannot be
/// locked, or the other build does not end in time.
pub(super) fn wait_for_build(file: File, path: &Path, watch: &mut Watch<'_>) -> Result<File, Error> {
    wait_for_build_within(file, path, PATIENCE, watch)
}

/// Takes the exclusive lock of an open file as [`wait_for_build`] does, but waits for at most `patience`.
fn wait_for_build_within(file: File, path: &Path, patience: Duration, watch: &mut Watch<'_>) -> Result<File, Error> {
    if file_lock::wait_for_lock(&file, File::try_lock, Instant::now()).map_err(Error::file("lock", path))? {
        return Ok(file);
    }
    watch(Event::Waiting(path));
    file_lock::lock_exclusive(file, path, Instant::now() + patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_does_not_end_is_told_of_and_then_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guest.lock");
        let open = || File::create(&path).unwrap();
        let held = wait_for_build(open(), &path, &mut |event| panic!("nobody is waited for: {event:?}")).unwrap();

        let mut told = Vec::new();
        let mut watch = |event: Event<'_>| told.push(event == Event::Waiting(&path));
        let error = wait_for_build_within(open(), &path, Duration::from_millis(20), &mut watch).unwrap_err();
        assert!(matches!(&error, Error::Held { path: held } if *held == path), "{error}");
        assert_eq!(told, [true], "once, however often it is tried");

        drop(held);
        assert!(wait_for_build_within(open(), &path, Duration::ZERO, &mut |_| {}).is_ok());
    }
}
