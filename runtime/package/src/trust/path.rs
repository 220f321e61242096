//! Packages that a person names by a path: nothing of them is asked, and a name that the lock pins still means what it
//! pins.

use std::path::Path;

use super::lock::{Lock, Locked};
use super::refusal::{Refusal, TrustError};
use crate::{Error, Package};

/// Holds a package from a path against the lock of a project, of which nothing is written. Where only the lock counts, it
/// must hold these bytes; else a package whose name it does not hold is the person's own affair.
/// Errors: a package of a pinned name that is not the pinned one nor follows it, and a lock that is not understood.
pub fn hold_path(package: &Package, project: &Path, only_locked: bool) -> Result<(), Error> {
    let lock = Lock::read(project)?;
    hold(package, lock.find(&package.manifest.name), only_locked).map_err(|refusal| {
        let title = format!("{}@{}", package.manifest.name, package.manifest.version);
        TrustError { title, ..TrustError::new(&package.origin, refusal) }.into()
    })
}

fn hold(package: &Package, locked: Option<&Locked>, only_locked: bool) -> Result<(), Refusal> {
    match locked {
        Some(locked) if locked.sha256 == package.digest => return Ok(()),
        Some(locked) => {
            let version = &package.manifest.version;
            // The signer first: what it asks to be done about one's own package is all that there is to do.
            locked.check_signer(package.signer.as_ref().map(|signer| signer.key.as_str()))?;
            locked.check_digest(version, &package.digest)?;
            locked.check_version(version)?;
        }
        None => {}
    }
    if only_locked { Err(Refusal::PathNotLocked) } else { Ok(()) }
}
