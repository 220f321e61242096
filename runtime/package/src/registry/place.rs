//! Where a package is: a name in a registry, or a folder.

use std::fmt;
use std::path::{Path, PathBuf};

use super::RegistryError;
use crate::Error;

/// How long a version may be: registries take no more.
const LONGEST_TAG: usize = 128;
/// How long the part behind the registry may be, likewise.
const LONGEST_REPOSITORY: usize = 255;

/// Where a package is, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
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

/// A name in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// The registry's host, with its port where that is not the usual one.
    pub(super) registry: String,
    /// `namespace/name`.
    pub(super) repository: String,
    /// The version.
    pub(super) version: Option<String>,
}

/// A package in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
}

impl Place {
    /// Reads `registry.example/namespace/name:1.2.3`, `oci:FOLDER//name:1.2.3`, or the path of a folder, which exists
    /// or begins with `./`, `../` or `/`. Version, and in a folder the name, may be left out.
    /// Errors: it is none of these.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let kind = match text.strip_prefix("oci:") {
            Some(folder) => Folder::parse(folder).map(Kind::Folder),
            None if is_path(text) => Folder::parse(text).map(Kind::Folder),
            None => Remote::parse(text).map(Kind::Remote),
        };
        let kind = kind.map_err(|problem| RegistryError::Place { text: text.to_owned(), problem })?;
        Ok(Self { kind, offline: false, plain_http: false, logins: None, certificates: None })
    }

    /// The same place, not to be reached over a network.
    #[must_use]
    pub fn offline(self, offline: bool) -> Self {
        Self { offline, ..self }
    }

    /// The same place, spoken to without encryption. A registry on this machine always is.
    #[must_use]
    pub fn plain_http(self, plain_http: bool) -> Self {
        Self { plain_http, ..self }
    }

    /// The same place with another file of logins than the one of `docker login`.
    #[must_use]
    pub fn logins(self, file: &Path) -> Self {
        Self { logins: Some(file.to_owned()), ..self }
    }

    /// The same place, whose certificate is issued by one of this file (PEM). Otherwise `SSL_CERT_FILE` names the
    /// file, or the public authorities count.
    #[must_use]
    pub fn certificates(self, file: &Path) -> Self {
        Self { certificates: Some(file.to_owned()), ..self }
    }

    /// What the package is called, as far as the place says.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Remote(remote) => Some(remote.name()),
            Kind::Folder(folder) => folder.name.as_deref(),
        }
    }

    /// The version, as far as the place says.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match &self.kind {
            Kind::Remote(remote) => remote.version.as_deref(),
            Kind::Folder(folder) => folder.version.as_deref(),
        }
    }

    /// Where packages of this place come from, without the version: `registry.example/namespace/name`, or `oci:` and
    /// the whole path of the folder.
    #[must_use]
    pub fn source(&self) -> String {
        match &self.kind {
            Kind::Remote(remote) => remote.source(),
            Kind::Folder(folder) => {
                let path = std::path::absolute(&folder.path).unwrap_or_else(|_| folder.path.clone());
                format!("oci:{}", path.display())
            }
        }
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(self.kind, Kind::Folder(_))
    }
}

impl fmt::Display for Place {
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

impl Remote {
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("a name in a registry stands without `https://`".into());
        }
        let missing = "it has no registry, namespace and name";
        let (registry, rest) = text.split_once('/').ok_or(missing)?;
        let registry = registry.to_ascii_lowercase();
        if !is_registry(&registry) {
            return Err(format!("`{registry}` is no host: one has a dot or a port"));
        }
        let last = rest.rfind('/').ok_or("it has no namespace between registry and name")?;
        let (repository, version) = match rest[last..].split_once([':', '@']) {
            Some((name, version)) => (&rest[..last + name.len()], Some(version)),
            None => (rest, None),
        };
        if repository.len() > LONGEST_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(format!("`{repository}` is not made of lower-case words with `/` between them"));
        }
        let version = version.map(checked_version).transpose()?;
        Ok(Self { registry, repository: repository.to_owned(), version })
    }

    /// The package's name.
    pub(super) fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    /// The same name with a version.
    pub(super) fn of_version(&self, version: &str) -> Self {
        Self { version: Some(version.to_owned()), ..self.clone() }
    }

    /// The version as registries write it, where a plus is no letter.
    pub(super) fn tag(&self) -> Option<String> {
        Some(self.version.as_ref()?.replace('+', "_"))
    }

    /// The name without the version.
    pub(super) fn source(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Whether the registry is on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.registry)
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(formatter, ":{version}"))
    }
}

