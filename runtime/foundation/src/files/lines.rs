//! Append-only text files.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::FileError;

/// A text file open for appending lines.
#[derive(Debug)]
pub struct Lines {
    file: File,
    path: PathBuf,
}

impl Lines {
    /// Opens a file for appending lines after its present content; creates it if it does not exist.
    ///
    /// # Errors
    /// When the path is a symbolic link, or the system reports an error.
    pub fn append_to(path: &Path) -> Result<Self, FileError> {
        if path.is_symlink() {
            return Err(FileError::at("written", path)(io::Error::other("it is a link, and may lead anywhere")));
        }
        let file = File::options().create(true).append(true).open(path).map_err(FileError::at("written", path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends one line and its line break in a single write. Writes `line` as it is: a line break in it begins a
    /// further line. Does not sync.
    ///
    /// # Errors
    /// When the system reports an error, as on a full disk.
    pub fn push(&mut self, line: &str) -> Result<(), FileError> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(FileError::at("written", &self.path))
    }

    /// Syncs the appended lines to the disk.
    ///
    /// # Errors
    /// When the system reports an error.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.file.sync_data().map_err(FileError::at("written", &self.path))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn a_full_disk_is_named_as_such() {
        let error = Lines::append_to(Path::new("/dev/full")).unwrap().push("{}").unwrap_err();

        assert!(error.is_disk_full());
        assert_eq!(error.to_string(), "`/dev/full` cannot be written");
        assert_eq!(error.why().unwrap(), "the disk is full");
    }
}
