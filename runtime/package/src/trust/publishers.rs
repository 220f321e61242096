//! Publishers: which signer signs for which packages, in this machine's `publishers.toml` or an organization's list.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::document::{Entry, InvalidValue, MAX_NAME_BYTES, TrustFile, check_plain};
use super::refusal::refuse_key;
use super::source::LOCAL;
use crate::Error;
use crate::registry::canonical_name;
use crate::signature::Signer;

/// The file's name in the home folder.
pub(super) const FILE: &str = "publishers.toml";

/// A signer, and what it signs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Publisher {
    /// Whether only an organization's list vouched for the signer, and no person accepted it on this machine. Such an
    /// entry accepts nothing: it only keeps other signers from using the names of its packages. It comes first, so that
    /// no entry that is cut short lacks it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
    /// What the signer signs for: a registry and namespace, or `local:NAME` for a package from paths.
    pub prefix: String,
    /// The public key.
    pub key: String,
    /// The day on which it was accepted; an organization's list need not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<String>,
    /// The package that it was first seen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The names of its packages that were accepted. Packages of other signers must not have names that look like
    /// these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
}

/// The content of `publishers.toml` or of an organization's list.
pub type Publishers = TrustFile<Publisher>;

impl Publisher {
    /// Makes the error for a package signed by `now`, where `file` names this publisher for it.
    pub(super) fn refuse_other(&self, now: &Signer, file: &Path) -> Error {
        let since = self.first_seen.as_ref().map(|day| format!(" since {day}")).unwrap_or_default();
        let known = format!("`{}` is known{since} by", self.prefix);
        refuse_key(&now.key, &self.key, &known, &self.removal_hint(file))
    }

    /// Adds to the hint of an error that this publisher's entry must be taken out of `file` as well. Does nothing to
    /// errors other than [`Error::Explained`].
    pub(super) fn add_removal_hint(&self, mut error: Error, file: &Path) -> Error {
        if let Error::Explained { source, .. } = &mut error
            && let Some(hint) = &mut source.hint
        {
            *hint += &format!(" and {}", self.removal_hint(file));
        }
        error
    }

    /// Returns the end of the hint that tells to take this publisher's entry out of a file.
    fn removal_hint(&self, file: &Path) -> String {
        format!("`{}` out of {}", self.prefix, file.display())
    }
}

impl Publishers {
    /// Reads an organization's list; an empty one if `named` is `None`. Errors: the file does not exist, or is not
    /// understood.
    pub(super) fn read_organization(named: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = named else { return Ok(Self { path: PathBuf::new(), list: Vec::new() }) };
        // The other trust files are created on first use; a list that the user names must exist.
        std::fs::metadata(path).map_err(Error::file("read", path))?;
        Self::read(path)
    }

    /// Returns the publishers in this list for `path`, `registry/namespace/name` or `local:NAME`, each with the list's
    /// file. For `local:NAME`, publishers with a package of that name in any registry count as well. Publishers that
    /// were only listed never count.
    pub(super) fn publishers_for(&self, path: &str) -> Vec<(&Path, &Publisher)> {
        let mut named = signers_of(self.entries(), path);
        if let Some(package) = path.strip_prefix(LOCAL) {
            let has = |one: &Publisher| !one.listed && one.packages.iter().any(|known| known == package);
            named.extend(self.entries().filter(|(_, one)| has(one)));
        }
        named
    }

    /// Iterates over all publishers, each with the path of this file.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Path, &Publisher)> {
        self.list.iter().map(move |publisher| (self.path.as_path(), publisher))
    }
}

/// Adds a publisher to a list. If an entry has the same prefix and key, it gets the packages of `new` too, without
/// repetition; if it was only listed and `new` is accepted, its other fields become those of `new`.
pub(super) fn merge(list: &mut Vec<Publisher>, new: &Publisher) {
    let same = |known: &Publisher| known.prefix == new.prefix && known.key == new.key;
    let Some(entry) = list.iter_mut().find(|known| same(known)) else {
        return list.push(new.clone());
    };
    let mut packages = std::mem::take(&mut entry.packages);
    packages.extend(new.packages.iter().cloned());
    packages.sort();
    packages.dedup();
    if entry.listed && !new.listed {
        entry.clone_from(new);
    }
    entry.packages = packages;
}

/// A publisher, and the file that names it.
pub(super) type Listed<'a> = (&'a Path, &'a Publisher);

