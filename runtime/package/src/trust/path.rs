//! Packages that a person names by a path: nothing of them is asked, and a name still means what the lock pins under it,
//! and whom an organisation names for it.

use std::path::Path;

use super::keyring;
use super::lock::{Lock, Locked, NOT_LOCKED};
use super::publishers::Publishers;
use super::refusal::{locate, refuse};
use super::source::LOCAL;
use crate::{Error, Package};

/// Holds a package from a path against an organisation's list and the lock of a project, of which nothing is written. Where
/// only the lock counts, it must hold these bytes; else a package whose name neither holds is the person's own affair.
/// Errors: a signer whom the list does not name for the package, a package of a pinned name that is not the pinned one nor
/// follows it, and a list or a lock that is not understood.
pub fn hold_path(package: &Package, project: &Path, only_locked: bool) -> Result<(), Error> {
    hold_with(package, project, keyring().as_deref(), only_locked)
}

/// The same with an organisation's list that is named here.
pub(super) fn hold_with(
    package: &Package,
    project: &Path,
    keyring: Option<&Path>,
    only_locked: bool,
) -> Result<(), Error> {
    let (listed, lock) = (Publishers::of_organisation(keyring)?, Lock::read(project)?);
    let held =
        check_listed(package, &listed).and_then(|()| hold(package, lock.find(&package.manifest.name), only_locked));
    let title = format!("{}@{}", package.manifest.name, package.manifest.version);
    held.map_err(|error| locate(error, &title, &package.origin))
}

/// Whether somebody else signed it than the list names for it. What nobody signed is the person's own, as without a list.
fn check_listed(package: &Package, listed: &Publishers) -> Result<(), Error> {
    let Some(signer) = &package.signer else { return Ok(()) };
    let named = listed.named(&format!("{LOCAL}{}", package.manifest.name));
    match named.first() {
        Some((file, before)) if named.iter().all(|(_, known)| known.key != signer.key) => {
            Err(before.refuse_other(signer, file))
        }
        _ => Ok(()),
    }
}

fn hold(package: &Package, locked: Option<&Locked>, only_locked: bool) -> Result<(), Error> {
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
