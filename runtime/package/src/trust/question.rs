//! The question to a person at the first use of a signer, with the reasons to doubt it.

use std::collections::BTreeSet;

use super::decision::Candidate;
use super::publishers::Publisher;
use super::refusal::{explain, refuse};
use super::resemblance::is_lookalike;
use super::source::Source;
use super::{Locked, Trust, lock};
use crate::Error;
use crate::error::Reason;
use crate::signature::Signer;
use crate::statement::Statement;

/// The message for a package whose signer was not accepted.
pub(super) const NOT_ACCEPTED: &str = "its signer is not accepted on this machine";

/// The hint how a person checks that a key is the publisher's.
const COMPARE: &str = "compare the key with the one that the publisher shows";

/// The question to a person at the first use of a signer, or before a package replaces an unsigned one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The package's name, version, world, imports and digest.
    pub statement: Statement,
    /// Where it came from, as it was asked for.
    pub source: String,
    /// Who signed it.
    pub signer: Signer,
    /// What the signer would be accepted for: a registry and namespace, or `local:NAME` for a package from a path.
    pub prefix: String,
    /// Whether the signer is not accepted for `prefix` yet. If false, the question is only whether this package may
    /// replace the unsigned one that the lock pins.
    pub is_new: bool,
    /// The prefixes for which the signer is accepted already.
    pub known_for: Vec<String>,
    /// Reasons to doubt the signer, each a clause of a sentence. If there is any, `--yes` does not accept the signer.
    pub doubts: Vec<String>,
}

impl Question {
    /// Makes the error for the answer no. It says why, and how a person can accept the package. Its reason is
    /// [`Reason::UnknownSigner`] if the signer is new and there are no doubts, so that `--yes` would accept it; else
    /// [`Reason::Untrusted`].
    pub(super) fn refuse(self) -> Error {
        let Self { statement, source, signer, prefix, is_new, doubts, .. } = self;
        let because = doubts.join("; ");
        if !is_new {
            let hint = format!(
                "if it is the same package, a person at a terminal says so, which `--yes` does not; or take `{}` out of {}",
                statement.name,
                lock::FILE
            );
            let why = format!("{because}; this one is signed by {signer} and comes from elsewhere");
            return refuse("it would replace an unsigned package", why, hint);
        }
        if !doubts.is_empty() {
            let hint = format!("{COMPARE}; `--yes` does not answer this, a person at a terminal does");
            let why = format!("{signer} is not known on this machine; {because}");
            return refuse("its signer is new on this machine, and there are doubts about it", why, hint);
        }
        let how = match Source::parse(&source).is_local {
            true => "give the same command with `--yes`".to_owned(),
            false => format!("`tunebox pull {source} --yes`"),
        };
        let why = format!("{signer} signs for `{prefix}` and is not known on this machine");
        Reason::UnknownSigner.error(explain(NOT_ACCEPTED, why, format!("{COMPARE}, then {how}")))
    }
}

impl Trust {
    /// Makes the question about a package whose signer is new (`is_new`), or that would replace an unsigned one.
    pub(super) fn build_question(&self, candidate: &Candidate, signer: &Signer, is_new: bool) -> Question {
        let Candidate { statement, source, .. } = candidate;
        let ours = self.publishers().filter(|(_, known)| known.key == signer.key);
        let known_for: BTreeSet<String> = ours.map(|(_, known)| known.prefix.clone()).collect();
        let prefix = source.publisher_prefix(&statement.name);
        let pinned = self.lock.find(&statement.name).filter(|locked| locked.signer.is_none());
        let unsigned = |locked: &Locked| {
            format!("{} pins `{}` without any signer, from {}", lock::FILE, locked.name, locked.source)
        };
        let mut doubts: Vec<String> = pinned.map(unsigned).into_iter().collect();
        if is_new {
            doubts.extend(self.reasons_to_doubt(&statement.name, &prefix, signer));
        }
        Question {
            statement: statement.clone(),
            source: source.display_name.clone(),
            signer: signer.clone(),
            known_for: known_for.into_iter().collect(),
            doubts,
            is_new,
            prefix,
        }
    }

    /// Returns the reasons to doubt an unknown signer: other publishers have a package of this name, or sign for a
    /// prefix that looks like this one. A package name that only looks like another one was refused before.
    fn reasons_to_doubt(&self, name: &str, prefix: &str, signer: &Signer) -> Vec<String> {
        let others = || self.others(Some(signer.key.as_str()));
        let has = |other: &&Publisher| other.packages.iter().any(|package| package == name);
        // One prefix may have had several keys, and is named once.
        let known: BTreeSet<&str> = others().filter(has).map(|other| other.prefix.as_str()).collect();
        let like = others().map(|other| other.prefix.as_str()).filter(|other| is_similar_prefix(other, prefix));
        let like: BTreeSet<&str> = like.collect();
        let known = known.iter().map(|other| format!("`{name}` is known as a package of `{other}`"));
        let like = like.iter().map(|other| format!("`{prefix}` looks like `{other}`, for which another key signs"));
        known.chain(like).collect()
    }
}

/// Whether two prefixes are of the same registry, and the first parts of their namespaces look alike.
fn is_similar_prefix(left: &str, right: &str) -> bool {
    let owner = |rest: &str| rest.split('/').next().unwrap_or_default().to_owned();
    match (left.split_once('/'), right.split_once('/')) {
        (Some((here, left)), Some((there, right))) => here == there && is_lookalike(&owner(left), &owner(right)),
        _ => false,
    }
}
