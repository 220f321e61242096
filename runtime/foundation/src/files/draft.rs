//! Folders, and files that take long to write, that appear whole or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::{FileError, create_folder, names, remove_folder, sync_folder};
use crate::paths::parent;

/// A folder that is filled under a temporary name and renamed when it is complete. Dropping it before [`Draft::commit`]
/// removes the temporary folder.
#[derive(Debug)]
pub struct Draft {
    partial: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl Draft {
    /// Creates the empty temporary folder `.<name>.partial` beside `target`, whose last component is `<name>`, and
    /// missing parents. First removes a temporary folder that an interrupted draft of the same target left. Leaves
    /// `target` as it is.
    ///
    /// # Errors
    /// When the old temporary folder cannot be removed, or the new one cannot be created.
    pub fn begin(target: &Path) -> Result<Self, FileError> {
        let partial = Self::path_for(target);
        remove_folder(&partial)?;
        create_folder(&partial)?;
        Ok(Self { partial, target: target.to_owned(), committed: false })
    }

    /// Returns the temporary folder of a draft of `target`, `.<name>.partial` beside it, for another process that fills
    /// it. Creates nothing.
    #[must_use]
    pub fn path_for(target: &Path) -> PathBuf {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        parent(target).join(format!(".{name}.partial"))
    }

    /// Returns the path of the temporary folder, valid until [`Draft::commit`] or [`Draft::commit_file`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Creates or overwrites the file `name` in the draft, without syncing it.
    ///
    /// # Errors
    /// When the system reports an error.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.partial.join(name);
        fs::write(&path, bytes).map_err(FileError::at("written", &path))
    }

    /// Syncs every file and folder of the draft and removes an earlier `.<name>.old` beside the target. Renames an
    /// existing target to `.<name>.old`, then the draft to the target, syncs the parent folder, and removes
    /// `.<name>.old`.
    ///
    /// # Errors
    /// When the system reports an error. If that happens between the two renames, the older folder stays at
    /// `.<name>.old`. Unless the second rename succeeded, the draft is removed.
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

impl Draft {
    /// Syncs the file of the target's name in the draft, renames it to the target, which it replaces, and syncs the
    /// parent folder. Removes the temporary folder with all else in it.
    ///
    /// # Errors
    /// When the system reports an error. Unless the rename succeeded, the draft is removed and the target is as before.
    pub fn commit_file(self) -> Result<(), FileError> {
        let file = self.partial.join(self.target.file_name().unwrap_or_default());
        File::open(&file).and_then(|file| file.sync_all()).map_err(FileError::at("written", &file))?;
        fs::rename(&file, &self.target).map_err(FileError::at("renamed", &file))?;
        sync_folder(parent(&self.target))
    }
}

impl Drop for Draft {
    /// Removes the temporary folder unless the draft was committed. Ignores errors.
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: the error that led here is the one to report.
            let _ = remove_folder(&self.partial);
        }
    }
}

/// Syncs every file and folder below `folder`, and the folder itself, to disk.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_leaves_its_draft_alone_and_only_if_it_is_committed() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("model.gguf");
        for is_committed in [false, true] {
            let draft = Draft::begin(&target).unwrap();
            assert_eq!(draft.path(), Draft::path_for(&target));
            draft.write("model.gguf", b"whole").unwrap();
            draft.write("beside", b"").unwrap();
            if is_committed {
                draft.commit_file().unwrap();
            } else {
                drop(draft);
            }
            assert_eq!(names(place.path()).unwrap().len(), usize::from(is_committed));
        }
        assert_eq!(fs::read(target).unwrap(), b"whole");
    }

    #[test]
    fn a_draft_replaces_the_old_folder_only_if_it_is_committed() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("000010");
        for (content, is_committed, found) in
            [("first", true, "first"), ("dropped", false, "first"), ("second", true, "second")]
        {
            let draft = Draft::begin(&target).unwrap();
            draft.write("state.json", content.as_bytes()).unwrap();
            if is_committed {
                draft.commit().unwrap();
            } else {
                drop(draft);
            }
            assert_eq!(fs::read_to_string(target.join("state.json")).unwrap(), found);
            assert_eq!(names(place.path()).unwrap(), ["000010"]);
        }
    }
}
