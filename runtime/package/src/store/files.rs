//! Folders and files of a store: made for those who may see them, and each file whole or not at all.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::Error;

/// What the name of an unfinished file begins with.
pub(super) const UNFINISHED: &str = ".writing-";

/// Who may look into a folder that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// This user.
    Private,
    /// Whoever gets the folder or the stick.
    Shared,
}

/// Makes a folder and those above it.
pub(super) fn make(folder: &Path, access: Access) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    if access == Access::Private {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    #[cfg(not(unix))]
    let _ = access;
    builder.create(folder).map_err(Error::file("create", folder))
}

/// Writes beside the place, waits for the disk, and renames: a reader sees the old file or the new one.
pub(super) fn whole(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new();
    file.prefix(UNFINISHED);
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = file.tempfile_in(folder).map_err(Error::file("write into", folder))?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(Error::file("write", path))?;
    file.persist(path).map_err(|error| error.error).map_err(Error::file("write", path))?;
    // The name reaches the disk too, where a folder can be waited for.
    #[cfg(unix)]
    fs::File::open(folder).and_then(|folder| folder.sync_all()).ok();
    Ok(())
}
