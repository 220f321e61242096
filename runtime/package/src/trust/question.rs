//! What a person is asked at the first use of a signer, and what speaks against a yes.

use std::collections::BTreeSet;

use super::publishers::Publisher;
use super::refusal::Refusal;
use super::resemblance::alike;
use super::source::Source;
use super::{Trust, lock};
use crate::signature::Signer;
use crate::statement::Statement;

/// What a person is asked at the first use of a signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What the package is.
    pub statement: Statement,
    /// Where it came from, as it was asked for.
    pub source: String,
    /// Who signed it.
    pub signer: Signer,
    /// What the signer would be accepted for.
    pub prefix: String,
    /// What the signer is known for already.
    pub known_for: Vec<String>,
    /// What speaks against a yes, each a clause. Where there is any, no flag answers for a person.
    pub doubts: Vec<String>,
}

impl Question {
    /// What a no to it is.
    pub(super) fn refused(self) -> Refusal {
        let Self { signer, prefix, doubts, .. } = self;
        if doubts.is_empty() { Refusal::NotAccepted { signer, prefix } } else { Refusal::Doubtful { signer, doubts } }
    }
}

impl Trust {
    /// What a person is asked about a package whose signer is new.
    pub(super) fn question(&self, statement: &Statement, place: &Source, signer: &Signer) -> Question {
        let ours = self.publishers().filter(|(_, known)| known.key == signer.key);
        let known_for: BTreeSet<String> = ours.map(|(_, known)| known.prefix.clone()).collect();
        let prefix = place.prefix(&statement.name);
        Question {
            statement: statement.clone(),
            source: place.asked().to_owned(),
            signer: signer.clone(),
            known_for: known_for.into_iter().collect(),
            doubts: self.doubts(&statement.name, &prefix, signer),
            prefix,
        }
    }

    /// What speaks against a signer whom nobody knows. A name that is only like another one is refused before.
    fn doubts(&self, name: &str, prefix: &str, signer: &Signer) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(locked) = self.lock.find(name).filter(|locked| locked.signer.is_none()) {
            doubts.push(format!("{} pins `{name}` without any signer, from {}", lock::FILE, locked.source));
        }
        let others = || self.publishers().map(|(_, other)| other).filter(move |other| other.key != signer.key);
        let same = |other: &&Publisher| other.packages.iter().any(|package| package == name);
        let known = others().filter(same).map(|other| format!("`{name}` is known as a package of `{}`", other.prefix));
        doubts.extend(known);
        let like = others().filter(|other| resembles(&other.prefix, prefix));
        let like = like.map(|other| format!("`{prefix}` looks like `{}`, for which another key signs", other.prefix));
        doubts.extend(like);
        doubts
    }
}

/// Whether two prefixes are of one registry, and of namespaces there that are taken for each other.
fn resembles(left: &str, right: &str) -> bool {
    let owner = |prefix: &str| {
        let mut parts = prefix.split('/').map(str::to_owned);
        Some((parts.next()?, parts.next()?))
    };
    match (owner(left), owner(right)) {
        (Some((here, left)), Some((there, right))) => here == there && alike(&left, &right),
        _ => false,
    }
}
