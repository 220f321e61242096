//! Whether a package may come in: are these the bytes that were pinned, who signed them, may that signer, is it older.
//!
//! [`Trust::admit`] asks in this order and stops at the first no, before anything is installed or compiled: the digest
//! against the lock, the statement, the signature, the key that is known for the name, the version, the name itself,
//! and last a person. [`Trust::commit`] then writes down what was found.

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
use crate::file_lock::{PATIENCE, lock_folders};
use crate::signature::Signer;
use crate::statement::Statement;
use crate::{Error, digest, files, home};

pub use lock::{Lock, Locked};
pub use path::hold_path;
pub use publishers::{Publisher, Publishers};
pub use question::Question;
pub(crate) use source::Source;

use refusal::{locate, refuse_unreadable};

/// The variable that names an organization's list of publishers.
pub const KEYRING: &str = "TUNEBOX_PUBLISHERS";

/// What this machine and this project know of packages and signers.
#[derive(Debug)]
pub struct Trust {
    home: PathBuf,
    project: PathBuf,
    /// What an organization says.
    keyring: Publishers,
    /// What a person of this machine accepted.
    publishers: Publishers,
    lock: Lock,
    pending: Vec<Pending>,
}

/// How what is not known yet is decided.
pub enum Mode<'a> {
    /// By asking: the answer says whether a signer is accepted.
    Ask(&'a mut dyn FnMut(&Question) -> bool),
    /// Not at all: only what the lock holds is taken, from signers who are known without it.
    Locked,
}

/// A package that may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// What it is.
    pub statement: Statement,
    /// Who signed it; `None` of some packages from paths.
    pub signer: Option<Signer>,
    /// The day since when the signer is known, where it is known by day.
    pub first_seen: Option<String>,
    /// The version that was pinned before, where it was another one.
    pub previous: Option<String>,
}

/// What is to be written down.
#[derive(Debug)]
struct Pending {
    locked: Locked,
    publisher: Option<Publisher>,
}

impl Trust {
    /// Reads what is known: `publishers.toml` in the home folder, the list that `TUNEBOX_PUBLISHERS` names, and
    /// `tunebox.lock` in the project's folder. Errors: a file that is not understood, with the place in it; a home
    /// folder or list of signers that others may change.
    pub fn open(home: &Path, project: &Path) -> Result<Self, Error> {
        Self::with_keyring(home, project, keyring().as_deref())
    }

    /// Reads what is known, as [`open`](Self::open) does, with the organization's list in the file `keyring` in place
    /// of the one that `TUNEBOX_PUBLISHERS` names. `None`: there is no such list.
    pub fn with_keyring(home: &Path, project: &Path, keyring: Option<&Path>) -> Result<Self, Error> {
        let keyring = Publishers::of_organization(keyring)?;
        let project = simplify(project);
        let known = home.join(publishers::FILE);
        home::own(home)?;
        home::own(&known)?;
        Ok(Self {
            home: home.to_owned(),
            keyring,
            publishers: Publishers::read(&known)?,
            lock: Lock::of_project(&project)?,
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

    /// Iterates over the publishers whose package names `signer` must not take: everybody who is written down, even if
    /// only a list vouched for them, or the organization has replaced them. Leaves out `signer` itself, and publishers
    /// whose prefix the organization has given to `signer`.
    fn others(&self, signer: Option<&str>) -> impl Iterator<Item = &Publisher> {
        let is_signer = move |one: &Publisher| Some(one.key.as_str()) == signer;
        let follows = move |one: &Publisher| self.keyring.named(&one.prefix).iter().any(|(_, known)| is_signer(known));
        let all = self.publishers.entries().chain(self.keyring.entries()).map(|(_, one)| one);
        all.filter(move |one| !is_signer(one) && !follows(one))
    }

    /// Whether the organization's list names signers for this publisher's prefix, and this publisher's key is not among
    /// them.
    fn is_overruled(&self, one: &Publisher) -> bool {
        let named = self.keyring.named(&one.prefix);
        !named.is_empty() && named.iter().all(|(_, known)| known.key != one.key)
    }

    /// Decides whether a package may come in. `source` is what was asked for, as `registry/namespace/name:version`, or
    /// a path. `mode` says what to do about what is not known yet. Nothing is written before [`commit`](Self::commit).
    /// Errors: the first reason against the package.
    pub fn admit(&mut self, artifact: &Artifact, source: &str, mode: Mode<'_>) -> Result<Admitted, Error> {
        let place = Source::parse(source);
        self.check_pinned(&place, &digest::sha256(&artifact.wasm))?;
        let unreadable = |error| locate(refuse_unreadable(&error), "", source);
        let statement = Statement::of(&artifact.wasm).map_err(unreadable)?;
        let title = statement.title();
        self.decide(statement, artifact, place, mode).map_err(|error| locate(error, &title, source))
    }

    /// Writes the packages and signers that were admitted to `tunebox.lock` and `publishers.toml`, beside what other
    /// commands have written since. Errors: a disk that is full, a file that was broken since, a package that another
    /// command pinned otherwise.
    pub fn commit(self) -> Result<(), Error> {
        self.commit_with(|| Ok(()))
    }

    /// Runs `install`, then writes the packages and signers that were admitted, as [`commit`](Self::commit) does. Both
    /// happen under the locks of the two folders, so that no other command can pin the packages otherwise. Only runs
    /// `install` if nothing was admitted. Errors: those of [`commit`](Self::commit), and those of `install`, after
    /// which nothing is written.
    pub fn commit_with<T>(self, install: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.pending.is_empty() {
            return install();
        }
        home::make(&self.home)?;
        let _locks = lock_folders([&self.home, &self.project], PATIENCE)?;
        let mut publishers = Publishers::read(&self.publishers.path)?;
        let mut lock = Lock::of_project(&self.project)?;
        for pending in self.pending {
            let locked = &pending.locked;
            let unchanged = check_unchanged(&pending, &lock, &publishers);
            unchanged.map_err(|error| locate(error, &locked.title(), &locked.source))?;
            pending.publisher.iter().for_each(|publisher| publishers.put(publisher));
            lock.put(pending.locked);
        }
        let (known, pinned) = (publishers.to_text()?, lock.to_text()?);
        let installed = install()?;
        files::update(&publishers.path, known.as_bytes())?;
        files::update(&lock.path, pinned.as_bytes())?;
        Ok(installed)
    }

    /// Fails if the lock pins another digest for the source and version that were asked for. Runs before anything reads
    /// the package's bytes.
    fn check_pinned(&self, place: &Source, digest: &str) -> Result<(), Error> {
        let asked =
            |locked: &&Locked| locked.source == place.name && place.tag.as_deref() == Some(locked.version.as_str());
        let Some(locked) = self.lock.list.iter().find(asked) else { return Ok(()) };
        let refused = locked.check_digest(&locked.version, digest);
        refused.map_err(|error| locate(error, &locked.title(), &place.asked))
    }
}

/// Returns the path of the organization's list in `TUNEBOX_PUBLISHERS`, or `None` if the variable is not set or empty.
pub fn keyring() -> Option<PathBuf> {
    environment::variable(KEYRING).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Checks an admitted package against the files as they are now, under the lock. Errors: another command has pinned
/// other bytes, another signer or a later version since, or accepted another signer for the prefix.
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
    let all = || publishers.list.iter().filter(|known| !known.listed && known.prefix == publisher.prefix);
    let other = all().next().filter(|_| all().all(|known| known.key != publisher.key));
    other.map_or(Ok(()), |before| Err(before.refuse_other(&signer, &publishers.path)))
}

#[cfg(test)]
mod tests;
