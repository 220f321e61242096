//! Where a package is: a name in a registry, or a folder.

use std::fmt;
use std::path::{Path, PathBuf};

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::paths::resolve;

use super::host::{Host, is_loopback, spelt_as_host};
use crate::Error;

/// How long a version may be: registries take no more.
const LONGEST_TAG: usize = 128;

/// How long the part behind the registry may be: registries take no more.
const LONGEST_REPOSITORY: usize = 255;

/// Where a package is, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub(super) kind: Kind,
    pub(super) offline: bool,
    pub(super) plain_http: bool,
    pub(super) logins: Option<PathBuf>,
    pub(super) certificates: Option<PathBuf>,
}

/// The two kinds of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Remote(Remote),
    Folder(Folder),
}

impl Location {
    /// Parses `registry.example/namespace/name:1.2.3`, `oci:FOLDER//name:1.2.3`, or the path of a folder, which begins
    /// with `./`, `../` or `/`, or exists and cannot be the name of a package in a registry. Version, and in a folder
    /// the name, may be left out. Errors: it is none of these.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let kind = match text.strip_prefix("oci:") {
            Some(folder) => Folder::parse(folder).map(Kind::Folder),
            None if is_path(text) => Folder::parse(text).map(Kind::Folder),
            None => Remote::parse(text).map(Kind::Remote),
        };
        let kind = kind.map_err(|problem| {
            Explanation::new("registry", format!("`{text}` is no place for a package")).with_why(problem).with_hint(
                "a place is like `registry.example/me/calm:0.1.0`, or a folder: `./stick`, `./stick//calm:0.1.0`",
            )
        })?;
        Ok(Self { kind, offline: false, plain_http: false, logins: None, certificates: None })
    }

    /// Sets whether the use of a network is an error. It is not at first.
    #[must_use]
    pub fn offline(self, offline: bool) -> Self {
        Self { offline, ..self }
    }

    /// Sets whether HTTP is used in place of HTTPS. For a registry on this machine it always is.
    #[must_use]
    pub fn plain_http(self, plain_http: bool) -> Self {
        Self { plain_http, ..self }
    }

    /// Sets the file of logins, in place of the one of `docker login`.
    #[must_use]
    pub fn logins(self, file: &Path) -> Self {
        Self { logins: Some(file.to_owned()), ..self }
    }

    /// Sets the file of trusted certificates (PEM), in place of the one that `SSL_CERT_FILE` names or the public
    /// authorities.
    #[must_use]
    pub fn certificates(self, file: &Path) -> Self {
        Self { certificates: Some(file.to_owned()), ..self }
    }

    /// Returns the package's name, or `None` for a folder without the name of a package.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Remote(remote) => Some(remote.name()),
            Kind::Folder(folder) => folder.name.as_deref(),
        }
    }

    /// Returns the package's version, or `None` if the location has none.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match &self.kind {
            Kind::Remote(remote) => remote.version.as_deref(),
            Kind::Folder(folder) => folder.version.as_deref(),
        }
    }

    /// Returns where packages of this location come from, without the version: `registry/namespace/name`, or `oci:` and
    /// the absolute, resolved path of the folder.
    #[must_use]
    pub fn source(&self) -> String {
        match &self.kind {
            Kind::Remote(remote) => remote.source(),
            Kind::Folder(folder) => format!("oci:{}", resolve(&folder.path).display()),
        }
    }

    /// Whether the location is a folder; false if it is a name in a registry.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(self.kind, Kind::Folder(_))
    }
}

impl fmt::Display for Location {
    /// Writes `registry/namespace/name:VERSION`, or `oci:FOLDER//NAME:VERSION`, without the parts that are not known.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Remote(remote) => remote.fmt(formatter),
            Kind::Folder(folder) => {
                write!(formatter, "oci:{}", folder.path.display())?;
                folder.name.as_ref().map_or(Ok(()), |name| write!(formatter, "//{name}"))?;
                folder.version.as_ref().map_or(Ok(()), |version| write!(formatter, ":{version}"))
            }
        }
    }
}

/// A name in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// What the registry is called, however it was written.
    pub(super) registry: String,
    /// Where it answers.
    pub(super) authority: String,
    /// `namespace/name`.
    pub(super) repository: String,
    /// The version.
    pub(super) version: Option<String>,
}

