//! Where a package is: a name in a registry, or a folder.

use std::fmt;
use std::path::{Path, PathBuf};

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::paths::resolve;

use super::host::{Host, is_like_host, is_like_path};
use crate::Error;

/// The longest version in bytes: registries allow no longer tag.
const MAX_TAG_BYTES: usize = 128;

/// The longest `namespace/name` in bytes: registries allow no longer one.
const MAX_REPOSITORY_BYTES: usize = 255;

/// Where a package is, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub(super) kind: Kind,
    /// The package's name; of a package in a registry the last part of the repository. `None` for a folder alone.
    pub name: Option<String>,
    /// The package's version.
    pub version: Option<String>,
    /// Whether the use of a network is an error; false after parsing.
    pub offline: bool,
    /// Whether HTTP is used in place of HTTPS. For a registry on this machine it always is.
    pub plain_http: bool,
    /// The file of logins, in place of the one of `docker login`.
    pub logins: Option<PathBuf>,
    /// The file of trusted certificates (PEM), in place of the one that `SSL_CERT_FILE` names or the public
    /// authorities.
    pub certificates: Option<PathBuf>,
}

/// The two kinds of locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Remote(Remote),
    Folder(PathBuf),
}

/// A repository of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// The registry's normalized name.
    pub(super) registry: String,
    /// The host that answers requests, with the port as it was written.
    pub(super) authority: String,
    /// `namespace/name`.
    pub(super) repository: String,
}

impl Location {
    /// Parses `registry.example/namespace/name:1.2.3`, `oci:FOLDER//name:1.2.3`, or the path of a folder, which begins
    /// with `./`, `../` or `/`, or exists and cannot be the name of a package in a registry. Version, and in a folder
    /// the name, may be left out. Errors: it is none of these.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let place = match text.strip_prefix("oci:") {
            Some(folder) => Self::parse_folder(folder),
            None if is_path(text) => Self::parse_folder(text),
            None => Self::parse_remote(text),
        };
        place.map_err(|problem| {
            let error = Explanation::new("registry", format!("`{text}` is no place for a package")).with_why(problem);
            let hint =
                "a place is like `registry.example/me/calm:0.1.0`, or a folder: `./stick`, `./stick//calm:0.1.0`";
            error.with_hint(hint).into()
        })
    }

    /// Parses `registry/namespace/name`, optionally with `:VERSION` or `@VERSION`. The error says why it is none.
    fn parse_remote(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("write a name in a registry without `https://`".into());
        }
        let missing = "it has no registry, namespace and name";
        let (registry, rest) = text.split_once('/').ok_or(missing)?;
        let Some(Host { name: registry, authority }) = Host::parse(registry) else {
            return Err(format!("`{registry}` is no host: one has a dot or a port"));
        };
        let last = rest.rfind('/').ok_or("it has no namespace between registry and name")?;
        let (name, version) = split_version(&rest[last + 1..])?;
        let repository = rest[..last + 1 + name.len()].to_owned();
        if repository.len() > MAX_REPOSITORY_BYTES || !repository.split('/').all(is_component) {
            return Err(format!("`{repository}` is not made of lower-case words with `/` between them"));
        }
        Ok(Self::new(Kind::Remote(Remote { registry, authority, repository }), Some(name), version))
    }

    /// Parses `FOLDER` or `FOLDER//NAME`, optionally with `:VERSION` or `@VERSION`. A text that is the path of an
    /// existing folder as a whole names no package. The error says why it is neither.
    fn parse_folder(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it names no folder".into());
        }
        let Some((path, package)) = text.rsplit_once("//").filter(|_| !Path::new(text).is_dir()) else {
            return Ok(Self::new(Kind::Folder(text.into()), None, None));
        };
        let (name, version) = split_version(package)?;
        if path.is_empty() || !is_component(name) {
            return Err(format!("`{name}` behind `//` is not the name of a package"));
        }
        Ok(Self::new(Kind::Folder(path.into()), Some(name), version))
    }

    /// Makes a location with the default access: networks allowed, HTTPS, the logins of Docker, and the certificates of
    /// `SSL_CERT_FILE` or the public authorities.
    fn new(kind: Kind, name: Option<&str>, version: Option<&str>) -> Self {
        let [name, version] = [name, version].map(|text| text.map(str::to_owned));
        Self { kind, name, version, offline: false, plain_http: false, logins: None, certificates: None }
    }

    /// Returns the version as an OCI tag, with `_` in place of `+`. `None` if there is no version.
    pub(super) fn tag(&self) -> Option<String> {
        Some(self.version.as_ref()?.replace('+', "_"))
    }

    /// Returns where packages of this location come from, without the version: `registry/namespace/name`, or `oci:` and
    /// the absolute, resolved path of the folder.
    #[must_use]
    pub fn source(&self) -> String {
        match &self.kind {
            Kind::Remote(Remote { registry, repository, .. }) => format!("{registry}/{repository}"),
            Kind::Folder(folder) => format!("oci:{}", resolve(folder).display()),
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
        match (&self.kind, &self.name) {
            (Kind::Remote(_), _) => formatter.write_str(&self.source())?,
            (Kind::Folder(folder), None) => write!(formatter, "oci:{}", folder.display())?,
            (Kind::Folder(folder), Some(name)) => write!(formatter, "oci:{}//{name}", folder.display())?,
        }
        self.version.as_ref().map_or(Ok(()), |version| write!(formatter, ":{version}"))
    }
}

