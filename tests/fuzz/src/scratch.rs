//! A folder of a thread for the targets whose parser wants a path; in memory where the system has such a place.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

thread_local! {
    static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
}

/// Writes an input to a file of this name and gives its path and folder to `then`. The file is there again with
/// other bytes at the next call.
pub(crate) fn with_file<T>(name: &str, bytes: &[u8], then: impl FnOnce(&Path, &Path) -> T) -> T {
    let folder = FOLDER.with(|cell| cell.get_or_init(new_folder).path().to_owned());
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    then(&path, &folder)
}

/// An empty folder in the same place, which is removed with the value.
pub(crate) fn new_folder() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::Builder::new()
        .prefix("tunebox-fuzz-")
        .tempdir_in(place)
        .unwrap_or_else(|error| panic!("there is no place for files: {error}"))
}
