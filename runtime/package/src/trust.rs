//! Decides whether a package is accepted: whether its bytes are those that the lock pins, who signed it, whether that
//! signer is accepted for it, and whether it is older than a version that was used before.
//!
//! [`Trust::admit`] checks in this order and stops at the first failure, before anything is installed or compiled: the
//! digest against the lock, the statement, the signature, the key that is known for the name, the version, and the name
//! itself. Last, it asks a person. [`Trust::commit`] then writes the package and its signer to `tunebox.lock` and
//! `publishers.toml`.

mod decision;
mod document;
mod lock;
mod path;
mod publishers;
mod question;
pub(crate) mod refusal;
mod resemblance;
mod source;

use std::path::{Path, PathBuf};

use tunebox_foundation::environment;
use tunebox_foundation::paths::simplify;

use crate::artifact::Artifact;
use crate::file_lock::{LOCK_TIMEOUT, lock_folders};
use crate::signature::Signer;
use crate::statement::Statement;
use crate::{Error, digest, files, home};

pub use lock::{Lock, Locked};
pub use path::check_path_package;
pub use publishers::{Publisher, Publishers};
pub use question::Question;
pub(crate) use source::Source;

use publishers::{check_known, merge};
use refusal::{locate, refuse_unreadable};

/// The environment variable that names an organization's list of publishers.
pub const KEYRING: &str = "TUNEBOX_PUBLISHERS";

/// The signers that this machine accepts, and the packages that a project pins.
#[derive(Debug)]
pub struct Trust {
    home: PathBuf,
    project: PathBuf,
    /// The organization's list of publishers; empty without one.
    keyring: Publishers,
    /// The content of this machine's `publishers.toml`: signers that a person accepted, and those that a list vouched
    /// for.
    publishers: Publishers,
    lock: Lock,
    pending: Vec<Pending>,
}

/// How to decide about a signer that is not accepted yet.
pub enum Mode<'a> {
    /// Calls the function, which asks a person; true accepts the signer.
    Ask(&'a mut dyn FnMut(&Question) -> bool),
    /// Asks no question: accepts only packages that the lock pins, and only from signers that were accepted before;
    /// that the lock names a signer is not enough.
    Locked,
}

/// A package that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Its signer; `None` for an unsigned package, which only a path may give.
    pub signer: Option<Signer>,
    /// The day on which the signer was accepted, as in `2026-11-22`, if it is recorded.
    pub first_seen: Option<String>,
    /// The version that the lock pinned before, if it was another one.
    pub previous: Option<String>,
}

/// An accepted package and its signer, which [`Trust::commit`] will write.
#[derive(Debug)]
struct Pending {
    locked: Locked,
    publisher: Option<Publisher>,
}

impl Trust {
    /// Reads the publishers in `publishers.toml` of the folder `home`, the list of publishers that `TUNEBOX_PUBLISHERS`
    /// names, and the lock `tunebox.lock` of the folder `project`. Files that do not exist count as empty, except a
    /// list that is named. Errors: a file that cannot be parsed, with line and column; a named list that does not
    /// exist; a `home` folder or `publishers.toml` that other users own or may write.
    pub fn open(home: &Path, project: &Path) -> Result<Self, Error> {
        Self::with_keyring(home, project, keyring().as_deref())
    }

    /// Reads publishers and lock as [`open`](Self::open) does, but takes the organization's list of publishers from the
    /// file `keyring` instead of the file that `TUNEBOX_PUBLISHERS` names. With `None`, that list is empty. Errors: as
    /// for [`open`](Self::open).
    pub fn with_keyring(home: &Path, project: &Path, keyring: Option<&Path>) -> Result<Self, Error> {
        let keyring = Publishers::read_organization(keyring)?;
        let project = simplify(project);
        let known = home.join(publishers::FILE);
        home::check_owner(home)?;
        home::check_owner(&known)?;
        Ok(Self {
            home: home.to_owned(),
            keyring,
            publishers: Publishers::read(&known)?,
            lock: Lock::read_project(&project)?,
            project,
            pending: Vec::new(),
        })
    }

    /// Returns the project's lock, including the packages that were admitted and are not written yet.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Iterates over the signers who are accepted, each with the file that names it: those of this machine, then those
    /// of the organization's list. Leaves out signers of this machine for whose prefix the organization names only
    /// others.
    pub fn publishers(&self) -> impl Iterator<Item = (&Path, &Publisher)> {
        let own = self.publishers.entries().filter(move |(_, one)| !self.is_overruled(one));
        own.chain(self.keyring.entries()).filter(|(_, one)| !one.listed)
    }

    /// Iterates over the publishers whose package names `signer` must not take: every recorded one, even if only a list
    /// vouched for it, or the organization has replaced it. Leaves out `signer` itself, and publishers whose prefix the
    /// organization has given to `signer`.
    fn others(&self, signer: Option<&str>) -> impl Iterator<Item = &Publisher> {
        let is_signer = move |one: &Publisher| Some(one.key.as_str()) == signer;
        let follows =
            move |one: &Publisher| self.keyring.publishers_for(&one.prefix).iter().any(|(_, known)| is_signer(known));
        let all = self.publishers.entries().chain(self.keyring.entries()).map(|(_, one)| one);
        all.filter(move |one| !is_signer(one) && !follows(one))
    }

