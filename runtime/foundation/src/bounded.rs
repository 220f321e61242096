//! Reads of untrusted files that accept ordinary files only and never read more bytes than a limit, and calls with a
//! time limit.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Opens an ordinary file for reading; follows symbolic links. Fails with `NotFound` if it is missing, with
/// `IsADirectory` for a folder, and with `Other` for a device or a pipe, which is not opened.
pub fn open(path: &Path) -> Result<File> {
    let about = fs::metadata(path)?;
    // Checked before opening: opening a pipe blocks until another process writes to it.
    if about.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder, not a file"));
    }
    if about.is_file() { File::open(path) } else { Err(Error::other("it is no ordinary file")) }
}

/// Reads a whole ordinary file of at most `limit` bytes. Fails if [`open`] fails, and with `FileTooLarge` for a longer
/// file. Nothing is read if the system reports a larger size; at most `limit + 1` bytes are read in any case.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    let too_large =
        |size: String| Error::new(ErrorKind::FileTooLarge, format!("it has {size} bytes; at most {limit} are read"));
    if size > limit {
        return Err(too_large(size.to_string()));
    }
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    // Some files report no size (`/proc`), and some grow while they are read.
    if bytes.len() as u64 > limit { Err(too_large(format!("more than {limit}"))) } else { Ok(bytes) }
}

/// Reads a whole ordinary UTF-8 file of at most `limit` bytes. Fails if [`read`] fails, and with `InvalidData` for
/// bytes that are not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// Runs `work` on a new thread and returns its result. Fails with `TimedOut` if that takes longer than `limit`; the
/// thread cannot be stopped and runs on until `work` or the process ends. Also fails if `work` panics or no thread can
/// be started.
pub fn run_with_timeout<R: Send + 'static>(limit: Duration, work: impl FnOnce() -> R + Send + 'static) -> Result<R> {
    let (send, result) = channel();
    thread::Builder::new().spawn(move || send.send(work()))?;
    result.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            Error::new(ErrorKind::TimedOut, format!("it takes longer than {} s", limit.as_secs_f64()))
        }
        RecvTimeoutError::Disconnected => Error::other("it broke the program that reads it"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_until_its_limit() {
        assert_eq!(run_with_timeout(Duration::from_secs(60), || 7).unwrap(), 7);
        let late =
            run_with_timeout(Duration::from_millis(1), || thread::sleep(Duration::from_millis(200))).unwrap_err();
        assert_eq!((late.kind(), late.to_string().as_str()), (ErrorKind::TimedOut, "it takes longer than 0.001 s"));
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("four");
        fs::write(&path, "four").unwrap();
        assert_eq!(
            (read(&path, 4).unwrap(), read_text(&path, u64::MAX).unwrap()),
            (b"four".to_vec(), "four".to_owned())
        );
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 4 bytes; at most 3 are read");
        assert_eq!(read(&folder.path().join("none"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read(folder.path(), 4).unwrap_err().kind(), ErrorKind::IsADirectory);
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn what_never_ends_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (endless, pipe) = (folder.path().join("endless"), folder.path().join("pipe"));
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [endless, pipe] {
            assert_eq!(read(&path, 4).unwrap_err().to_string(), "it is no ordinary file");
        }
    }
}
