//! The checks of one package, in their order, and what is recorded if it is accepted.

use std::path::Path;

use super::lock::{self, Locked};
use super::publishers::{Publisher, merge, signers_of};
use super::refusal::refuse;
use super::resemblance::is_lookalike;
use super::source::Source;
use super::{Admitted, KEYRING, Mode, Pending, Trust, question};
use crate::artifact::Artifact;
use crate::signature::{Signed, Signer};
use crate::statement::Statement;
use crate::{Error, builtin, pack};

/// A package that is being checked.
pub(super) struct Candidate {
    pub(super) statement: Statement,
    /// Where it comes from.
    pub(super) source: Source,
    /// Who signed it.
    signer: Option<Signer>,
}

impl Candidate {
    /// Returns the public key of the signer.
    fn key(&self) -> Option<&str> {
        self.signer.as_ref().map(|signer| signer.key.as_str())
    }
}

impl Trust {
    /// Checks a package whose statement was read, in this order: the name that was asked for, the pinned digest, the
    /// signature, the signer, the pinned version, and names that look alike. Last, `mode` decides: by the lock alone,
    /// or by asking a person about a new signer or the replacement of an unsigned pin. Remembers the package for
    /// [`commit`](Self::commit) only if the mode is to ask. Errors: the first check that fails.
    pub(super) fn decide(
        &mut self,
        statement: Statement,
        artifact: &Artifact,
        source: Source,
        mode: Mode<'_>,
    ) -> Result<Admitted, Error> {
        if !source.is_matched_by(&statement) {
            return Err(refuse(
                "the registry returned another package than requested",
                format!(
                    "`{}` was requested, and the manifest in the package has another name or version",
                    source.display_name
                ),
                "tell the publisher, or request the package by its own name",
            ));
        }
        let locked = self.lock.find(&statement.name);
        if let Some(locked) = locked {
            locked.check_digest(&statement.version, &statement.sha256)?;
        }
        let signer = artifact.signature.as_ref().map(|text| Signed::check(&statement, text)).transpose()?;
        let candidate = Candidate { statement, source, signer };
        let known = self.check_signer(&candidate)?;
        if let Some(locked) = locked {
            locked.check_version(&candidate.statement.version)?;
        }
        let is_new = candidate.signer.is_some() && known.is_none();
        self.check_name(&candidate, &artifact.wasm, is_new)?;

        let ask = match mode {
            Mode::Locked => return self.decide_by_lock(candidate, known),
            Mode::Ask(ask) => ask,
        };
        let replaces = locked.is_some_and(|locked| locked.signer.is_none() && locked.source != candidate.source.name);
        if let Some(signer) = &candidate.signer
            && (is_new || replaces)
        {
            let question = self.build_question(&candidate, signer, is_new);
            if !ask(&question) {
                return Err(question.refuse());
            }
        }
        Ok(self.record_package(candidate, known))
    }

    /// Returns the entry to record in `publishers.toml` for a signer that a person accepted, or for which a list
    /// vouches. `None` if the signer is not accepted for this package, or if the package is unsigned, which is allowed
    /// from a path. Errors: another signer is known or pinned for the name, or a package that is not from a path has no
    /// signature.
    fn check_signer(&self, candidate: &Candidate) -> Result<Option<Publisher>, Error> {
        let Candidate { statement, source, signer } = candidate;
        let pinned = self.lock.find(&statement.name);
        let held = pinned.map_or(Ok(()), |locked| locked.check_signer(candidate.key()));
        let Some(signer) = signer else {
            held?;
            if source.is_local {
                return Ok(None);
            }
            return Err(refuse(
                lock::UNSIGNED,
                "anyone with access to the registry could have uploaded it; only a package at a local path may be \
                 unsigned",
                "ask the publisher to sign it: `tunebox pack --sign KEY`, then `tunebox push`",
            ));
        };
        let known = self.signers_for(&source.publisher_path(&statement.name));
        match (known.iter().find(|(_, known)| known.key == signer.key), known.first()) {
            (Some((file, publisher)), _) => held.map(|()| Some(self.entry_to_record(file, publisher))),
            (None, Some((file, before))) => {
                held.map_err(|error| before.add_removal_hint(error, file))?;
                Err(before.refuse_other(signer, file))
            }
            (None, None) => held.map(|()| self.known_for_other_packages(candidate)),
        }
    }