impl Folder {
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

/// Whether a host with or without a port is this machine itself.
pub(super) fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a text is meant as a path: by how it is spelt, and by what lies there only where it can be no registry. A
/// folder that is called like one never stands in for it.
fn is_path(text: &str) -> bool {
    let begins = ["./", "../", "/", ".\\", "..\\", "\\"].iter().any(|begin| text.starts_with(begin));
    let folder = text.split("//").next().unwrap_or_default();
    let registry = text.split_once('/').is_some_and(|(host, _)| is_registry(&host.to_ascii_lowercase()));
    begins || Path::new(text).is_absolute() || (!registry && Path::new(folder).is_dir())
}

/// A host with a dot, a port, or of this machine.
fn is_registry(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    let host = text == "localhost" || text.contains(['.', ':']);
    let port = text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map(|(_, port)| port);
    // A number written in one way alone, so that one registry has one name.
    let numbered = |port: &str| port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
    host && text.bytes().all(letters) && !text.starts_with(['.', ':', '-']) && port.is_none_or(numbered)
}

/// A word of a name: letters and digits, with single dots, underscores and hyphens inside.
fn is_component(text: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let inside = bytes.iter().all(|byte| letter(byte) || b"._-".contains(byte));
    inside && bytes.first().is_some_and(letter) && bytes.last().is_some_and(letter) && !text.contains("..")
}

/// A version that can be a tag.
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
        match Place::parse(text).ok()?.kind {
            Kind::Remote(remote) => Some(remote),
            Kind::Folder(_) => None,
        }
    }

    #[test]
    fn a_name_in_a_registry_is_taken_apart() {
        let place = Place::parse("Registry.example:5000/me/deep/calm-dpo:1.2.3-rc.1+7").unwrap();
        assert_eq!((place.name(), place.version()), (Some("calm-dpo"), Some("1.2.3-rc.1+7")));
        assert_eq!(place.source(), "registry.example:5000/me/deep/calm-dpo");
        assert_eq!(place.to_string(), "registry.example:5000/me/deep/calm-dpo:1.2.3-rc.1+7");
        assert_eq!(remote("r.example/me/calm:1.0.0+7").unwrap().tag().unwrap(), "1.0.0_7");
        assert_eq!(remote("localhost/me/calm").unwrap().version, None);
    }

    #[test]
    fn a_path_is_a_folder_with_or_without_a_package() {
        let place = Place::parse("oci:some/stick//calm:1.2.3").unwrap();
        assert_eq!((place.name(), place.version()), (Some("calm"), Some("1.2.3")));
        assert_eq!(place.to_string(), "oci:some/stick//calm:1.2.3");
        for text in ["./stick", "../stick", "/media/stick", "oci:stick"] {
            assert!(Place::parse(text).unwrap().is_folder(), "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let there = format!("{}//x", folder.path().display());
        assert_eq!(Place::parse(&there).unwrap().name(), Some("x"));
        std::fs::create_dir(folder.path().join("x")).unwrap();
        assert_eq!(Place::parse(&there).unwrap().name(), None);
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
            use tunebox_compute::explain::Explain;
            let why = Place::parse(text).unwrap_err().why().unwrap();
            assert!(why.contains(reason), "{text}: {why}");
        }
    }

    #[test]
    fn only_this_machine_is_spoken_to_without_encryption() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry.example:5000", "10.0.0.1", "localhost.example", "127.0.0.1.example", "0.0.0.0:1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
