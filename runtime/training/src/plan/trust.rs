//! Packages of strangers in a run: each held against the lock of the run's project before a byte of it is compiled.
//!
//! Who may sign what, and what the lock says, is the room of packages; when it is asked is decided here. A plan never
//! asks a person: what it may use was settled before, by [`settle`].

use std::path::Path;

use tunebox_package::artifact::Artifact;
use tunebox_package::home::home;
use tunebox_package::trust::{Mode, Question, Trust, hold_path};
use tunebox_package::{Package, Reference};

use super::PlannedRun;
use crate::configuration::RunSettings;
use crate::error::Error;
use tunebox_foundation::files;

/// The lock's name in a project's folder.
const LOCK: &str = "tunebox.lock";

/// Who is asked about a signer that was never seen before.
pub type Ask<'a> = dyn FnMut(&Question) -> bool + 'a;

/// Decides about every package from the store that a run names, and writes the decisions into the lock of its project.
/// Without anybody to `ask`, only what is built in or what the lock lists is taken, a path included, and nothing is written.
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
    let Some(ask) = ask else {
        return found.iter().try_for_each(|found| hold(found, &found.open()?, project, true));
    };
    let mut strangers = found.iter().filter(|found| matches!(found, Reference::Stored(_))).peekable();
    if strangers.peek().is_none() {
        return Ok(());
    }
    let mut trust = open(project)?;
    for found in strangers {
        let (artifact, source) = from_store(&found.open()?);
        trust.admit(&artifact, &source, Mode::Ask(&mut *ask)).map_err(tunebox_package::Error::from)?;
    }
    Ok(trust.commit()?)
}

/// What a reference names. A package from the store must be the one that the lock of a project lists, and one from a path
/// must be, if the lock lists its name.
///
/// # Errors
/// As [`settle`] without anybody to ask, and whatever is wrong with the package.
pub fn held(found: &Reference, project: &Path) -> Result<Package, Error> {
    let package = found.open()?;
    hold(found, &package, project, false)?;
    Ok(package)
}

/// Holds a package against the lock of a project; where only the lock counts, a path as well must be in it.
fn hold(found: &Reference, package: &Package, project: &Path, only_locked: bool) -> Result<(), Error> {
    match found {
        Reference::Builtin(_) => {}
        Reference::Stored(_) => {
            let (artifact, source) = from_store(package);
            open(project)?.admit(&artifact, &source, Mode::Locked).map_err(tunebox_package::Error::from)?;
        }
        Reference::File(_) | Reference::Folder(_) => hold_path(package, project, only_locked)?,
    }
    Ok(())
}

/// Copies the lock of the project into the folder of a run that uses packages from the store, so that the run can go on
/// and be done again from there.
pub(crate) fn keep(plan: &PlannedRun) -> Result<(), Error> {
    let verifiers = plan.verifiers.iter().map(|verifier| &verifier.package);
    let lock = plan.settings.project().join(LOCK);
    if std::iter::once(&plan.method.package).chain(verifiers).any(|package| package.source.is_some()) {
        files::write(&plan.folder.join(LOCK), files::read_text(&lock)?.as_bytes())?;
    }
    Ok(())
}

fn open(project: &Path) -> Result<Trust, Error> {
    Ok(Trust::open(&home()?, project)?)
}

/// A package as it came from where it came from.
fn from_store(package: &Package) -> (Artifact, String) {
    let artifact = Artifact { wasm: package.bytes.to_vec(), signature: package.signature.clone() };
    (artifact, package.source.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::{Exit, Explain};
    use tunebox_package::digest::sha256;
    use tunebox_package::{builtin, read_manifest};

    use super::*;

    /// A built-in method as a file, in a project whose lock pins its name to a digest.
    fn project(digest: impl Fn(&[u8]) -> String) -> (tempfile::TempDir, Reference) {
        let (folder, bytes) = (tempfile::tempdir().unwrap(), builtin::find("lora").unwrap().bytes);
        let version = read_manifest(bytes).unwrap().version;
        let pin = format!(
            "schema = 1\n[[package]]\nname = \"lora\"\nversion = \"{version}\"\nsource = \"/media/stick\"\n\
             sha256 = \"{}\"\ninterface = \"0.1.0\"\nhighest = \"{version}\"\n",
            digest(bytes)
        );
        std::fs::write(folder.path().join(LOCK), pin).unwrap();
        let path = folder.path().join("plain.wasm");
        std::fs::write(&path, bytes).unwrap();
        (folder, Reference::File(path))
    }

    #[test]
    fn a_path_to_other_bytes_of_a_pinned_name_is_refused_whoever_says_yes() {
        let (folder, found) = project(|_| "0".repeat(64));
        let error = held(&found, folder.path()).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.exit()),
            ("this package is not the one in the lock", Exit::Trust)
        );
        let (folder, found) = project(sha256);
        assert!(held(&found, folder.path()).is_ok());
    }

    #[test]
    fn only_the_lock_takes_a_path_where_nobody_is_asked() {
        let (folder, found) = project(sha256);
        assert!(settle_all(std::slice::from_ref(&found), folder.path(), None).is_ok());
        std::fs::remove_file(folder.path().join(LOCK)).unwrap();
        let error = settle_all(std::slice::from_ref(&found), folder.path(), None).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit()), ("it is not in the lock", Exit::Trust));
        assert!(settle_all(&[found], folder.path(), Some(&mut |_| true)).is_ok());
        let built_in = Reference::Builtin(builtin::find("lora").unwrap());
        assert!(settle_all(&[built_in], folder.path(), None).is_ok());
    }
}