    /// Whether the organization's list names signers for the publisher's prefix, and the publisher's key is not among
    /// them.
    fn is_overruled(&self, publisher: &Publisher) -> bool {
        let named = self.keyring.publishers_for(&publisher.prefix);
        !named.is_empty() && named.iter().all(|(_, known)| known.key != publisher.key)
    }

    /// Decides whether a package is accepted. `source` is what was asked for, as `registry/namespace/name:version`, or
    /// a path. `mode` says how to decide about a signer that is not accepted yet. Nothing is written before
    /// [`commit`](Self::commit). Errors: the first check that fails.
    pub fn admit(&mut self, artifact: &Artifact, source: &str, mode: Mode<'_>) -> Result<Admitted, Error> {
        let place = Source::parse(source);
        self.check_pinned(&place, &digest::sha256(&artifact.wasm))?;
        let unreadable = |error| locate(refuse_unreadable(&error), "", source);
        let statement = Statement::of(&artifact.wasm).map_err(unreadable)?;
        let title = statement.title();
        self.decide(statement, artifact, place, mode).map_err(|error| locate(error, &title, source))
    }

    /// Writes the packages and signers that were admitted to `tunebox.lock` and `publishers.toml`, and keeps what other
    /// commands have written since. Does nothing if nothing was admitted. Errors: a disk that is full, a file that was
    /// broken since, a lock that another command holds for 60 s, a package for which another command has pinned other
    /// bytes, another signer or a later version.
    pub fn commit(self) -> Result<(), Error> {
        self.commit_with(|| Ok(()))
    }

    /// Runs `install`, then writes the packages and signers that were admitted, as [`commit`](Self::commit) does.
    /// Checks them against the files first, and holds the locks of the home and the project folder meanwhile, so that
    /// no other command can change the pins. If nothing was admitted, runs `install` and does nothing else. Errors:
    /// those of [`commit`](Self::commit), before `install` runs, unless a file cannot be written; and those of
    /// `install`, after which nothing is written.
    pub fn commit_with<T>(self, install: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.pending.is_empty() {
            return install();
        }
        home::create(&self.home)?;
        let _locks = lock_folders([&self.home, &self.project], LOCK_TIMEOUT)?;
        let mut publishers = Publishers::read(&self.publishers.path)?;
        let mut lock = Lock::read_project(&self.project)?;
        for pending in self.pending {
            let locked = &pending.locked;
            let unchanged = check_unchanged(&pending, &lock, &publishers);
            unchanged.map_err(|error| locate(error, &locked.title(), &locked.source))?;
            pending.publisher.iter().for_each(|publisher| merge(&mut publishers.list, publisher));
            lock.insert_package(pending.locked);
        }
        let (known, pinned) = (publishers.to_text()?, lock.to_text()?);
        let installed = install()?;
        files::replace_if_changed(&publishers.path, known.as_bytes())?;
        files::replace_if_changed(&lock.path, pinned.as_bytes())?;
        Ok(installed)
    }

    /// Fails if the lock pins another digest than `digest` for the source and the version in `source`. Does nothing if
    /// the lock does not pin that version from that source. Runs before anything reads the package's bytes.
    fn check_pinned(&self, source: &Source, digest: &str) -> Result<(), Error> {
        let asked =
            |locked: &&Locked| locked.source == source.name && source.tag.as_deref() == Some(locked.version.as_str());
        let Some(locked) = self.lock.list.iter().find(asked) else { return Ok(()) };
        let refused = locked.check_digest(&locked.version, digest);
        refused.map_err(|error| locate(error, &locked.title(), &source.display_name))
    }
}

/// Returns the path of the organization's list in `TUNEBOX_PUBLISHERS`, or `None` if the variable is not set or empty.
pub fn keyring() -> Option<PathBuf> {
    environment::variable(KEYRING).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Checks an admitted package against the files as they are now, under the lock. Errors: another command has pinned
/// other bytes of the same version, another signer or a later version since, or accepted only other signers for the
/// same prefix. A publisher that only a list vouches for is not compared.
fn check_unchanged(pending: &Pending, lock: &Lock, publishers: &Publishers) -> Result<(), Error> {
    let Pending { locked, publisher } = pending;
    if let Some(now) = lock.find(&locked.name) {
        now.check_digest(&locked.version, &locked.sha256)?;
        now.check_signer(locked.signer.as_deref())?;
        now.check_version(&locked.version)?;
    }
    let accepted = publisher.as_ref().filter(|publisher| !publisher.listed);
    let (Some(publisher), Some(signer)) = (accepted, locked.signer.as_deref().and_then(Signer::parse)) else {
        return Ok(());
    };
    let same_prefix = publishers.entries().filter(|(_, known)| !known.listed && known.prefix == publisher.prefix);
    check_known(&same_prefix.collect::<Vec<_>>(), &signer)
}

#[cfg(test)]
mod tests;
