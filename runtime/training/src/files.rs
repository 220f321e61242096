//! Files that appear whole or not at all, and errors that carry the path.
//!
//! Every write of a run goes through here: into a temporary name, synced, renamed.
//! What the files hold is left to the callers.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tunebox_compute::explain::Explain;

/// A file operation that did not work, with the path and the system's reason.
#[derive(Debug, thiserror::Error)]
#[error("`{}` cannot be {action}", path.display())]
pub struct FileError {
    /// What was tried: `read`, `written`, `created`, `removed`, `renamed`.
    pub action: &'static str,
    /// Where.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

impl FileError {
    fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    /// Whether the disk, or this user's share of it, is full.
    #[must_use]
    pub fn disk_full(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    }
}

impl Explain for FileError {
    fn area(&self) -> &'static str {
        "files"
    }

    fn why(&self) -> Option<String> {
        Some(match self.source.kind() {
            ErrorKind::NotFound => "there is no such file or folder".into(),
            ErrorKind::PermissionDenied => "this user may not do that there".into(),
            ErrorKind::StorageFull => "the disk is full".into(),
            ErrorKind::QuotaExceeded => "this user's share of the disk is full".into(),
            ErrorKind::FileTooLarge => "the file would pass the largest size allowed here".into(),
            _ => self.source.to_string(),
        })
    }

    fn hint(&self) -> Option<String> {
        match self.source.kind() {
            ErrorKind::NotFound => Some("check the path; paths in a run file start at the run file's folder".into()),
            _ if self.disk_full() => {
                Some("free some space, or set `run.folder` to another disk; what was saved before is whole".into())
            }
            _ => None,
        }
    }
}

/// A model room's file error as one of ours, so that a full disk is told the same way everywhere.
///
/// # Errors
/// Whatever the result holds.
pub(crate) fn explained<T>(result: Result<T, tunebox_model::error::Error>) -> Result<T, crate::error::Error> {
    result.map_err(|error| match error {
        tunebox_model::error::Error::File { path, source } => {
            FileError { action: "written", path: path.into(), source }.into()
        }
        other => other.into(),
    })
}

/// The whole file as bytes.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(FileError::at("read", path))
}

/// The whole file as text; bytes that are not UTF-8 are an error.
///
/// # Errors
/// When it cannot be read, or is not text.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(FileError::at("read", path))
}

/// Opens a file for streaming reads.
///
/// # Errors
/// When it is a folder, or cannot be opened.
pub fn open(path: &Path) -> Result<File, FileError> {
    let file = File::open(path).map_err(FileError::at("read", path))?;
    let about = file.metadata().map_err(FileError::at("read", path))?;
    if about.is_dir() {
        let source = io::Error::new(ErrorKind::IsADirectory, "it is a folder, not a file");
        return Err(FileError::at("read", path)(source));
    }
    Ok(file)
}

/// Makes a folder and those above it.
///
/// # Errors
/// When the system refuses.
pub fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(FileError::at("created", path))
}

/// A folder with a free name that is removed with everything in it when it is dropped.
///
/// # Errors
/// When the system refuses.
pub fn temporary_folder(above: &Path, prefix: &str) -> Result<tempfile::TempDir, FileError> {
    tempfile::Builder::new().prefix(prefix).tempdir_in(above).map_err(FileError::at("created", above))
}

/// Removes a folder and everything in it; one that is not there is fine.
///
/// # Errors
/// When the system refuses.
pub fn remove_folder(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::at("removed", path)(error)),
        _ => Ok(()),
    }
}

/// The names in a folder, sorted; none when the folder is not there.
///
/// # Errors
/// When it cannot be listed.
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

/// Writes a file so that a reader sees the old content or the new one, never a part.
///
/// # Errors
/// When the system refuses, as on a full disk; the old content then still stands.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |action| FileError::at(action, path);
    let folder = parent(path);
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(failed("written"))?;
    draft.write_all(bytes).map_err(failed("written"))?;
    open_to_others(draft.as_file()).map_err(failed("written"))?;
    draft.as_file().sync_all().map_err(failed("written"))?;
    draft.persist(path).map_err(|error| failed("renamed")(error.error))?;
    sync_folder(folder)
}