/// Whether a text is meant as a path: it is spelt like one, or it cannot be a name in a registry and the folder before
/// `//` exists.
fn is_path(text: &str) -> bool {
    let folder = text.split("//").next().unwrap_or_default();
    is_like_path(text) || (!is_meant_for_registry(text) && Path::new(folder).is_dir())
}

/// Whether a text begins with what looks like a host, followed by a namespace or by a version. False if it has two
/// slashes in a row, except in `://`.
fn is_meant_for_registry(text: &str) -> bool {
    let Some((host, rest)) = text.split_once('/') else { return false };
    // Two slashes stand behind a folder, or in an address of the web.
    let slashes = text.contains("//") && !text.contains("://");
    is_like_host(host) && !slashes && (rest.contains('/') || text.contains([':', '@']))
}

/// Whether a text is a valid part of a repository's name: lower-case letters and digits, with dots, underscores and
/// hyphens inside, but no two dots in a row.
fn is_component(text: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let inside = bytes.iter().all(|byte| letter(byte) || b"._-".contains(byte));
    inside && bytes.first().is_some_and(letter) && bytes.last().is_some_and(letter) && !text.contains("..")
}

/// Splits `NAME`, `NAME:VERSION` or `NAME@VERSION`; the name is not checked. A version has 1 to 128 ASCII letters,
/// digits, `.`, `_`, `-` and `+`, and begins with a letter, a digit or `_`; a digest is none. The error says what is
/// wrong.
fn split_version(text: &str) -> Result<(&str, Option<&str>), String> {
    let Some((name, version)) = text.split_once([':', '@']) else { return Ok((text, None)) };
    if version.starts_with("sha256:") || version.starts_with("sha256-") {
        return Err("a package is named by its version, not by its digest".into());
    }
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    let good = version.len() <= MAX_TAG_BYTES && version.bytes().all(letters) && !version.is_empty();
    let good = good && !version.starts_with(['.', '-', '+']);
    if good { Ok((name, Some(version))) } else { Err(format!("`{version}` is no version")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name and version of a location.
    fn package(place: &Location) -> (Option<&str>, Option<&str>) {
        (place.name.as_deref(), place.version.as_deref())
    }

    #[test]
    fn a_name_in_a_registry_is_taken_apart() {
        let place = Location::parse("Registry.example:5000/me/deep/calm-dpo:1.2.3-rc.1+7").unwrap();
        assert_eq!(package(&place), (Some("calm-dpo"), Some("1.2.3-rc.1+7")));
        assert_eq!(place.source(), "registry.example:5000/me/deep/calm-dpo");
        assert_eq!(place.to_string(), "registry.example:5000/me/deep/calm-dpo:1.2.3-rc.1+7");
        assert_eq!(Location::parse("r.example/me/calm:1.0.0+7").unwrap().tag().unwrap(), "1.0.0_7");
        assert_eq!(Location::parse("localhost/me/calm").unwrap().version, None);
    }

    #[test]
    fn a_registry_is_known_by_one_name_and_reached_where_it_was_written() {
        for (text, authority, name) in [
            ("Index.docker.io:443/me/calm:1.0.0", "registry-1.docker.io:443", "docker.io/me/calm"),
            ("ghcr.io.:80/acme/calm:1.0.0", "ghcr.io:80", "ghcr.io/acme/calm"),
        ] {
            let place = Location::parse(text).unwrap();
            assert_eq!((place.source(), place.to_string()), (name.to_owned(), format!("{name}:1.0.0")));
            assert!(matches!(place.kind, Kind::Remote(remote) if remote.authority == authority), "{text}");
        }
    }

    #[test]
    fn a_path_is_a_folder_with_or_without_a_package() {
        let place = Location::parse("oci:some/stick//calm:1.2.3").unwrap();
        assert_eq!(package(&place), (Some("calm"), Some("1.2.3")));
        assert_eq!(place.to_string(), "oci:some/stick//calm:1.2.3");
        for text in ["./stick", "../stick", "/media/stick", "oci:stick"] {
            assert!(Location::parse(text).unwrap().is_folder(), "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let there = format!("{}//x", folder.path().display());
        assert_eq!(Location::parse(&there).unwrap().name.as_deref(), Some("x"));
        std::fs::create_dir(folder.path().join("x")).unwrap();
        assert_eq!(Location::parse(&there).unwrap().name, None);
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
