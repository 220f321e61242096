//! Records what this user has approved: method folders, by building or creating them, and what run files ask for, by an
//! answer.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use crate::{Error, digest, home};

/// The folder of the records of method folders, in the folder of [`home::home`]. A record is an empty file, named by
/// the SHA-256 of the method folder's resolved path.
const BUILT_FOLDER: &str = "built";

/// The folder of the records of run files, in the folder of [`home::home`]. A record is an empty file, named by the
/// SHA-256 of a text with what the run file asks for.
const ACCEPTED_FOLDER: &str = "accepted";

/// Marks a folder as one whose code this user lets run, by building it or creating it here. Returns true if it was not
/// marked before. The mark is an empty file in the folder `built` of [`home::home`], named by the SHA-256 of the marked
/// folder's resolved path. Errors: no such folder, a mark that cannot be written, or those of [`home::home`].
pub fn record(folder: &Path) -> Result<bool, Error> {
    record_in(&home::home()?, folder)
}

/// Marks `folder` by an empty file in `home/built`, named by the SHA-256 of the folder's resolved path. Returns true if
/// the folder was not marked before. Errors: no such folder, or a `home` that other users may change.
fn record_in(home: &Path, folder: &Path) -> Result<bool, Error> {
    let folder = folder.canonicalize().map_err(Error::file("found", folder))?;
    create_record(&home.join(BUILT_FOLDER), folder.as_os_str().as_encoded_bytes())
}

/// Whether [`record`] has marked the folder at this resolved path. False if the folder does not exist or the marks
/// cannot be read.
#[must_use]
pub fn is_recorded(folder: &Path) -> bool {
    let found = || Some((home::home().ok()?, folder.canonicalize().ok()?));
    found().is_some_and(|(home, folder)| has_record(&home.join(BUILT_FOLDER), folder.as_os_str().as_encoded_bytes()))
}

/// Records that this user accepts `requests`, a text with what a run file asks for: creates an empty file in the folder
/// `accepted` of [`home::home`], named by the SHA-256 of the text. A file that exists already is no error. Errors: a
/// file that cannot be written, or those of [`home::home`].
pub fn accept(requests: &str) -> Result<(), Error> {
    create_record(&home::home()?.join(ACCEPTED_FOLDER), requests.as_bytes()).map(drop)
}

/// Whether [`accept`] has recorded exactly this text. Errors: those of [`home::home`].
pub fn is_accepted(requests: &str) -> Result<bool, Error> {
    Ok(has_record(&home::home()?.join(ACCEPTED_FOLDER), requests.as_bytes()))
}

/// Whether `folder` has the file that [`create_record`] creates for these bytes.
fn has_record(folder: &Path, bytes: &[u8]) -> bool {
    folder.join(digest::sha256(bytes)).is_file()
}

/// Creates an empty file in `folder`, named by the SHA-256 of the bytes. Creates the folder too if it is missing.
/// Returns true if the file did not exist. Errors: a folder that other users may change, or that cannot be written.
fn create_record(folder: &Path, bytes: &[u8]) -> Result<bool, Error> {
    home::create(folder)?;
    let path = folder.join(digest::sha256(bytes));
    match File::create_new(&path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::file("written", path)(error)),
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