impl Remote {
    /// Parses `registry/namespace/name`, optionally with `:VERSION` or `@VERSION`. The error says why it is none.
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("a name in a registry stands without `https://`".into());
        }
        let missing = "it has no registry, namespace and name";
        let (registry, rest) = text.split_once('/').ok_or(missing)?;
        let Some(host) = Host::parse(registry) else {
            return Err(format!("`{registry}` is no host: one has a dot or a port"));
        };
        let last = rest.rfind('/').ok_or("it has no namespace between registry and name")?;
        let (repository, version) = match rest[last..].split_once([':', '@']) {
            Some((name, version)) => (&rest[..last + name.len()], Some(version)),
            None => (rest, None),
        };
        if repository.len() > LONGEST_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(format!("`{repository}` is not made of lower-case words with `/` between them"));
        }
        let version = version.map(checked_version).transpose()?;
        let Host { name, authority } = host;
        Ok(Self { registry: name, authority, repository: repository.to_owned(), version })
    }

    /// Returns the package's name, which is the last part of the repository.
    pub(super) fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    /// Returns this name in a registry with another version.
    pub(super) fn of_version(&self, version: &str) -> Self {
        Self { version: Some(version.to_owned()), ..self.clone() }
    }

    /// Returns the version as an OCI tag, with `_` in place of `+`. `None` if there is no version.
    pub(super) fn tag(&self) -> Option<String> {
        Some(self.version.as_ref()?.replace('+', "_"))
    }

    /// Returns `registry/namespace/name`, without the version.
    pub(super) fn source(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Whether the registry is on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.authority)
    }
}

impl fmt::Display for Remote {
    /// Writes `registry/namespace/name`, and `:VERSION` if there is a version.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(formatter, ":{version}"))
    }
}

/// A package in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
}

impl Folder {
    /// Parses `FOLDER` or `FOLDER//NAME`, optionally with `:VERSION` or `@VERSION`. A text that is the path of an
    /// existing folder as a whole names no package. The error says why it is neither.
    fn parse(text: &str) -> Result<Self, String> {
        let whole = || Self { path: PathBuf::from(text), name: None, version: None };
        if text.is_empty() {
            return Err("it names no folder".into());
        }
        let Some((path, package)) = text.rsplit_once("//").filter(|_| !Path::new(text).is_dir()) else {
            return Ok(whole());
        };
        let (name, version) = match package.split_once([':', '@']) {
            Some((name, version)) => (name, Some(checked_version(version)?)),
            None => (package, None),
        };
        if path.is_empty() || !is_component(name) {
            return Err(format!("`{name}` behind `//` is not the name of a package"));
        }
        Ok(Self { path: PathBuf::from(path), name: Some(name.to_owned()), version })
    }
}

/// Whether a text is meant as a path: it is spelt like one, or it cannot be a name in a registry and the folder before
/// `//` exists.
fn is_path(text: &str) -> bool {
    let begins = ["./", "../", "/", ".\\", "..\\", "\\"].iter().any(|begin| text.starts_with(begin));
    let folder = text.split("//").next().unwrap_or_default();
    begins || Path::new(text).is_absolute() || (!is_meant_for_registry(text) && Path::new(folder).is_dir())
}

/// Whether a text begins with what looks like a host, followed by a namespace or by a version. False if it has two
/// slashes in a row, except in `://`.
fn is_meant_for_registry(text: &str) -> bool {
    let Some((host, rest)) = text.split_once('/') else { return false };
    // Two slashes stand behind a folder, or in an address of the web.
    let slashes = text.contains("//") && !text.contains("://");
    spelt_as_host(host) && !slashes && (rest.contains('/') || text.contains([':', '@']))
}

/// Whether a text is a valid part of a repository's name: lower-case letters and digits, with dots, underscores and
/// hyphens inside, but no two dots in a row.
fn is_component(text: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let inside = bytes.iter().all(|byte| letter(byte) || b"._-".contains(byte));
    inside && bytes.first().is_some_and(letter) && bytes.last().is_some_and(letter) && !text.contains("..")
}

