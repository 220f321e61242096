//! Checks packages that a person names by a path. Nobody is asked about their signers. But the lock's entry for the
//! package's name still holds, and so do the signers that an organization names for it.

use std::path::Path;

use super::lock::{Lock, Locked, NOT_LOCKED};
use super::publishers::{Publishers, check_known};
use super::refusal::{locate, refuse};
use super::source::LOCAL;
use crate::{Error, Package};

/// Checks a package that was named by a path against the organization's list in the file `keyring`, if there is one,
/// and the project's lock; writes nothing. A package that neither names passes, unless `only_locked`: then the lock
/// must pin these bytes under its name. Errors: a signer whom the list does not name for the package; another signer,
/// an older version, or other bytes of the same version than the lock pins; a list or a lock that is not understood.
pub fn check_path_package(
    package: &Package,
    project: &Path,
    keyring: Option<&Path>,
    only_locked: bool,
) -> Result<(), Error> {
    let (listed, lock) = (Publishers::read_organization(keyring)?, Lock::read_project(project)?);
    let held = check_listed(package, &listed)
        .and_then(|()| check_against_lock(package, lock.find(&package.manifest.name), only_locked));
    let title = format!("{}@{}", package.manifest.name, package.manifest.version);
    held.map_err(|error| locate(error, &title, &package.origin))
}

/// Fails if the organization's list names signers for the package's name, and it was signed by another key. A package
/// without a signature passes.
fn check_listed(package: &Package, listed: &Publishers) -> Result<(), Error> {
    let Some(signer) = &package.signer else { return Ok(()) };
    check_known(&listed.publishers_for(&format!("{LOCAL}{}", package.manifest.name)), signer)
}

/// Checks a package against the lock's entry of its name. The pinned bytes pass. Errors, for other bytes: the pin is
/// signed and they are not by that signer; they have the pinned version; or a version older than the highest that was
/// used here. With `only_locked`, all other bytes fail, and so does a package without an entry.
fn check_against_lock(package: &Package, locked: Option<&Locked>, only_locked: bool) -> Result<(), Error> {
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
    if !only_locked {
        return Ok(());
    }
    Err(refuse(
        NOT_LOCKED,
        "it was named by its path, and `--locked` takes only the bytes that tunebox.lock holds",
        "leave `--locked` out; or pin it: `tunebox pack`, `tunebox push` into a folder, `tunebox pull` from there",
    ))
}