/// Returns the publishers in `all` whose prefix covers `path`: only those with the longest such prefix, of which there
/// may be several keys. Publishers that were only listed do not count.
pub(super) fn signers_of<'a>(all: impl Iterator<Item = Listed<'a>>, path: &str) -> Vec<Listed<'a>> {
    let covering = |publisher: &Publisher| !publisher.listed && is_prefix_of(&publisher.prefix, path);
    let matching: Vec<_> = all.filter(|(_, publisher)| covering(publisher)).collect();
    let longest = matching.iter().map(|(_, publisher)| publisher.prefix.len()).max();
    matching.into_iter().filter(|(_, publisher)| Some(publisher.prefix.len()) == longest).collect()
}

/// Fails if there are `known` signers for a package, and none of them is `signer`, who signed it.
pub(super) fn check_known(known: &[Listed<'_>], signer: &Signer) -> Result<(), Error> {
    match known.first() {
        Some((file, before)) if known.iter().all(|(_, known)| known.key != signer.key) => {
            Err(before.refuse_other(signer, file))
        }
        _ => Ok(()),
    }
}

/// Whether `path` is `prefix`, or lies below it after a slash.
fn is_prefix_of(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Entry for Publisher {
    const HEAD: &'static str = "# The signers that this machine trusts, and for which names: `tunebox` adds a signer that you accept.\n\
         # If you remove an entry, `tunebox` asks about its signer again.\n";
    const TABLE: &'static str = "publisher";
    const HINT: &'static str = "correct it, or remove the entry: tunebox then asks about its signer again";

    /// Fails unless every value has its form: a prefix as [`normalize_prefix`] parses it, a public key, a day as in
    /// `2026-11-22`, a source that [`check_plain`] passes, and packages' names. Brings the prefix into the form that is
    /// compared, and sorts the package names without repetition.
    fn check(&mut self) -> Result<(), InvalidValue> {
        // One registry may be written in several ways, and is one prefix.
        self.prefix = normalize_prefix(&self.prefix).map_err(InvalidValue::for_key("prefix"))?;
        check_key("key", &self.key).map_err(InvalidValue::for_key("key"))?;
        self.first_seen.iter().try_for_each(|day| check_day(day)).map_err(InvalidValue::for_key("first-seen"))?;
        self.source
            .iter()
            .try_for_each(|source| check_plain("source", source))
            .map_err(InvalidValue::for_key("source"))?;
        for (item, package) in self.packages.iter().enumerate() {
            let in_list = |problem| InvalidValue { item: Some(item), ..InvalidValue::for_key("packages")(problem) };
            check_package_name(package).map_err(in_list)?;
        }
        self.packages.sort();
        self.packages.dedup();
        Ok(())
    }

    /// Adds the entry, or merges it into the one with the same prefix and key. Never fails.
    fn add_to(self, list: &mut Vec<Self>) -> Result<(), InvalidValue> {
        merge(list, &self);
        Ok(())
    }
}

/// Returns a prefix in the form in which prefixes are compared, its registry under its one name: `registry`,
/// `registry/namespace` or `local:NAME`. Parts of a namespace are lower-case letters, digits, `-`, `.` and `_`. The
/// error, for a message, says which form is wanted.
fn normalize_prefix(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix(LOCAL) {
        return check_package_name(name).map(|()| text.to_owned());
    }
    let part = |part: &str| {
        let sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        !part.is_empty() && part.bytes().all(sign)
    };
    let (host, namespace) = text.split_once('/').map_or((text, None), |(host, rest)| (host, Some(rest)));
    let registry = canonical_name(host).filter(|_| namespace.is_none_or(|namespace| namespace.split('/').all(part)));
    let prefix = registry.map(|registry| namespace.map_or(registry.clone(), |rest| format!("{registry}/{rest}")));
    prefix.filter(|prefix| prefix.len() <= MAX_NAME_BYTES).ok_or_else(|| {
        "`prefix` is not of the form `registry.example/namespace` in lower case, without a version".into()
    })
}

/// Fails unless a text is a day as in `2026-11-22`. The error is for a message.
fn check_day(text: &str) -> Result<(), String> {
    match text.parse::<jiff::civil::Date>() {
        Ok(day) if day.to_string() == text => Ok(()),
        _ => Err("`first-seen` is not a day as in 2026-11-22".into()),
    }
}

/// Fails unless a text is a public key of minisign. The error, for a message, names it `what`.
pub(super) fn check_key(what: &str, text: &str) -> Result<(), String> {
    match Signer::parse(text) {
        Some(_) => Ok(()),
        None => Err(format!("`{what}` is not a public key of minisign (`RW…`)")),
    }
}

/// Fails unless a text is the name of a package: at most 64 lower-case letters, digits and hyphens, beginning with a
/// letter. The error is for a message.
pub(super) fn check_package_name(text: &str) -> Result<(), String> {
    let problem = "this is not the name of a package: lower-case words joined by hyphens";
    crate::manifest::check_name("a package", text).map_err(|_| problem.into())
}
