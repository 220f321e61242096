//! Packages of strangers in a run: each held against the lock of the run's project before a byte of it is compiled.
//!
//! Who may sign what, and what the lock says, is the room of packages; when it is asked is decided here. A plan never
//! asks a person: what it may use was settled before, by [`settle`].

use std::path::Path;

use tunebox_package::artefact::Artefact;
use tunebox_package::home::home;
use tunebox_package::trust::{Mode, Question, Trust};
use tunebox_package::{Package, Reference};

use super::PlannedRun;
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::files;

/// The lock's name in a project's folder.
const LOCK: &str = "tunebox.lock";

/// Who is asked about a signer that was never seen before.
pub type Ask<'a> = dyn FnMut(&Question) -> bool + 'a;

/// Decides about every package from the store that a run names, and writes the decisions into the lock of its project.
/// Without anybody to `ask`, only what the lock lists is taken, and nothing is written.
///
/// # Errors
/// A package that is not what was signed, locked or agreed to; a store or a lock that cannot be read or written.
pub fn settle(settings: &RunSettings, ask: Option<&mut Ask<'_>>) -> Result<(), Error> {
    // What cannot be found is told by the plan, with its place in the run file.
    let found: Vec<Reference> = settings.references().into_iter().flatten().collect();
    settle_all(&found, settings.project(), ask)
}

/// The same for one reference, in the present folder.
///
/// # Errors
/// As [`settle`].
pub fn settle_one(found: &Reference, ask: Option<&mut Ask<'_>>) -> Result<(), Error> {
    settle_all(std::slice::from_ref(found), Path::new("."), ask)
}

fn settle_all(found: &[Reference], project: &Path, ask: Option<&mut Ask<'_>>) -> Result<(), Error> {
    let strangers: Vec<&Reference> = found.iter().filter(|found| matches!(found, Reference::Stored(_))).collect();
    let (false, Some(ask)) = (strangers.is_empty(), ask) else {
        return strangers.into_iter().try_for_each(|found| held(found, project).map(drop));
    };
    let mut trust = open(project)?;
    for found in strangers {
        let (artefact, source) = from_store(&found.open()?);
        trust.admit(&artefact, &source, Mode::Ask(&mut *ask)).map_err(tunebox_package::Error::from)?;
    }
    Ok(trust.commit()?)
}

/// What a reference names. A package from the store must be the one that the lock of a project lists.
///
/// # Errors
/// As [`settle`] without anybody to ask, and whatever is wrong with the package.
pub fn held(found: &Reference, project: &Path) -> Result<Package, Error> {
    let package = found.open()?;
    if matches!(found, Reference::Stored(_)) {
        let (artefact, source) = from_store(&package);
        open(project)?.admit(&artefact, &source, Mode::Locked).map_err(tunebox_package::Error::from)?;
    }
    Ok(package)
}

/// Copies the lock of the project into the folder of a run that uses packages from the store, so that the run can go on
/// and be done again from there.
pub(crate) fn keep(plan: &PlannedRun) -> Result<(), Error> {
    let verifiers = plan.verifiers.iter().map(|verifier| &verifier.package);
    let lock = plan.settings.project().join(LOCK);
    if std::iter::once(&plan.method.package).chain(verifiers).any(|package| package.source.is_some()) {
        files::write(&plan.folder.join(LOCK), &files::read(&lock)?)?;
    }
    Ok(())
}

fn open(project: &Path) -> Result<Trust, Error> {
    Ok(Trust::open(&home()?, project)?)
}

/// A package as it came from where it came from.
fn from_store(package: &Package) -> (Artefact, String) {
    let artefact = Artefact { wasm: package.bytes.to_vec(), signature: package.signature.clone() };
    (artefact, package.source.clone().unwrap_or_default())
}