    /// Returns the signers who are known for `path`, each with the file that names it. If the organization's list names
    /// any, only those; else those that were accepted on this machine.
    fn signers_for(&self, path: &str) -> Vec<(&Path, &Publisher)> {
        let named = self.keyring.publishers_for(path);
        if named.is_empty() { signers_of(self.publishers.entries(), path) } else { named }
    }

    /// Returns the entry to record for a signer whom no file names for this package. A signer known for other packages
    /// is taken as known if the package comes from a path and no other publisher has its name; in all other cases the
    /// signer is unknown: `None`.
    fn known_for_other_packages(&self, candidate: &Candidate) -> Option<Publisher> {
        // A package in a folder that a known publisher signed needs no question, unless its name belongs to another
        // publisher.
        let has = |one: &Publisher| one.packages.contains(&candidate.statement.name);
        let free = candidate.source.is_local && !self.others(candidate.key()).any(has);
        let entry = self.publishers().find(|(_, known)| free && candidate.key() == Some(known.key.as_str()));
        entry.map(|(file, publisher)| self.entry_to_record(file, publisher))
    }

    /// Returns the entry to record for a signer that `file` names: its own entry if that is this machine's file. A
    /// signer of an organization's list is marked as listed, so that it is accepted only as long as the list names it.
    fn entry_to_record(&self, file: &Path, publisher: &Publisher) -> Publisher {
        let publisher = publisher.clone();
        if *file == self.publishers.path {
            publisher
        } else {
            Publisher { listed: true, first_seen: None, source: None, ..publisher }
        }
    }

    /// Fails if the name of the package could be confused with the name of another package: if it equals or resembles
    /// the name of a built-in method or verifier with other bytes; or if it resembles the name of a package by another
    /// signer in the lock or among the publishers. Does not compare it with the lock and the publishers if the lock
    /// pins the name to this signer, unless the signer is known from the lock alone (`is_new`).
    fn check_name(&self, candidate: &Candidate, wasm: &[u8], is_new: bool) -> Result<(), Error> {
        let (name, signer) = (candidate.statement.name.as_str(), candidate.key());
        let refused = |like: &str, owner: String| {
            let why = format!("that is {owner}, and this package is by another author");
            Err(refuse(format!("its name looks like `{like}`"), why, format!("did you mean `{like}`?")))
        };
        let mut inside = builtin::list().iter().chain(builtin::verifiers());
        let same = inside.clone().any(|built| built.name == name && pack::is_same_component(built.bytes, wasm));
        if !same && let Some(built) = inside.find(|built| built.name == name || is_lookalike(built.name, name)) {
            return refused(built.name, "built into tunebox".into());
        }
        if !is_new && self.lock.find(name).is_some_and(|locked| locked.signer.as_deref() == signer) {
            // A signer that is known beside the lock has signed this name before.
            return Ok(());
        }
        let locked =
            self.lock.list.iter().find(|locked| is_lookalike(&locked.name, name) && locked.signer.as_deref() != signer);
        if let Some(locked) = locked {
            return refused(&locked.name, format!("a package of {} in {}", locked.source, lock::FILE));
        }
        for publisher in self.others(signer) {
            if let Some(like) = publisher.packages.iter().find(|package| is_lookalike(package, name)) {
                return refused(like, format!("a package of the publisher `{}`", publisher.prefix));
            }
        }
        Ok(())
    }

