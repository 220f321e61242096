//! One command at a time writes the files of trust, and each file appears whole or not at all.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::Error;

/// The file that is locked where the system locks no folders.
const GUARD: &str = ".tunebox-guard";

/// Keeps other commands from writing into folders, until it is dropped.
pub(super) struct Guard {
    _folders: Vec<File>,
}

impl Guard {
    /// Waits until nobody else writes into these folders. Errors: a folder that cannot be locked in any way.
    pub(super) fn of(folders: [&Path; 2]) -> Result<Self, Error> {
        let mut places = Vec::with_capacity(folders.len());
        for folder in folders {
            places.push(folder.canonicalize().map_err(Error::file("find", folder))?);
        }
        // All commands take them in one order, and none takes the same one twice: nobody waits for each other.
        places.sort();
        places.dedup();
        let locked: Result<_, _> = places.iter().map(|place| lock(place).map_err(Error::file("lock", place))).collect();
        Ok(Self { _folders: locked? })
    }
}

/// Locks the folder itself, which leaves nothing behind; where that is not possible, a file in it.
fn lock(folder: &Path) -> std::io::Result<File> {
    if let Ok(file) = File::open(folder)
        && file.lock().is_ok()
    {
        return Ok(file);
    }
    let file = File::options().create(true).truncate(false).write(true).open(folder.join(GUARD))?;
    file.lock()?;
    Ok(file)
}

/// Writes a file beside its place and renames it there, if it says anything new.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    if std::fs::read(path).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new();
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut file = file.tempfile_in(folder).map_err(Error::file("write into", folder))?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(Error::file("write", path))?;
    file.persist(path).map_err(|error| error.error).map_err(Error::file("write", path))?;
    // The name is kept as well, where a folder can be told to.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
