//! `tunebox.lock`: which packages a project uses, from whom, and down to the byte.

use std::path::Path;

use semver::Version;
use serde::{Deserialize, Serialize};

use super::document::{Entry, InvalidValue, TrustFile, check_plain};
use super::publishers::{check_key, check_package_name};
use super::refusal::{GET_AGAIN, refuse, refuse_key, shorten};
use super::source::Source;
use crate::Error;
use crate::digest::is_sha256;
use crate::statement::parse_version;

/// The file's name in a project's folder.
pub(super) const FILE: &str = "tunebox.lock";

/// The message for a package that is not in the lock, where `--locked` accepts no other.
pub(super) const NOT_LOCKED: &str = "it is not in the lock";

/// The message for a package that needs a signature and has none.
pub(super) const UNSIGNED: &str = "this package is not signed";

/// A pinned package: an entry of `tunebox.lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// Its name.
    pub name: String,
    /// The version that is used.
    pub version: String,
    /// Where it came from, without the version.
    pub source: String,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// The public key of its signer; none for an unsigned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The version of `tunebox:method` that it was built for.
    pub interface: String,
    /// The highest version that was ever used here.
    pub highest: String,
}

/// The content of `tunebox.lock`: the packages that a project pins, sorted by name.
pub type Lock = TrustFile<Locked>;

impl Lock {
    /// Reads `tunebox.lock` in a project's folder; the lock is empty if there is no such file. Errors: an entry that is
    /// not understood, with line and column.
    pub(crate) fn read_project(project: &Path) -> Result<Self, Error> {
        Self::read(&project.join(FILE))
    }

    /// Returns the pinned package of this name, or `None`.
    pub fn find(&self, name: &str) -> Option<&Locked> {
        self.list.iter().find(|locked| locked.name == name)
    }

    /// Adds a pinned package, or replaces the one of the same name. The list stays sorted by name.
    pub(super) fn insert_package(&mut self, new: Locked) {
        match self.list.binary_search_by(|locked| locked.name.cmp(&new.name)) {
            Ok(at) => self.list[at] = new,
            Err(at) => self.list.insert(at, new),
        }
    }
}

impl Locked {
    /// Returns name and version as `NAME@VERSION`.
    pub fn title(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Returns the location from which `tunebox pull` fetches this package: `registry/namespace/name:VERSION`, or
    /// `FOLDER//NAME:VERSION` if it came from a path.
    pub(crate) fn location(&self) -> String {
        let Self { name, version, source, .. } = self;
        if Source::parse(source).is_local {
            format!("{source}//{name}:{version}")
        } else {
            format!("{source}:{version}")
        }
    }

    /// Fails if `version` is the pinned one and `digest`, a SHA-256 in hexadecimal, is not. Other versions pass.
    pub(super) fn check_digest(&self, version: &str, digest: &str) -> Result<(), Error> {
        if self.version == version && self.sha256 != digest {
            return Err(refuse(
                "this package is not the one in the lock",
                format!("sha256 is {}, tunebox.lock holds {}", shorten(digest), shorten(&self.sha256)),
                format!("{GET_AGAIN}; a package of your own takes a new version"),
            ));
        }
        Ok(())
    }

    /// Fails if the pinned package has a signer, and `signer` is another public key or `None`. An unsigned pin passes
    /// any signer.
    pub(super) fn check_signer(&self, signer: Option<&str>) -> Result<(), Error> {
        let Self { name, signer: pinned, .. } = self;
        match (pinned, signer) {
            (Some(before), None) => {
                let hint = format!("use the signed one; to go on without, take `{name}` out of {FILE}");
                Err(refuse(UNSIGNED, format!("{before} signed it before"), hint))
            }
            (Some(before), Some(now)) if before != now => {
                Err(refuse_key(now, before, &format!("{FILE} pins `{name}` to"), &format!("`{name}` out of {FILE}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the highest version that was used here if `version` is older than it, or is no version. Else `None`.
    #[must_use]
    pub fn later_than(&self, version: &str) -> Option<&str> {
        self.check_version(version).is_err().then_some(self.highest.as_str())
    }

    /// Fails if `version` is older than the highest version that was used here, or is no version.
    pub(super) fn check_version(&self, version: &str) -> Result<(), Error> {
        let older = match (Version::parse(version), Version::parse(&self.highest)) {
            (Ok(version), Ok(highest)) => version < highest,
            // Neither the statement nor the lock takes any other text; what has no order is not newer.
            _ => true,
        };
        if !older {
            return Ok(());
        }
        let Self { name, highest, .. } = self;
        Err(refuse(
            "this version is older than one that was used here",
            format!("{FILE} has seen {highest}, and an older version would bring back flaws that were fixed since"),
            format!("ask for {highest} or later; to go back on purpose, take `{name}` out of {FILE}"),
        ))
    }
}

impl Entry for Locked {
    const HEAD: &'static str =
        "# The packages that this project uses, pinned: `tunebox` writes it. Keep it with the project.\n";
    const TABLE: &'static str = "package";
    const HINT: &'static str = "correct it, or remove the entry: the package is then pinned again";

    /// Fails unless every value has its form: a package's name, a source that [`check_plain`] passes, a SHA-256, a
    /// public key as signer if there is one, and semantic versions of at most 64 bytes without a part after `+` as
    /// version, interface and `highest`; or if `highest` is below `version`. Changes nothing.
    fn check(&mut self) -> Result<(), InvalidValue> {
        check_package_name(&self.name).map_err(InvalidValue::for_key("name"))?;
        let used = parse_version(&self.version).map_err(InvalidValue::for_key("version"))?;
        check_plain("source", &self.source).map_err(InvalidValue::for_key("source"))?;
        if !is_sha256(&self.sha256) {
            return Err(InvalidValue::for_key("sha256")("`sha256` is not 64 hexadecimal digits in lower case".into()));
        }
        self.signer
            .iter()
            .try_for_each(|signer| check_key("signer", signer))
            .map_err(InvalidValue::for_key("signer"))?;
        parse_version(&self.interface).map_err(InvalidValue::for_key("interface"))?;
        let highest = parse_version(&self.highest).map_err(InvalidValue::for_key("highest"))?;
        if highest >= used {
            return Ok(());
        }
        Err(InvalidValue::for_key("highest")(format!("`highest` is {highest}, below the version {used} that is used")))
    }

    /// Inserts the entry so that the list stays sorted by name. Fails if a package of that name is in it.
    fn add_to(self, list: &mut Vec<Self>) -> Result<(), InvalidValue> {
        match list.binary_search_by(|known| known.name.cmp(&self.name)) {
            Ok(_) => return Err(InvalidValue::for_key("name")(format!("`{}` is locked twice", self.name))),
            Err(at) => list.insert(at, self),
        }
        Ok(())
    }
}
