//! The decision about one package, reason by reason, and what is kept of a yes.

use std::path::Path;

use super::lock::{self, Locked};
use super::publishers::{Publisher, signers_of};
use super::refusal::refuse;
use super::resemblance::alike;
use super::source::Source;
use super::{Admitted, KEYRING, Mode, Pending, Trust, question};
use crate::artifact::Artifact;
use crate::signature::{Signed, Signer};
use crate::statement::Statement;
use crate::{Error, builtin, pack};

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
    ) -> Result<Admitted, Error> {
        if !place.names(statement) {
            return Err(refuse(
                "the registry gave another package than was asked for",
                format!("`{}` was asked for, and a package says itself what it is", place.asked()),
                "tell the publisher, or ask for it by its own name",
            ));
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
                return Err(question.refuse());
            }
        }
        Ok(self.remember(statement, place, signer, known))
    }

    /// Whether a signer is known for a name. Errors: another one is, or there is none where one must be.
    fn check_signer(&self, statement: &Statement, place: &Source, signer: Option<&Signer>) -> Result<Known, Error> {
        let pinned = self.lock.find(&statement.name);
        let held = pinned.map_or(Ok(()), |locked| locked.check_signer(signer.map(|signer| signer.key.as_str())));
        let Some(signer) = signer else {
            held?;
            if place.is_local() {
                return Ok(Known::Unsigned);
            }
            return Err(refuse(
                lock::UNSIGNED,
                "anybody who reaches the registry could have put it there; only a local path may give an unsigned one",
                "ask the publisher to sign it: `tunebox pack --sign KEY`, then `tunebox push`",
            ));
        };
        let known = self.signers(&place.path(&statement.name));
        match (known.iter().find(|(_, known)| known.key == signer.key), known.first()) {
            (Some((file, publisher)), _) => held.map(|()| self.known_as(file, publisher)),
            (None, Some((file, before))) => {
                held.map_err(|error| before.add_removal(error, file))?;
                Err(before.refuse_other(signer, file))
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
    ) -> Result<(), Error> {
        let (name, signer) = (statement.name.as_str(), signer.map(|signer| signer.key.as_str()));
        let refused = |like: &str, owner: String| {
            let why = format!("that is {owner}, and this one is not by the same hand");
            Err(refuse(format!("its name looks like `{like}`"), why, format!("did you mean `{like}`?")))
        };
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
    ) -> Result<Admitted, Error> {
        let found = self.lock.find(&statement.name);
        let same = |locked: &&Locked| {
            locked.version == statement.version && locked.signer.as_ref() == signer.as_ref().map(|signer| &signer.key)
        };
        let Some(locked) = found.filter(same) else {
            let why = match found {
                Some(Locked { version, .. }) => {
                    format!("tunebox.lock holds version {version}, and `--locked` takes nothing else")
                }
                None => "`--locked` takes only what tunebox.lock holds, from the signer that it names".to_owned(),
            };
            let hint = "the same command without `--locked` adds it, and asks where it must";
            return Err(refuse(lock::NOT_LOCKED, why, hint));
        };
        // The same bytes may be carried on a stick, whose path differs from machine to machine.
        if !place.is_local() && locked.source != place.name() {
            let source = &locked.source;
            let hint = format!(
                "pull it from {source}; the same command without `--locked` takes this one, and asks where it must"
            );
            let what = "it is from another place than the one in the lock";
            return Err(refuse(what, format!("tunebox.lock has it from {source}"), hint));
        }
        // A lock comes with a project, which may be anybody's: it never stands for a person's yes.
        match (signer, known) {
            (Some(signer), Known::No) => Err(refuse(
                question::NOT_ACCEPTED,
                format!(
                    "tunebox.lock names {signer} for `{}`; a lock says what a project uses, not whom this machine trusts",
                    place.prefix(&statement.name)
                ),
                format!(
                    "accept it once: the same command without `--locked`; where nobody can, let {KEYRING} name a list that has it"
                ),
            )),
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

/// The day of now, in UTC.
pub(super) fn today() -> String {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}
