//! The folders whose code a person has let run on this machine, by building them.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use crate::{Error, digest, home};

/// The folder of the notes, in that of [`home::home`]: an empty file a folder, called by the digest of its path.
const NOTES: &str = "built";

/// Marks a folder as one whose code this user lets run, by building it or creating it here. Returns true if it was not
/// marked before. The mark is an empty file in the folder of [`home::home`], named by the SHA-256 of the resolved path.
/// Errors: no such folder, or a home folder that other users may change.
pub fn record(folder: &Path) -> Result<bool, Error> {
    record_in(&home::home()?, folder)
}

/// Marks a folder as [`record`] does, with the marks kept below `home`. Returns true if it was not marked before.
fn record_in(home: &Path, folder: &Path) -> Result<bool, Error> {
    let folder = folder.canonicalize().map_err(Error::file("find", folder))?;
    let notes = home.join(NOTES);
    home::make(&notes)?;
    let path = notes.join(digest::sha256(folder.as_os_str().as_encoded_bytes()));
    match File::create_new(&path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::file("write", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_once_whatever_way_leads_to_it() {
        let place = tempfile::tempdir().unwrap();
        let (home, calm) = (place.path().join("home"), place.path().join("calm"));
        std::fs::create_dir(&calm).unwrap();
        assert!(record_in(&home, &calm).unwrap());
        assert!(!record_in(&home, &calm.join(".")).unwrap());
        assert!(record_in(&home, place.path()).unwrap());
        assert!(record_in(&home, &place.path().join("nowhere")).is_err());
    }
}
