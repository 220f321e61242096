//! File operations whose errors name the path, and atomic writes.
//!
//! [`write`] and [`Draft`] write under a temporary name, sync and rename, so that a reader sees the old content or the
//! new one, never a part.

mod draft;
mod lines;
mod links;

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::bounded;
use crate::explain::Explain;
use crate::paths::{self, parent};

pub use draft::Draft;
pub use lines::Lines;
pub use links::reject_links;

/// The most bytes of a text that is read whole: a run file, a lock.
const LONGEST_TEXT: u64 = 64 << 20;

/// A failed file operation with its path and the error of the system.
#[derive(Debug, thiserror::Error, Explain)]
#[error("`{}` cannot be {action}", path.display())]
#[explain(category = "files", why = paths::describe_io_error(source), hint = self.hint())]
pub struct FileError {
    /// The operation, as a participle: `read`, `written`, `created`, `removed`, `renamed`, `used`.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

impl FileError {
    /// Returns a closure for `map_err` that turns an error of the system into a [`FileError`] with the failed action (a
    /// participle, such as `read`) and the path.
    pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    /// Whether the operation failed because the disk, or this user's quota of it, is full, or because the system limits
    /// the size of files.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self.source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => true,
            // Our own bounded reads use this kind too, without a system error number.
            ErrorKind::FileTooLarge => self.source.raw_os_error().is_some(),
            _ => false,
        }
    }

    /// Returns what to do. If the file does not exist: "did you mean …" with a similar entry of its folder, or else to
    /// check the path. If [`is_disk_full`](Self::is_disk_full) holds: to free space. `None` for other errors.
    fn hint(&self) -> Option<String> {
        match self.source.kind() {
            ErrorKind::NotFound => Some(
                paths::did_you_mean(&self.path)
                    .unwrap_or_else(|| "check the path; paths in a run file start at the run file's folder".into()),
            ),
            _ if self.is_disk_full() => {
                Some("free some space, or set `run.folder` to another disk; what was saved before is whole".into())
            }
            _ => None,
        }
    }
}

/// Reads a whole ordinary file of at most `limit` bytes.
///
/// # Errors
/// When the file cannot be read, is not an ordinary file, or is larger than `limit`.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    bounded::read(path, limit).map_err(FileError::at("read", path))
}

/// Reads a whole ordinary UTF-8 file of at most 64 MiB.
///
/// # Errors
/// When the file cannot be read, is not an ordinary file, is too large, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    bounded::read_text(path, LONGEST_TEXT).map_err(FileError::at("read", path))
}

/// Opens an ordinary file for streaming reads.
///
/// # Errors
/// When the path is a folder, a pipe or a device, or cannot be opened.
pub fn open(path: &Path) -> Result<File, FileError> {
    bounded::open(path).map_err(FileError::at("read", path))
}

/// Creates a folder and its missing parents; does nothing if it exists.
///
/// # Errors
/// When the system reports an error.
pub fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(FileError::at("created", path))
}

/// Creates the folder `path`, of exactly this name, and its missing parents, with the user's usual permissions. `None`
/// if the path exists already, as a folder or a file. Dropping the returned value removes the folder with its content,
/// unless [`TempDir::keep`] was called.
///
/// # Errors
/// When the system reports an error.
pub fn create_new_folder(path: &Path) -> Result<Option<TempDir>, FileError> {
    create_folder(parent(path))?;
    let (mut builder, name) = (tempfile::Builder::new(), path.file_name().unwrap_or_default());
    builder.prefix(name).rand_bytes(0).permissions(fs::Permissions::from_mode(0o777));
    match builder.tempdir_in(parent(path)) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(FileError::at("created", path)(error)),
    }
}

/// Creates a folder with a unique name that begins with `prefix` in the folder `above`. Dropping the returned value
/// removes the new folder with its content.
///
/// # Errors
/// When the system reports an error, as for a missing `above`.
pub fn temporary_folder(above: &Path, prefix: &str) -> Result<TempDir, FileError> {
    tempfile::Builder::new().prefix(prefix).tempdir_in(above).map_err(FileError::at("created", above))
}

/// Removes a folder with its content; does nothing if it does not exist.
///
/// # Errors
/// When the system reports an error.
pub fn remove_folder(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::at("removed", path)(error)),
        _ => Ok(()),
    }
}

/// Returns the names of all entries of a folder (files, folders and others, hidden ones too), sorted by bytes. Empty if
/// the folder does not exist. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// When the folder cannot be listed.
pub fn names(folder: &Path) -> Result<Vec<String>, FileError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(FileError::at("read", folder))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(FileError::at("read", folder))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Creates or replaces a file atomically: writes a temporary file beside it, sets mode 644, syncs the file, renames it
/// and syncs the folder. The folder must exist.
///
/// # Errors
/// When the system reports an error, as on a full disk. The file then has its old content, or the new content if only
/// the sync of its folder failed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_with(path, |file| file.write_all(bytes).map_err(FileError::at("written", path)))
}

/// Creates or replaces a file atomically with the bytes that `fill` writes: gives `fill` a buffered writer to a
/// temporary file beside the target, sets mode 644, syncs that file, renames it and syncs the folder. The folder must
/// exist. On an error the temporary file is removed.
///
/// # Errors
/// The error of `fill`, or a [`FileError`] when the system reports one. The file then has its old content, or the new
/// content if only the sync of its folder failed.
pub fn write_with<E: From<FileError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |action| FileError::at(action, path);
    let folder = parent(path);
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(failed("written"))?;
    let mut writer = BufWriter::with_capacity(1 << 20, draft.as_file_mut());
    fill(&mut writer)?;
    writer.flush().map_err(failed("written"))?;
    drop(writer);
    // Temporary files are private by default.
    draft.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed("written"))?;
    draft.as_file().sync_all().map_err(failed("written"))?;
    draft.persist(path).map_err(|error| failed("renamed")(error.error))?;
    Ok(sync_folder(folder)?)
}

/// Syncs a folder to disk, which makes a rename in it durable.
fn sync_folder(folder: &Path) -> Result<(), FileError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(FileError::at("written", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_make_one_folder_the_second_is_told_that_it_did_not() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("runs/lora-1");
        let first = create_new_folder(&folder).unwrap().unwrap();
        write(&folder.join("kept"), b"text").unwrap();
        assert!(create_new_folder(&folder).unwrap().is_none());
        assert_eq!(names(&folder).unwrap(), ["kept"]);
        drop(first);
        assert!(!folder.exists());
    }

    #[test]
    fn a_file_that_is_too_large_to_be_read_fills_no_disk() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run.lock");
        File::create(&path).unwrap().set_len(LONGEST_TEXT + 1).unwrap();
        let error = read_text(&path).unwrap_err();
        assert_eq!(
            (error.is_disk_full(), error.why().unwrap()),
            (false, "it has 67108865 bytes; at most 67108864 are read".into())
        );
    }

    #[test]
    fn a_write_that_cannot_be_renamed_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("taken");
        create_folder(&target.join("inside")).unwrap();

        assert_eq!(write(&target, b"text").unwrap_err().action, "renamed");
        assert_eq!(names(place.path()).unwrap(), ["taken"]);
    }
}
