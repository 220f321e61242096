//! The decision about one package, reason by reason, and what is kept of a yes.

use std::path::Path;

use super::lock::{self, Locked};
use super::publishers::{Publisher, signers_of};
use super::refusal::Refusal;
use super::resemblance::alike;
use super::source::Source;
use super::{Admitted, Mode, Pending, Trust};
use crate::artifact::Artifact;
use crate::signature::{Signed, Signer};
use crate::statement::Statement;
use crate::{builtin, pack};

/// What is known of a signer.
enum Known {
    /// A person accepted it, or a list vouches for it: as this machine's file is to remember it.
    As(Publisher),
    /// Nobody signed, and nobody had to.
    Unsigned,
    /// Nothing.
    No,
}

impl Known {
    fn first_seen(&self) -> Option<String> {
        match self {
            Self::As(publisher) => publisher.first_seen.clone(),
            Self::Unsigned | Self::No => None,
        }
    }
}

impl Trust {
    /// Everything after the statement, in order.
    pub(super) fn decide(
        &mut self,
        statement: &Statement,
        artifact: &Artifact,
        place: &Source,
        mode: Mode<'_>,
    ) -> Result<Admitted, Refusal> {
        if !place.names(statement) {
            return Err(Refusal::Misnamed { asked: place.asked().to_owned() });
        }
        let locked = self.lock.find(&statement.name);
        if let Some(locked) = locked {
            locked.check_digest(&statement.version, &statement.sha256)?;
        }
        let signer = artifact.signature.as_ref().map(|text| Signed::check(statement, text)).transpose()?;
        let known = self.check_signer(statement, place, signer.as_ref())?;
        if let Some(locked) = locked {
            locked.check_version(&statement.version)?;
        }
        self.check_name(statement, &artifact.wasm, signer.as_ref(), &known)?;

        let ask = match mode {
            Mode::Locked => return self.locked(statement, place, signer, &known),
            Mode::Ask(ask) => ask,
        };
        let is_new = matches!(known, Known::No);
        let replaces = locked.is_some_and(|locked| locked.signer.is_none() && locked.source != place.name());
        if let Some(signer) = &signer
            && (is_new || replaces)
        {
            let question = self.question(statement, place, signer, is_new);
            if !ask(&question) {
                return Err(question.refused());
            }
        }
        Ok(self.remember(statement, place, signer, known))
    }

    /// Whether a signer is known for a name. Errors: another one is, or there is none where one must be.
    fn check_signer(&self, statement: &Statement, place: &Source, signer: Option<&Signer>) -> Result<Known, Refusal> {
        let pinned = self.lock.find(&statement.name);
        let held = pinned.map_or(Ok(()), |locked| locked.check_signer(signer.map(|signer| signer.key.as_str())));
        let Some(signer) = signer else {
            held?;
            return if place.is_local() { Ok(Known::Unsigned) } else { Err(Refusal::Unsigned { before: None }) };
        };
        let known = self.signers(&place.path(&statement.name));
        match (known.iter().find(|(_, known)| known.key == signer.key), known.first()) {
            (Some((file, publisher)), _) => held.map(|()| self.known_as(file, publisher)),
            (None, Some((file, before))) => {
                let other = changed(signer, before, file);
                Err(match held {
                    Err(first) => first.before(other),
                    Ok(()) => other,
                })
            }
            (None, None) => held.map(|()| self.carried(statement, place, signer)),
        }
    }

    /// Those who sign for a name. Where an organisation names some, nobody else does, whoever was accepted before.
    fn signers(&self, path: &str) -> Vec<(&Path, &Publisher)> {
        let named = self.keyring.named(path);
        if named.is_empty() { signers_of(self.publishers.entries(), path) } else { named }
    }

    /// Whether a signer whom nobody knows for a name is known well enough to carry it along.
    fn carried(&self, statement: &Statement, place: &Source, signer: &Signer) -> Known {
        // A stick that carries what a known publisher signed raises no new question, unless the name is another's.
        let has = |one: &Publisher| one.packages.contains(&statement.name);
        let free = place.is_local() && !self.others(Some(signer.key.as_str())).any(has);
        let carried = self.publishers().find(|(_, known)| free && known.key == signer.key);
        carried.map_or(Known::No, |(file, publisher)| self.known_as(file, publisher))
    }

    /// How a signer is remembered whom a file names: as it stands in this machine's own; one of a list as such, so that
    /// it needs the list the next time too.
    fn known_as(&self, file: &Path, publisher: &Publisher) -> Known {
        let publisher = publisher.clone();
        Known::As(if *file == self.publishers.path {
            publisher
        } else {
            Publisher { listed: true, first_seen: None, source: None, ..publisher }
        })
    }

