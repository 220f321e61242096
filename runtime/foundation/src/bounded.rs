//! Files that somebody else wrote, read with an end in sight.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Opens an ordinary file. Errors: no such file; a folder; what need not end, as a device or a pipe.
pub fn open(path: &Path) -> Result<File> {
    let about = fs::metadata(path)?;
    // Before it is opened: a pipe would wait there for somebody who writes.
    if about.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder, not a file"));
    }
    if about.is_file() { File::open(path) } else { Err(Error::other("it is no ordinary file")) }
}

/// The bytes of an ordinary file. Errors: as for [`open`], and a file of more bytes than the limit, of which no more than
/// that is read.
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
    // Some files do not say how long they are, and some grow while they are read.
    if bytes.len() as u64 > limit { Err(too_large(format!("more than {limit}"))) } else { Ok(bytes) }
}

/// The text of an ordinary file. Errors: as for [`read`], and bytes that are no text.
pub fn text(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("four");
        fs::write(&path, "four").unwrap();
        assert_eq!((read(&path, 4).unwrap(), text(&path, u64::MAX).unwrap()), (b"four".to_vec(), "four".to_owned()));
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 4 bytes; at most 3 are read");
        assert_eq!(read(&folder.path().join("none"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read(folder.path(), 4).unwrap_err().kind(), ErrorKind::IsADirectory);
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(text(&path, 4).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    #[cfg(unix)]
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
