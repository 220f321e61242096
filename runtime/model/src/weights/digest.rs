//! The fingerprint of a model: sha256 over the bytes of its weight files, one after another in the order of their
//! names. For one file it is what `sha256sum` prints.

use std::io::Read;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use tunebox_foundation::bounded;
use tunebox_foundation::hexadecimal::hexadecimal;

use crate::error::{Error, Result};

/// The sha256, in hexadecimal, over the bytes of the files in the given order. Reads every byte: about a second per
/// gigabyte.
///
/// # Errors
/// When a file cannot be read.
pub fn digest(files: &[PathBuf]) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    for path in files {
        let failed = |error| Error::file(path, error);
        let mut file = bounded::open(path).map_err(failed)?;
        loop {
            let length = file.read(&mut piece).map_err(failed)?;
            if length == 0 {
                break;
            }
            hasher.update(&piece[..length]);
        }
    }
    Ok(hexadecimal(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn of_what_never_ends_there_is_no_digest() {
        assert!(digest(&[PathBuf::from("/dev/zero")]).is_err());
    }

    #[test]
    fn several_files_are_one_stream() {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("one"), folder.path().join("two")];
        std::fs::write(&files[0], "a").unwrap();
        std::fs::write(&files[1], "bc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&files).unwrap(), abc);
    }
}