    /// Decides by the lock alone, for `--locked`: it must pin this version and signer, from this source unless the
    /// package comes from a path. A signer must also be known without the lock. Nothing is remembered. Errors: each of
    /// these conditions that fails.
    fn decide_by_lock(&self, candidate: Candidate, known: Option<Publisher>) -> Result<Admitted, Error> {
        let found = self.lock.find(&candidate.statement.name);
        let (key, version) = (candidate.key(), &candidate.statement.version);
        let same = |locked: &&Locked| locked.version == *version && locked.signer.as_deref() == key;
        let Some(locked) = found.filter(same) else {
            let why = match found {
                Some(Locked { version, .. }) => {
                    format!("tunebox.lock pins version {version}, and `--locked` accepts no other")
                }
                None => {
                    "`--locked` accepts only packages that tunebox.lock pins, from the signer that it names".to_owned()
                }
            };
            let hint = "run the same command without `--locked`: it adds the package, and asks before it trusts a new \
                        signer";
            return Err(refuse(lock::NOT_LOCKED, why, hint));
        };
        // The path of a folder, such as one on a USB stick, differs from machine to machine, so only the bytes are
        // compared.
        let Candidate { statement, source, signer } = candidate;
        if !source.is_local && locked.source != source.name {
            let source = &locked.source;
            let hint = format!("pull it from {source}; or run the same command without `--locked` to accept this one");
            let what = "it comes from another source than tunebox.lock names";
            return Err(refuse(what, format!("tunebox.lock has it from {source}"), hint));
        }
        // A lock comes with a project, which may be anyone's: it never replaces a person's consent.
        match (signer, known) {
            (Some(signer), None) => Err(refuse(
                question::NOT_ACCEPTED,
                format!(
                    "tunebox.lock names {signer} for `{}`, and this machine does not trust that signer yet: a lock \
                     alone does not make it trusted",
                    source.publisher_prefix(&statement.name)
                ),
                format!(
                    "accept it once with the same command without `--locked`; on an unattended machine, let {KEYRING} name a list that has it"
                ),
            )),
            (signer, known) => {
                let first_seen = known.and_then(|publisher| publisher.first_seen);
                Ok(Admitted { signer, first_seen, previous: None })
            }
        }
    }

    /// Adds a package and its signer to the lock and the publishers in memory, and to the list that
    /// [`commit`](Self::commit) writes. A signer that was not known is recorded with the present day and the source
    /// that was asked for. Returns what was admitted, with the version that the lock pinned before if it was another
    /// one.
    fn record_package(&mut self, candidate: Candidate, known: Option<Publisher>) -> Admitted {
        let Candidate { statement, source, signer } = candidate;
        let Statement { name, version, sha256, interface, .. } = statement;
        let previous = self.lock.find(&name).map(|locked| locked.version.clone());
        let previous = previous.filter(|previous| *previous != version);
        let first_seen = known.as_ref().and_then(|publisher| publisher.first_seen.clone());
        let publisher = match (known, &signer) {
            (Some(publisher), _) => Some(Publisher { packages: vec![name.clone()], ..publisher }),
            (None, Some(signer)) => Some(Publisher {
                listed: false,
                prefix: source.publisher_prefix(&name),
                key: signer.key.clone(),
                first_seen: Some(today()),
                source: Some(source.display_name),
                packages: vec![name.clone()],
            }),
            (None, None) => None,
        };
        let locked = Locked {
            name,
            highest: version.clone(),
            version,
            source: source.name,
            sha256,
            signer: signer.as_ref().map(|signer| signer.key.clone()),
            interface,
        };
        if let Some(publisher) = &publisher {
            merge(&mut self.publishers.list, publisher);
        }
        self.lock.insert_package(locked.clone());
        self.pending.push(Pending { locked, publisher });
        Admitted { signer, first_seen, previous }
    }
}

/// Returns the present day in UTC, as in `2026-11-22`.
pub(super) fn today() -> String {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}