    /// Whether a name could be taken for that of something else.
    fn check_name(
        &self,
        statement: &Statement,
        wasm: &[u8],
        signer: Option<&Signer>,
        known: &Known,
    ) -> Result<(), Refusal> {
        let (name, signer) = (statement.name.as_str(), signer.map(|signer| signer.key.as_str()));
        let refused = |like: &str, owner: String| Err(Refusal::LookAlike { like: like.to_owned(), owner });
        let mut inside = builtin::list().iter().chain(builtin::verifiers());
        let same = inside.clone().any(|built| built.name == name && pack::same_component(built.bytes, wasm));
        if !same && let Some(built) = inside.find(|built| built.name == name || alike(built.name, name)) {
            return refused(built.name, "built into tunebox".into());
        }
        if !matches!(known, Known::No) && self.lock.find(name).is_some_and(|locked| locked.signer.as_deref() == signer)
        {
            // It was taken under this name from the same hand, and not merely by the word of a lock.
            return Ok(());
        }
        let locked =
            self.lock.list.iter().find(|locked| alike(&locked.name, name) && locked.signer.as_deref() != signer);
        if let Some(locked) = locked {
            return refused(&locked.name, format!("a package of {} in {}", locked.source, lock::FILE));
        }
        for publisher in self.others(signer) {
            if let Some(like) = publisher.packages.iter().find(|package| alike(package, name)) {
                return refused(like, format!("a package of the publisher `{}`", publisher.prefix));
            }
        }
        Ok(())
    }

    /// The answer where only the lock counts.
    fn locked(
        &self,
        statement: &Statement,
        place: &Source,
        signer: Option<Signer>,
        known: &Known,
    ) -> Result<Admitted, Refusal> {
        let found = self.lock.find(&statement.name);
        let same = |locked: &&Locked| {
            locked.version == statement.version && locked.signer.as_ref() == signer.as_ref().map(|signer| &signer.key)
        };
        let Some(locked) = found.filter(same) else {
            return Err(Refusal::NotLocked { locked: found.map(|locked| locked.version.clone()) });
        };
        // The same bytes may be carried on a stick, whose path differs from machine to machine.
        if !place.is_local() && locked.source != place.name() {
            return Err(Refusal::OtherSource { locked: locked.source.clone() });
        }
        // A lock comes with a project, which may be anybody's: it never stands for a person's yes.
        match (signer, known) {
            (Some(signer), Known::No) => Err(Refusal::OnlyLocked { signer, prefix: place.prefix(&statement.name) }),
            (signer, known) => {
                let first_seen = known.first_seen();
                Ok(Admitted { statement: statement.clone(), signer, first_seen, previous: None })
            }
        }
    }

    /// Keeps what [`commit`](Self::commit) is to write, and counts it from now on.
    fn remember(&mut self, statement: &Statement, place: &Source, signer: Option<Signer>, known: Known) -> Admitted {
        let Statement { name, version, sha256, interface, .. } = statement;
        let previous = self.lock.find(name).map(|locked| locked.version.clone()).filter(|previous| previous != version);
        let first_seen = known.first_seen();
        let publisher = match (known, &signer) {
            (Known::As(publisher), _) => Some(Publisher { packages: vec![name.clone()], ..publisher }),
            (Known::No, Some(signer)) => Some(Publisher {
                listed: false,
                prefix: place.prefix(name),
                key: signer.key.clone(),
                first_seen: Some(today()),
                source: Some(place.asked().to_owned()),
                packages: vec![name.clone()],
            }),
            (Known::No | Known::Unsigned, _) => None,
        };
        let locked = Locked {
            name: name.clone(),
            version: version.clone(),
            source: place.name().to_owned(),
            sha256: sha256.clone(),
            signer: signer.as_ref().map(|signer| signer.key.clone()),
            interface: interface.clone(),
            highest: version.clone(),
        };
        if let Some(publisher) = &publisher {
            self.publishers.put(publisher);
        }
        self.lock.put(locked.clone());
        self.pending.push(Pending { locked, publisher });
        Admitted { statement: statement.clone(), signer, first_seen, previous }
    }
}

/// The refusal of a signer who is not the one that a list names.
pub(super) fn changed(now: &Signer, before: &Publisher, file: &Path) -> Refusal {
    let since = before.first_seen.as_ref().map(|day| format!(" since {day}")).unwrap_or_default();
    Refusal::KeyChanged {
        now: now.key.clone(),
        before: before.key.clone(),
        known: format!("`{}` is known{since} by", before.prefix),
        forget: format!("`{}` out of {}", before.prefix, file.display()),
    }
}

/// The day of now, in UTC.
pub(super) fn today() -> String {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}