/// Returns a text that can be a version and an OCI tag. The error says why it cannot; a digest is none.
fn checked_version(text: &str) -> Result<String, String> {
    if text.starts_with("sha256:") || text.starts_with("sha256-") {
        return Err("a package is named by its version, not by its digest".into());
    }
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    let good = text.len() <= LONGEST_TAG && text.bytes().all(letters) && !text.is_empty();
    let good = good && !text.starts_with(['.', '-', '+']);
    if good { Ok(text.to_owned()) } else { Err(format!("`{text}` is no version")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> Option<Remote> {
        match Location::parse(text).ok()?.kind {
            Kind::Remote(remote) => Some(remote),
            Kind::Folder(_) => None,
        }
    }

    #[test]
    fn a_name_in_a_registry_is_taken_apart() {
        let place = Location::parse("Registry.example:5000/me/deep/calm-dpo:1.2.3-rc.1+7").unwrap();
        assert_eq!((place.name(), place.version()), (Some("calm-dpo"), Some("1.2.3-rc.1+7")));
        assert_eq!(place.source(), "registry.example:5000/me/deep/calm-dpo");
        assert_eq!(place.to_string(), "registry.example:5000/me/deep/calm-dpo:1.2.3-rc.1+7");
        assert_eq!(remote("r.example/me/calm:1.0.0+7").unwrap().tag().unwrap(), "1.0.0_7");
        assert_eq!(remote("localhost/me/calm").unwrap().version, None);
    }

    #[test]
    fn a_registry_is_known_by_one_name_and_reached_where_it_was_written() {
        let named = remote("Index.docker.io:443/me/calm:1.0.0").unwrap();
        assert_eq!(
            (named.source().as_str(), named.authority.as_str()),
            ("docker.io/me/calm", "registry-1.docker.io:443")
        );
        let plain = Location::parse("ghcr.io.:80/acme/calm:1.0.0").unwrap().plain_http(true);
        assert_eq!(
            (plain.source().as_str(), plain.to_string().as_str()),
            ("ghcr.io/acme/calm", "ghcr.io/acme/calm:1.0.0")
        );
    }

    #[test]
    fn a_path_is_a_folder_with_or_without_a_package() {
        let place = Location::parse("oci:some/stick//calm:1.2.3").unwrap();
        assert_eq!((place.name(), place.version()), (Some("calm"), Some("1.2.3")));
        assert_eq!(place.to_string(), "oci:some/stick//calm:1.2.3");
        for text in ["./stick", "../stick", "/media/stick", "oci:stick"] {
            assert!(Location::parse(text).unwrap().is_folder(), "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let there = format!("{}//x", folder.path().display());
        assert_eq!(Location::parse(&there).unwrap().name(), Some("x"));
        std::fs::create_dir(folder.path().join("x")).unwrap();
        assert_eq!(Location::parse(&there).unwrap().name(), None);
    }

    #[test]
    fn only_what_cannot_be_a_name_in_a_registry_is_a_path_by_what_lies_there() {
        for text in ["usb.d/packages", "usb.d/packages//calm:0.1.0", "usb.d/a/b//calm", "stick/a/b", "usb.d"] {
            assert!(!is_meant_for_registry(text), "{text}");
        }
        for text in ["usb.d/a/b", "usb.d/calm:0.1.0", "localhost:5000/calm", "https://usb.d/a", "localhost/a/b@1"] {
            assert!(is_meant_for_registry(text), "{text}");
        }
        // The folder of this crate is where its tests run.
        assert!(Location::parse("src//calm:0.1.0").unwrap().is_folder());
    }

    #[test]
    fn a_folder_is_one_source_whatever_way_leads_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/stick")).unwrap();
        let source = |path: &str| Location::parse(&root.join(path).display().to_string()).unwrap().source();
        for path in ["a/../a/stick", "a/./stick/"] {
            assert_eq!(source(path), format!("oci:{}", resolve(&root.join("a/stick")).display()), "{path}");
        }
        assert_eq!(source("a/../new/stick"), format!("oci:{}", resolve(&root).join("new/stick").display()));
    }

    #[test]
    fn what_is_neither_is_refused_with_its_reason() {
        for (text, reason) in [
            ("calm", "no registry"),
            ("me/calm:1.0.0", "no host"),
            ("registry.example/calm:1.0.0", "no namespace"),
            ("registry.example/Me/calm", "lower-case"),
            ("registry.example/me/../calm", "lower-case"),
            ("registry.example/me/calm:", "no version"),
            ("registry.example/me/calm:-1", "no version"),
            ("registry.example/me/calm@sha256:00", "its digest"),
            ("https://registry.example/me/calm", "without `https://`"),
            ("user@registry.example/me/calm", "no host"),
            ("oci:", "no folder"),
            ("oci:stick//Calm", "not the name"),
        ] {
            use tunebox_foundation::explain::Explain;
            let why = Location::parse(text).unwrap_err().why().unwrap();
            assert!(why.contains(reason), "{text}: {why}");
        }
    }
}
