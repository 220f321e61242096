//! Checks the packages of a run against the lock of its project, before they are compiled.
//!
//! The rules of signers and locks are in `tunebox_package::trust`. A plan never asks the user: [`admit_packages`] does
//! so before.

use std::path::Path;

use tunebox_foundation::explain::Explanation;
use tunebox_package::artifact::Artifact;
use tunebox_package::build::approval;
use tunebox_package::home::home;
use tunebox_package::trust::{Mode, Question, Trust, check_path_package, keyring};
use tunebox_package::{Package, Reference};

use crate::configuration::{Requests, RunSettings};
use crate::error::Error;

/// The lock's name in a project's folder.
pub(crate) const LOCK_FILE: &str = "tunebox.lock";

/// Asks the user about a signer that is not known yet; true accepts it.
pub type Ask<'a> = dyn FnMut(&Question) -> bool + 'a;

/// Asks the user about the grants, raised limits and paths of a run file. `ask` returns true to accept them.
/// `components` says whether methods and verifiers that the file gives by a path would run. Does not ask if the file
/// permits nothing beyond the defaults, if the user accepted the same before, or if the user has built a method in the
/// run file's folder, since building already ran that folder's code outside of the sandbox. Remembers what was accepted
/// or needed no question, `--set` arguments included, unless `components` left a clause out of the question.
///
/// # Errors
/// The answer no, and a folder of `TUNEBOX_HOME` that other users may change, where answers are remembered.
pub fn admit_run_file(
    settings: &RunSettings,
    components: bool,
    ask: &mut dyn FnMut(&Requests) -> bool,
) -> Result<(), Error> {
    let requests = settings.requests(components);
    if requests.key.is_empty() {
        return Ok(());
    }
    let folder = requests.file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if !requests.clauses.is_empty() && !approval::is_recorded(folder.unwrap_or(Path::new("."))) {
        if approval::is_accepted(&requests.key)? {
            return Ok(());
        }
        if !ask(&requests) {
            let what = "the run file asks for more than the defaults, and that is not accepted on this machine";
            return Err(Explanation::new("trust", what)
                .with_location(requests.file.display().to_string())
                .with_why(format!("it {}", requests.clauses.join("; it ")))
                .with_hint("if you trust its author, give the same command with `--yes`; or set these with `--set`")
                .into());
        }
    }
    // What was left out of the question is not accepted. If the answer cannot be remembered, the question is repeated.
    if settings.requests(true).clauses == requests.clauses {
        let _ = approval::accept(&requests.key);
    }
    Ok(())
}

/// Checks the packages `found` against the lock in the folder `project` before a run. With `ask`, checks only packages
/// of the store, asks the user about signers that are not known yet, and after the last package writes those accepted,
/// and the packages, into the lock. Without `ask`, accepts only packages that are built in or listed in the lock,
/// including components given by a path, and writes nothing.
///
/// # Errors
/// A package that does not match its signature or the lock, or that the user rejects; a store or lock that cannot be
/// read or written.
pub fn admit_packages(found: &[Reference], project: &Path, ask: Option<&mut Ask<'_>>) -> Result<(), Error> {
    let Some(ask) = ask else {
        return found.iter().try_for_each(|found| check_lock(found, &found.open()?, project, true));
    };
    let mut stored = found.iter().filter(|found| matches!(found, Reference::Stored(_))).peekable();
    if stored.peek().is_none() {
        return Ok(());
    }
    let mut trust = open_trust(project)?;
    for found in stored {
        let (artifact, source) = stored_artifact(&found.open()?);
        trust.admit(&artifact, &source, Mode::Ask(&mut *ask))?;
    }
    Ok(trust.commit()?)
}

/// Opens a package and checks it against the lock of `project`. A package of the store must be the one that the lock
/// lists. A package at a path must match the lock only if the lock lists its name. A built-in package is not checked.
///
/// # Errors
/// A package that cannot be read or does not match the lock.
pub fn open_package(found: &Reference, project: &Path) -> Result<Package, Error> {
    let package = found.open()?;
    check_lock(found, &package, project, false)?;
    Ok(package)
}

/// Checks a package against the lock of a project, and one at a path also against the organization's list of signers.
/// Accepts a built-in package. A package of the store must be in the lock; one at a path only with `only_locked`, else
/// it must not contradict the lock's entry of its name, if there is one. Asks nothing and writes nothing.
fn check_lock(found: &Reference, package: &Package, project: &Path, only_locked: bool) -> Result<(), Error> {
    match found {
        Reference::Builtin(_) => {}
        Reference::Stored(_) => {
            let (artifact, source) = stored_artifact(package);
            open_trust(project)?.admit(&artifact, &source, Mode::Locked)?;
        }
        Reference::File(_) | Reference::Folder(_) => {
            check_path_package(package, project, keyring().as_deref(), only_locked)?;
        }
    }
    Ok(())
}

/// Opens the known signers of this user together with the lock of a project.
fn open_trust(project: &Path) -> Result<Trust, Error> {
    Ok(Trust::open(&home()?, project)?)
}

/// Returns a copy of the component's bytes with its signature, and the location from which the store got the package
/// (empty if unknown).
fn stored_artifact(package: &Package) -> (Artifact, String) {
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
             sha256 = \"{}\"\ninterface = \"0.2.0\"\nhighest = \"{version}\"\n",
            digest(bytes)
        );
        std::fs::write(folder.path().join(LOCK_FILE), pin).unwrap();
        let path = folder.path().join("plain.wasm");
        std::fs::write(&path, bytes).unwrap();
        (folder, Reference::File(path))
    }

    #[test]
    fn a_path_to_other_bytes_of_a_pinned_name_is_refused_even_with_consent() {
        let (folder, found) = project(|_| "0".repeat(64));
        let error = open_package(&found, folder.path()).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.exit()),
            ("this package is not the one in the lock", Exit::Trust)
        );
        let (folder, found) = project(sha256);
        assert!(open_package(&found, folder.path()).is_ok());
    }

    #[test]
    fn only_the_lock_takes_a_path_where_no_question_is_asked() {
        let (folder, found) = project(sha256);
        assert!(admit_packages(std::slice::from_ref(&found), folder.path(), None).is_ok());
        std::fs::remove_file(folder.path().join(LOCK_FILE)).unwrap();
        let error = admit_packages(std::slice::from_ref(&found), folder.path(), None).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit()), ("it is not in the lock", Exit::Trust));
        assert!(admit_packages(&[found], folder.path(), Some(&mut |_| true)).is_ok());
        let built_in = Reference::Builtin(builtin::find("lora").unwrap());
        assert!(admit_packages(&[built_in], folder.path(), None).is_ok());
    }
}