/// A folder that is filled under another name and appears when it is complete.
#[derive(Debug)]
pub struct Draft {
    partial: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl Draft {
    /// Starts a draft of `target` beside it, under `.<name>.partial`; what an earlier,
    /// interrupted draft left there goes.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn begin(target: &Path) -> Result<Self, FileError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let partial = parent(target).join(format!(".{name}.partial"));
        remove_folder(&partial)?;
        create_folder(&partial)?;
        Ok(Self { partial, target: target.to_owned(), committed: false })
    }

    /// Where to write until [`Draft::commit`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Adds one file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.partial.join(name);
        fs::write(&path, bytes).map_err(FileError::at("written", &path))
    }

    /// Syncs every file and gives the folder its name, in place of an older one.
    ///
    /// # Errors
    /// When the system refuses; the older folder then still stands.
    pub fn commit(mut self) -> Result<(), FileError> {
        sync_below(&self.partial)?;
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let old = parent(&self.target).join(format!(".{name}.old"));
        remove_folder(&old)?;
        if self.target.exists() {
            fs::rename(&self.target, &old).map_err(FileError::at("renamed", &self.target))?;
        }
        fs::rename(&self.partial, &self.target).map_err(FileError::at("renamed", &self.partial))?;
        self.committed = true;
        sync_folder(parent(&self.target))?;
        remove_folder(&old)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: the error that led here is the one to report.
            let _ = remove_folder(&self.partial);
        }
    }
}

/// A file that grows line by line.
#[derive(Debug)]
pub struct Lines {
    file: File,
    path: PathBuf,
}

impl Lines {
    /// Opens for appending, and makes the file if need be.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn append_to(path: &Path) -> Result<Self, FileError> {
        let file = File::options().create(true).append(true).open(path).map_err(FileError::at("written", path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Adds one line in a single write, so that lines are not torn apart.
    ///
    /// # Errors
    /// When the system refuses, as on a full disk.
    pub fn push(&mut self, line: &str) -> Result<(), FileError> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(FileError::at("written", &self.path))
    }

    /// Makes sure that what was added survives a power cut.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.file.sync_data().map_err(FileError::at("written", &self.path))
    }
}

/// The folder a path is in; the present one for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_below(folder: &Path) -> Result<(), FileError> {
    for name in names(folder)? {
        let path = folder.join(name);
        if path.is_dir() {
            sync_below(&path)?;
        } else {
            File::open(&path).and_then(|file| file.sync_all()).map_err(FileError::at("written", &path))?;
        }
    }
    sync_folder(folder)
}

/// A rename is only on the disk once its folder is.
fn sync_folder(folder: &Path) -> Result<(), FileError> {
    if cfg!(unix) {
        File::open(folder).and_then(|file| file.sync_all()).map_err(FileError::at("written", folder))?;
    }
    Ok(())
}

/// Temporary files are private by default; a run's files are as readable as any other.
fn open_to_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    let _ = file;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_that_is_dropped_leaves_the_old_folder_alone() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("000010");
        let first = Draft::begin(&target).unwrap();
        first.write("state.json", b"first").unwrap();
        first.commit().unwrap();

        let second = Draft::begin(&target).unwrap();
        second.write("state.json", b"second").unwrap();
        drop(second);

        assert_eq!(read(&target.join("state.json")).unwrap(), b"first");
        assert_eq!(names(place.path()).unwrap(), ["000010"]);
    }

    #[test]
    fn a_committed_draft_replaces_the_old_folder() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("000010");
        for content in [&b"first"[..], b"second"] {
            let draft = Draft::begin(&target).unwrap();
            draft.write("state.json", content).unwrap();
            draft.commit().unwrap();
        }

        assert_eq!(read(&target.join("state.json")).unwrap(), b"second");
        assert_eq!(names(place.path()).unwrap(), ["000010"]);
    }

    #[test]
    fn a_write_that_cannot_be_renamed_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("taken");
        create_folder(&target.join("inside")).unwrap();

        assert_eq!(write(&target, b"text").unwrap_err().action, "renamed");
        assert_eq!(names(place.path()).unwrap(), ["taken"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named_as_such() {
        let error = Lines::append_to(Path::new("/dev/full")).unwrap().push("{}").unwrap_err();

        assert!(error.disk_full());
        assert_eq!(error.to_string(), "`/dev/full` cannot be written");
        assert_eq!(error.why().unwrap(), "the disk is full");
    }
}
