//! File operations whose errors name the path, and atomic writes.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tempfile::NamedTempFile;
use tunebox_foundation::bounded;
pub(crate) use tunebox_foundation::files::{create_folder, read_text};
pub(crate) use tunebox_foundation::paths::parent;

use crate::Error;
use crate::constants::MAX_COMPONENT_BYTES;

/// How the names of temporary files begin.
pub(crate) const TEMPORARY_PREFIX: &str = ".writing-";

/// Reads an ordinary file of at most [`MAX_COMPONENT_BYTES`] bytes. Errors: no such file, another kind of file, or more
/// bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    bounded::read(path, MAX_COMPONENT_BYTES).map_err(Error::file("read", path))
}

/// Whether a file has exactly these bytes; false if it cannot be read. Does not read a longer file to its end.
pub(crate) fn has_content(path: &Path, bytes: &[u8]) -> bool {
    bounded::read(path, bytes.len() as u64).is_ok_and(|found| found == bytes)
}

/// Creates a folder and its missing parents, those with the permissions 0700: only this user can look into them. A
/// folder that exists stays as it is.
pub(crate) fn create_private_folder(folder: &Path) -> Result<(), Error> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(Error::file("created", folder))
}

/// Writes a file, and creates the missing folders above it. Not atomic.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    create_folder(parent(path))?;
    fs::write(path, bytes).map_err(Error::file("written", path))
}

/// Replaces a file atomically, with the permissions `mode`, and syncs it and its folder.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    write_temporary(path, bytes, mode)?.persist(path).map_err(|error| Error::file("written", path)(error.error))?;
    // Makes the new name durable, on systems that can sync a folder.
    fs::File::open(parent(path)).and_then(|folder| folder.sync_all()).ok();
    Ok(())
}

/// Replaces a file atomically and makes it readable for all users. Does nothing if the file has these bytes: its
/// modification time stays.
pub(crate) fn replace_if_changed(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if has_content(path, bytes) { Ok(()) } else { replace(path, bytes, 0o644) }
}

/// Writes and syncs a temporary file in the folder of `path`, with the permissions `mode`, for the caller to move to
/// `path`. Dropping the result deletes the file.
pub(crate) fn write_temporary(path: &Path, bytes: &[u8], mode: u32) -> Result<NamedTempFile, Error> {
    let folder = parent(path);
    let file =
        tempfile::Builder::new().prefix(TEMPORARY_PREFIX).permissions(Permissions::from_mode(mode)).tempfile_in(folder);
    let mut file = file.map_err(Error::file("written to", folder))?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(Error::file("written", path))?;
    Ok(file)
}
